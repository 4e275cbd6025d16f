//! Enforces the limits that the kernel does not enforce: the number of processes (the kernel's own
//! limit does not count those of root), the memory and the processor time of all processes
//! together, and the size of the workspace, including files that are deleted and still open. It
//! checks at intervals, so a program can exceed a limit for a moment before it is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU32, atomic::Ordering},
    time::Duration,
};

use domain::agent::Resources;
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use text::set_limit::SetLimit;

use super::{
    handoff::{Error, Policy},
    usage::{self, Open, Processor, Running},
};

/// The time between two checks.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between SIGTERM and SIGKILL: 2 s.
const GRACE_TICKS: u32 = 100;
/// Ticks between two measurements of the workspace.
const MEASURE_EVERY_TICKS: u32 = 10;
/// The most files and directories a workspace may have, so that measuring it ends.
const MAX_ENTRIES: u64 = 100_000;
/// The most threads of all processes together, for each process that is allowed. A large runtime
/// has some dozens.
const THREADS_PER_PROCESS: u64 = 16;
/// The most measurements in a row in which a process may hide its open files. A process that begins
/// or ends hides them for a moment.
const MAX_HIDDEN: u32 = 5;

/// The processes that belong to the program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// All processes of the pid namespace but this one.
    Namespace,
    /// The descendants of this process.
    Descendants,
}

/// The results of earlier checks.
#[derive(Debug, Default)]
struct EarlierSightings {
    /// The number of measurements in a row in which each process has hidden its open files.
    hidden: BTreeMap<i32, u32>,
    processor: Processor,
}

#[derive(Debug, Clone)]
pub(super) struct Watch {
    workspace: PathBuf,
    writes: Vec<PathBuf>,
    workspace_bytes: u64,
    resources: Resources,
    reach: Reach,
    exceeded: Arc<Mutex<Option<String>>>,
    /// Ticks since [`Watch::terminate`]; 0 before it.
    ticks_ending: Arc<AtomicU32>,
}

impl Watch {
    pub(super) fn new(policy: &Policy, reach: Reach) -> Self {
        Watch {
            workspace: policy.workspace.clone(),
            writes: policy.writes.clone(),
            workspace_bytes: policy.workspace_bytes,
            resources: policy.resources.clone(),
            reach,
            exceeded: Arc::default(),
            ticks_ending: Arc::default(),
        }
    }

