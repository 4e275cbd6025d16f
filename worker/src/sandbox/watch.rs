//! Bounds what the kernel does not bound for us: how many processes there are (the kernel's own limit does
//! not count those of root) and how much the workspace holds. Looks now and then, so that both may be
//! passed for a moment; what passed them is ended.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU32, atomic::Ordering},
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::handoff::{Error, Policy};

const TICK: Duration = Duration::from_millis(20);
/// How many ticks something may take to end once it was asked to: 2 s.
const GRACE: u32 = 100;
/// The workspace is walked every so many ticks.
const WALK: u32 = 10;
/// The most files and directories a workspace may have: a walk has to end.
const MOST_ENTRIES: u64 = 100_000;

/// Which processes are the program's.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// All but this one.
    Namespace,
    /// Those that descend from this one.
    Descendants,
}

#[derive(Debug, Clone)]
pub(super) struct Watch {
    workspace: PathBuf,
    workspace_bytes: u64,
    processes: u64,
    reach: Reach,
    exceeded: Arc<Mutex<Option<String>>>,
    /// Ticks since it was told to end; 0 before.
    ending: Arc<AtomicU32>,
}

impl Watch {
    pub(super) fn new(policy: &Policy, reach: Reach) -> Self {
        Watch {
            workspace: policy.workspace.clone(),
            workspace_bytes: policy.workspace_bytes,
            processes: policy.resources.processes,
            reach,
            exceeded: Arc::default(),
            ending: Arc::default(),
        }
    }

    /// In a thread of its own, for as long as this process is there.
    pub(super) fn begin(&self) {
        let watch = self.clone();
        std::thread::spawn(move || {
            for tick in 0_u32.. {
                std::thread::sleep(TICK);
                watch.look(tick);
            }
        });
    }

    /// Asks everything to end.
    pub(super) fn end(&self) {
        if self.ending.fetch_max(1, Ordering::Relaxed) == 0 {
            self.signal(Signal::SIGTERM);
        }
    }

    pub(super) fn exceeded(&self) -> Option<String> {
        self.exceeded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends everything that is left, until nothing is.
    pub(super) fn clear(&self) {
        loop {
            self.signal(Signal::SIGKILL);
            // All that have ended since the last look, or the wait for one.
            let mut flag = None;
            while let Ok(status) = waitpid(None, flag) {
                if status == WaitStatus::StillAlive {
                    break;
                }
                flag = Some(WaitPidFlag::WNOHANG);
            }
            if waitpid(None, Some(WaitPidFlag::WNOHANG)).is_err() {
                return;
            }
        }
    }

    fn look(&self, tick: u32) {
        if self.ending.load(Ordering::Relaxed) > 0 && self.ending.fetch_add(1, Ordering::Relaxed) > GRACE {
            self.signal(Signal::SIGKILL);
        }
        let processes = match self.reach {
            // A bomb leaves no time to look at each.
            Reach::Namespace => (numbered().count() as u64).saturating_sub(1),
            Reach::Descendants => descendants().len() as u64,
        };
        if processes > self.processes {
            self.exceed(format!("it had {processes} processes, more than the {} allowed", self.processes));
        }
        if tick.is_multiple_of(WALK) {
            let (bytes, entries) = extent(&self.workspace);
            if bytes > self.workspace_bytes {
                let most = self.workspace_bytes;
                self.exceed(format!("its workspace holds {bytes} bytes, more than the {most} allowed"));
            } else if entries > MOST_ENTRIES {
                self.exceed(format!("its workspace holds more than {MOST_ENTRIES} files"));
            }
        }
    }

    /// Ends it, and keeps why: of several reasons, the first.
    fn exceed(&self, what: String) {
        self.exceeded.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        // Whoever can't be reached has ended.
        match self.reach {
            Reach::Namespace => {
                let _ = kill(Pid::from_raw(-1), signal);
            }
            Reach::Descendants => {
                for pid in descendants() {
                    let _ = kill(Pid::from_raw(pid), signal);
                }
            }
        }
    }
}

/// This process's number, as `/proc` has it.
pub(super) fn own_pid() -> Result<i32, Error> {
    own().map(|(pid, _)| pid)
}

pub(super) fn own_parent() -> Result<i32, Error> {
    own().map(|(_, parent)| parent)
}

fn own() -> Result<(i32, i32), Error> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|e| Error::System("read /proc/self", e))?;
    parse(&stat).ok_or(Error::System("read /proc/self", std::io::ErrorKind::InvalidData.into()))
}

/// `pid (name) state parent …`; the name may hold anything, parentheses too.
fn parse(stat: &str) -> Option<(i32, i32)> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Some((pid, parent))
}

/// Everything that was started by this process, or by something that was.
fn descendants() -> Vec<i32> {
    let Ok(own) = own_pid() else { return Vec::new() };
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in numbered() {
        // What has ended since it was listed is no longer anybody's.
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some((pid, parent)) = parse(&String::from_utf8_lossy(&stat)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = children.remove(&own).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let below = children.remove(pid).unwrap_or_default();
        found.extend(below);
        next += 1;
    }
    found
}

/// The processes `/proc` lists.
fn numbered() -> impl Iterator<Item = fs::DirEntry> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    listed.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
}

/// Bytes and entries beneath a directory. Links are not followed.
fn extent(directory: &Path) -> (u64, u64) {
    let (mut bytes, mut entries) = (0, 0);
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MOST_ENTRIES {
                return (bytes, entries);
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                left.push(entry.path());
            } else {
                // What it takes, not what it claims: a file may have holes.
                bytes += std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
            }
        }
    }
    (bytes, entries)
}
