//! The resources that the processes of a program use together, as the kernel shows them in `/proc`:
//! memory, processor time, threads, and the disk space of files that are deleted and still open. A
//! figure that can't be read is an error, since the program can't be bounded without it. Only a
//! process that has ended is skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use nix::libc;

/// The unit of times in `/proc`: a hundredth of a second on every Linux.
const TICKS_PER_SECOND: u64 = 100;
/// The most bytes of the list of a process's mappings. Large runtimes have a few hundred KiB.
const MAX_MAPS_BYTES: u64 = 4 << 20;
/// The bytes that a socket may hold in memory: 208 KiB at the usual limit of its buffer, and a
/// message that exceeds it.
const SOCKET_BYTES: u64 = 256 << 10;

/// Bytes of memory that the processes use: in memory, swapped out, and for their page tables.
/// Shared pages are counted once, if the kernel reports that.
pub(super) fn memory(pids: &[i32], limit: u64) -> io::Result<u64> {
    let at_most = sum(pids, resident)?;
    if at_most <= limit {
        return Ok(at_most);
    }
    // Shared pages were counted several times. Counting them once takes longer, so it is done only
    // now.
    sum(pids, |pid| proportional(pid).map_or_else(|| resident(pid), Ok))
}

fn sum(pids: &[i32], of: impl Fn(i32) -> io::Result<u64>) -> io::Result<u64> {
    pids.iter().try_fold(0_u64, |sum, pid| Ok(sum.saturating_add(of(*pid)?)))
}

fn resident(pid: i32) -> io::Result<u64> {
    Ok(sum_of(&read(pid, "status")?, &["VmRSS:", "VmSwap:", "VmPTE:"]))
}

fn proportional(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let tables = sum_of(&read(pid, "status").ok()?, &["VmPTE:"]);
    Some(sum_of(&rollup, &["Pss:", "SwapPss:"]).saturating_add(tables))
}

/// A file of a process in `/proc`; empty if the process has ended.
fn read(pid: i32, name: &str) -> io::Result<String> {
    match fs::read(format!("/proc/{pid}/{name}")) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if has_ended(&error) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The sum of these lines, `Name:   123 kB`, in bytes.
fn sum_of(text: &str, names: &[&str]) -> u64 {
    let value = |line: &str| {
        let name = names.iter().find(|name| line.starts_with(**name))?;
        line[name.len()..].split_whitespace().next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(value).fold(0, u64::saturating_add).saturating_mul(1024)
}

/// The processor time of all processes that a program ever had. The time of a child reaches its
/// parent when the parent waits for it. A parent that ignores the end of its children never gets
/// their times, so the last figure of each process is kept too.
#[derive(Debug, Default)]
pub(super) struct Processor {
    /// Ticks of each process by its number and its start.
    seen: BTreeMap<(i32, u64), u64>,
    /// Ticks of processes that have ended, as last seen.
    ended: u64,
}

/// The processor time and the threads of all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) seconds: u64,
    pub(super) threads: u64,
}

impl Processor {
    /// `reaper` is the process that reaps the orphans.
    pub(super) fn sample(&mut self, reaper: i32, pids: &[i32]) -> io::Result<Running> {
        let (mut now, mut threads, mut waited_for) = (BTreeMap::new(), 0_u64, 0_u64);
        for pid in pids {
            let Some(stat) = Stat::of(*pid)? else { continue };
            now.insert((*pid, stat.start), stat.own);
            waited_for = waited_for.saturating_add(stat.children);
            threads = threads.saturating_add(stat.threads);
        }
        waited_for = waited_for.saturating_add(Stat::of(reaper)?.map_or(0, |stat| stat.children));
        let gone = self.seen.iter().filter(|(process, _)| !now.contains_key(process));
        self.ended = gone.map(|(_, ticks)| *ticks).fold(self.ended, u64::saturating_add);
        self.seen = now;
        let alive = self.seen.values().copied().fold(0, u64::saturating_add);
        // Both figures are for the same ended processes, and each misses some of them. So the
        // larger one is taken, and not the sum.
        let ticks = alive.saturating_add(waited_for.max(self.ended));
        Ok(Running { seconds: ticks / TICKS_PER_SECOND, threads })
    }
}

/// A line `pid (name) state parent …` of numbers.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Ticks of the process itself.
    own: u64,
    /// Ticks of its children that it has waited for.
    children: u64,
    threads: u64,
    start: u64,
}

impl Stat {
    fn of(pid: i32) -> io::Result<Option<Self>> {
        Ok(Self::parse(&read(pid, "stat")?))
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name in front may contain any characters. The first field behind it is the third of
        // the line.
        let behind: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let field = |number: usize| behind.get(number - 3)?.trim().parse::<u64>().ok();
        let both = |number: usize| Some(field(number)?.saturating_add(field(number + 1)?));
        Some(Stat { own: both(14)?, children: both(16)?, threads: field(20)?, start: field(22)? })
    }
}

/// The open files and sockets of the processes.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Disk space of deleted files that a process has open or mapped, or that are in transit
    /// between processes.
    pub(super) deleted: u64,
    /// The bytes that the sockets may hold in memory.
    pub(super) sockets: u64,
    /// The processes whose open files can't be listed.
    pub(super) hidden: BTreeSet<i32>,
}