    /// Starts the checks, in a thread that lives as long as this process.
    pub(super) fn begin(&self) {
        let watch = self.clone();
        std::thread::spawn(move || {
            let mut seen = EarlierSightings::default();
            for tick in 0_u32.. {
                std::thread::sleep(TICK);
                if let Err(error) = watch.check(tick, &mut seen) {
                    watch.exceed(format!("it can't be watched: {error}"));
                }
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

    fn check(&self, tick: u32, seen: &mut EarlierSightings) -> io::Result<()> {
        if self.ticks_ending.load(Ordering::Relaxed) > 0
            && self.ticks_ending.fetch_add(1, Ordering::Relaxed) > GRACE_TICKS
        {
            self.signal(Signal::SIGKILL);
        }
        let own = own_pid().map_err(io::Error::other)?;
        // The processes are only counted at first, since reading each of them takes too long during
        // a fork bomb.
        let pids: Vec<i32> = match self.reach {
            Reach::Namespace => process_ids()?.filter(|pid| *pid != own).collect(),
            Reach::Descendants => descendants(own)?,
        };
        let (processes, max) = (pids.len() as u64, self.resources.processes);
        if processes > max {
            let limit = SetLimit::of_resources("resources.processes", max);
            self.exceed(format!("the program had {processes} processes, more than {limit}"));
            return Ok(());
        }
        let Running { seconds, threads } = seen.processor.sample(own, &pids)?;
        let max = max.saturating_mul(THREADS_PER_PROCESS);
        if threads > max {
            let processes = self.resources.processes;
            let limit = SetLimit::of_resources("resources.processes", processes);
            self.exceed(format!(
                "its processes had {threads} threads together, more than {THREADS_PER_PROCESS} for each of {limit}"
            ));
            return Ok(());
        }
        let max = self.resources.cpu_seconds;
        // A single process is ended by its own limit, a second earlier.
        if seconds > max.saturating_add(1) {
            let limit = SetLimit::of_resources("resources.cpu_seconds", max);
            self.exceed(format!(
                "its processes used {seconds} s of processor time together, more than {limit}"
            ));
            return Ok(());
        }
        let memory = usage::memory(&pids, self.resources.memory_bytes)?;
        if !self.fits(memory) {
            return Ok(());
        }
        if tick.is_multiple_of(MEASURE_EVERY_TICKS) { self.measure(&pids, memory, seen) } else { Ok(()) }
    }

    /// Returns true if this much memory is allowed; otherwise kills the program.
    fn fits(&self, memory: u64) -> bool {
        let max = self.resources.memory_bytes;
        if memory > max {
            let limit = SetLimit::of_resources("resources.memory_bytes", max);
            self.exceed(format!("its processes used {memory} bytes of memory together, more than {limit}"));
        }
        memory <= max
    }

    /// Checks the limits that take longer to measure.
    fn measure(
        &self,
        pids: &[i32],
        memory: u64,
        EarlierSightings { hidden, .. }: &mut EarlierSightings,
    ) -> io::Result<()> {
        let writable: Vec<&Path> =
            std::iter::once(&self.workspace).chain(&self.writes).map(PathBuf::as_path).collect();
        let Open { deleted, sockets, hidden: now } = usage::open(pids, &writable, self.resources.file_bytes)?;
        if !self.fits(memory.saturating_add(sockets)) {
            return Ok(());
        }
        hidden.retain(|pid, _| now.contains(pid));
        now.iter().for_each(|pid| *hidden.entry(*pid).or_default() += 1);
        if hidden.values().any(|times| *times > MAX_HIDDEN) {
            self.exceed("one of its processes hides its open files".into());
            return Ok(());
        }
        let (bytes, entries) = match extent(&self.workspace) {
            Ok(extent) => extent,
            Err(error) => {
                self.exceed(format!("the files of its workspace can't be counted: {error}"));
                return Ok(());
            }
        };
        let (bytes, max) = (bytes.saturating_add(deleted), self.workspace_bytes);
        if bytes > max {
            let of_deleted =
                if deleted > 0 { format!(", {deleted} of them in deleted files") } else { String::new() };
            self.exceed(format!(
                "its workspace holds {bytes} bytes{of_deleted}, more than the {max} allowed"
            ));
        } else if entries > MAX_ENTRIES {
            self.exceed(format!("its workspace holds more than {MAX_ENTRIES} files"));
        }
        Ok(())
    }

    /// Kills the program, and records the first reason.
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
                for pid in own_pid().ok().and_then(|own| descendants(own).ok()).into_iter().flatten() {
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
    parse_stat(&stat).ok_or(Error::System("read /proc/self", ErrorKind::InvalidData.into()))
}

/// Reads `pid (name) state parent …`. The name may contain any characters, even parentheses.
fn parse_stat(stat: &str) -> Option<(i32, i32)> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Some((pid, parent))
}

/// The children of a process, their children, and so on.
pub(super) fn descendants(of: i32) -> io::Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in process_ids()? {
        // A process that has ended since it was listed is skipped.
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some((pid, parent)) = parse_stat(&String::from_utf8_lossy(&stat)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = children.remove(&of).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let below = children.remove(pid).unwrap_or_default();
        found.extend(below);
        next += 1;
    }
    Ok(found)
}

/// The numbers of the processes in `/proc`.
fn process_ids() -> io::Result<impl Iterator<Item = i32>> {
    let listed = fs::read_dir("/proc")?.flatten();
    Ok(listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The bytes and entries beneath a directory. Links are not followed, and a file with several names
/// is counted once. A directory that can't be listed, because of its long path or its permissions,
/// is an error.
fn extent(directory: &Path) -> io::Result<(u64, u64)> {
    let (mut bytes, mut entries) = (0_u64, 0);
    let mut linked = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let listed = match fs::read_dir(directory) {
            // The directory was removed, or a file has its name now.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            listed => listed?,
        };
        for entry in listed.flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return Ok((bytes, entries));
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                left.push(entry.path());
            } else if metadata.nlink() == 1 || linked.insert((metadata.dev(), metadata.ino())) {
                // The allocated size: a sparse file has a larger length.
                bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512));
            }
        }
    }
    Ok((bytes, entries))
}
