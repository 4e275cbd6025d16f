//! Enforces the limits that the kernel does not: the number of processes (the kernel's own limit does not count
//! those of root) and the size of the workspace. It checks at intervals, so a limit can be exceeded for a moment;
//! then the program is killed.

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

/// The time between two checks.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between SIGTERM and SIGKILL: 2 s.
const GRACE_TICKS: u32 = 100;
/// Ticks between two measurements of the workspace.
const MEASURE_EVERY_TICKS: u32 = 10;
/// The most files and directories a workspace may have, so that measuring it ends.
const MAX_ENTRIES: u64 = 100_000;

/// Which processes belong to the program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// All processes of the pid namespace but this one.
    Namespace,
    /// The descendants of this process.
    Descendants,
}

#[derive(Debug, Clone)]
pub(super) struct Watch {
    workspace: PathBuf,
    workspace_bytes: u64,
    processes: u64,
    reach: Reach,
    exceeded: Arc<Mutex<Option<String>>>,
    /// Ticks since [`Watch::terminate`]; 0 before it.
    ticks_ending: Arc<AtomicU32>,
}

impl Watch {
    pub(super) fn new(policy: &Policy, reach: Reach) -> Self {
        Watch {
            workspace: policy.workspace.clone(),
            workspace_bytes: policy.workspace_bytes,
            processes: policy.resources.processes,
            reach,
            exceeded: Arc::default(),
            ticks_ending: Arc::default(),
        }
    }

    /// Starts the checks, in a thread that lives as long as this process.
    pub(super) fn begin(&self) {
        let watch = self.clone();
        std::thread::spawn(move || {
            for tick in 0_u32.. {
                std::thread::sleep(TICK);
                watch.check(tick);
            }
        });
    }

    /// Sends SIGTERM to every process of the program; SIGKILL follows after [`GRACE_TICKS`].
    pub(super) fn terminate(&self) {
        if self.ticks_ending.fetch_max(1, Ordering::Relaxed) == 0 {
            self.signal(Signal::SIGTERM);
        }
    }

    /// The first limit that was exceeded, as text.
    pub(super) fn exceeded(&self) -> Option<String> {
        self.exceeded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills and reaps until no process of the program is left.
    pub(super) fn kill_all(&self) {
        loop {
            self.signal(Signal::SIGKILL);
            // Wait for one child, then reap the others that have ended.
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

    fn check(&self, tick: u32) {
        if self.ticks_ending.load(Ordering::Relaxed) > 0
            && self.ticks_ending.fetch_add(1, Ordering::Relaxed) > GRACE_TICKS
        {
            self.signal(Signal::SIGKILL);
        }
        let processes = match self.reach {
            // Only counted: reading each one takes too long while a fork bomb runs.
            Reach::Namespace => (process_directories().count() as u64).saturating_sub(1),
            Reach::Descendants => descendants().len() as u64,
        };
        if processes > self.processes {
            self.exceed(format!(
                "the program had {processes} processes, more than the {} allowed",
                self.processes
            ));
        }
        if tick.is_multiple_of(MEASURE_EVERY_TICKS) {
            let (bytes, entries) = extent(&self.workspace);
            if bytes > self.workspace_bytes {
                let max = self.workspace_bytes;
                self.exceed(format!("its workspace holds {bytes} bytes, more than the {max} allowed"));
            } else if entries > MAX_ENTRIES {
                self.exceed(format!("its workspace holds more than {MAX_ENTRIES} files"));
            }
        }
    }

    /// Kills the program, and keeps the reason: the first, if there are several.
    fn exceed(&self, reason: String) {
        self.exceeded.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        // A process that can't be signalled has ended.
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

/// The number of this process in `/proc`.
pub(super) fn own_pid() -> Result<i32, Error> {
    pid_and_parent().map(|(pid, _)| pid)
}

/// The number of its parent in `/proc`.
pub(super) fn own_parent() -> Result<i32, Error> {
    pid_and_parent().map(|(_, parent)| parent)
}

fn pid_and_parent() -> Result<(i32, i32), Error> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|e| Error::System("read /proc/self", e))?;
    parse_stat(&stat).ok_or(Error::System("read /proc/self", std::io::ErrorKind::InvalidData.into()))
}

/// Reads `pid (name) state parent …`. The name may contain anything, also parentheses.
fn parse_stat(stat: &str) -> Option<(i32, i32)> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Some((pid, parent))
}

/// The children of this process, their children, and so on.
fn descendants() -> Vec<i32> {
    let Ok(own) = own_pid() else { return Vec::new() };
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in process_directories() {
        // A process that ended since it was listed is skipped.
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some((pid, parent)) = parse_stat(&String::from_utf8_lossy(&stat)) {
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

/// The directories of the processes in `/proc`.
fn process_directories() -> impl Iterator<Item = fs::DirEntry> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    listed.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
}

/// The bytes and entries beneath a directory. Links are not followed.
fn extent(directory: &Path) -> (u64, u64) {
    let (mut bytes, mut entries) = (0, 0);
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return (bytes, entries);
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                left.push(entry.path());
            } else {
                // The allocated size: a sparse file has a larger length.
                bytes += std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
            }
        }
    }
    (bytes, entries)
}