/// Finds the open files. `largest` is the assumed size of a file that is only mapped, or in
/// transit.
pub(super) fn open(pids: &[i32], writable: &[&Path], largest: u64) -> io::Result<Open> {
    let (mut open, mut mapped) = (BTreeMap::new(), BTreeSet::new());
    let (mut hidden, mut sockets) = (BTreeSet::new(), BTreeMap::new());
    for pid in pids {
        let listed = match fs::read_dir(format!("/proc/{pid}/fd")) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                hidden.insert(*pid);
                continue;
            }
            Err(error) if has_ended(&error) => continue,
            listed => listed?,
        };
        for entry in listed.flatten() {
            // This follows the kernel's own link to the open file, under any present name.
            let Ok(file) = fs::metadata(entry.path()) else { continue };
            if file.is_file() && file.nlink() == 0 {
                open.insert((file.dev(), file.ino()), file.blocks().saturating_mul(512));
            } else if file.file_type().is_socket() {
                let info = entry.file_name();
                let info = read(*pid, &format!("fdinfo/{}", info.to_string_lossy()))?;
                sockets.insert(file.ino(), on_their_way(&info));
            }
        }
        mapped.extend(maps(*pid, MAX_MAPS_BYTES)?.lines().filter_map(|line| deleted_inode(line, writable)));
    }
    let known: BTreeSet<u64> = open.keys().map(|(_, inode)| *inode).collect();
    let unknown = mapped.difference(&known).count() as u64;
    let unknown = sockets.values().fold(unknown, |sum, sent| sum.saturating_add(*sent));
    let deleted =
        open.values().fold(unknown.saturating_mul(largest), |sum, bytes| sum.saturating_add(*bytes));
    Ok(Open { deleted, sockets: (sockets.len() as u64).saturating_mul(SOCKET_BYTES), hidden })
}

/// The mappings of a process; empty if it has ended. A list of more than `max` bytes is an error,
/// since the rest would stay hidden.
fn maps(pid: i32, max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read =
        fs::File::open(format!("/proc/{pid}/maps")).and_then(|file| file.take(max).read_to_end(&mut bytes));
    match read {
        Err(error) if has_ended(&error) => Ok(String::new()),
        // This process hides its open files too, which `open` records.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(String::new()),
        Err(error) => Err(error),
        Ok(read) if read as u64 >= max => Err(io::Error::other("a process has too many mappings")),
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// The number of open files that were sent through a socket and not received yet. No process has
/// them open.
fn on_their_way(info: &str) -> u64 {
    let line = info.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// The inode of a line of `maps`, `range rights offset device inode path`, if it is a deleted file of a writable directory.
fn deleted_inode(line: &str, writable: &[&Path]) -> Option<u64> {
    let path = line.strip_suffix(" (deleted)")?;
    let inode = path.split_whitespace().nth(4)?.parse().ok()?;
    let at = path.find('/')?;
    writable.iter().any(|directory| Path::new(&path[at..]).starts_with(directory)).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_lines_of_proc_are_read_as_the_kernel_writes_them() {
        let status =
            "Name:\tVmRSS: 5\nVmSize:\t  900 kB\nVmRSS:\t     12 kB\nVmSwap:\t 3 kB\nVmPTE:\t 1 kB\n";
        assert_eq!(sum_of(status, &["VmRSS:", "VmSwap:", "VmPTE:"]), 16 << 10);
        let line = "7f00-7f10 rw-s 00000000 fd:01 4711                       /w/a b/file (deleted)";
        assert_eq!(deleted_inode(line, &[Path::new("/w/a b")]), Some(4711));
        assert_eq!(deleted_inode(line, &[Path::new("/w/a")]), None);
        assert_eq!(deleted_inode(line.strip_suffix(" (deleted)").unwrap(), &[Path::new("/w")]), None);
        let anonymous = "7f00-7f10 rw-s 00000000 00:01 12                         /dev/zero (deleted)";
        assert_eq!(deleted_inode(anonymous, &[Path::new("/w")]), None);
    }

    #[test]
    fn s4_the_use_of_this_process_is_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(memory(&[own], u64::MAX).unwrap() > 1 << 20);
        assert!(memory(&[own], 0).unwrap() > 1 << 20);
        let path = std::env::temp_dir().join(format!("trellis-usage-{own}"));
        let file = fs::File::create(&path).unwrap();
        io::Write::write_all(&mut &file, &[1; 1 << 20]).unwrap();
        let before = open(&[own], &[], 1).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(open(&[own], &[], 1).unwrap().deleted >= before.deleted + (1 << 20));
        let pair = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(open(&[own], &[], 1).unwrap().sockets >= before.sockets.max(2 * SOCKET_BYTES));
        drop(pair);
        let running = Processor::default().sample(own, &[own]).unwrap();
        assert!(running.threads >= 2, "{running:?}");
        assert_eq!(on_their_way("pos:\t0\nscm_fds: 3\n"), 3);
        assert_eq!(on_their_way("pos:\t0\n"), 0);
    }

    #[test]
    fn s4_a_list_of_mappings_that_is_too_long_is_not_read_in_part() {
        let own = i32::try_from(std::process::id()).unwrap();
        let whole = maps(own, MAX_MAPS_BYTES).unwrap();
        assert!(whole.contains("[stack]"), "{whole}");
        let error = maps(own, 1000).unwrap_err();
        assert!(error.to_string().contains("too many mappings"), "{error}");
        assert_eq!(maps(i32::MAX, 1000).unwrap(), "", "an ended process has no mappings");
    }

    #[test]
    fn s4_the_time_of_a_process_without_a_waiting_parent_is_counted() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 120 30 5 6 20 0 3 0 4711 1 2 3";
        assert_eq!(Stat::parse(line), Some(Stat { own: 150, children: 11, threads: 3, start: 4711 }));
        let none = i32::MAX;
        let mut processor =
            Processor { seen: BTreeMap::from([((none, 1), 250), ((none - 1, 1), 60)]), ended: 0 };
        assert_eq!(processor.sample(none, &[]).unwrap(), Running { seconds: 3, threads: 0 });
        assert_eq!(processor.sample(none, &[]).unwrap().seconds, 3, "the time of an ended process remains");
    }
}
