//! The mounts that the program sees: a `/proc` with only its own processes, and everything but the
//! workspace read-only. Landlock restricts which files can be opened. Read-only mounts also prevent
//! changes without an open file, such as those of modes and times.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::mount::{MsFlags, mount};

use super::handoff::{Error, Policy, passes, system};

/// The lowest `pid_max` that a kernel (since 6.14) accepts for a namespace. The profile's limit is
/// lower. The kernel does not count the processes of root, and for those only the watch checks that
/// limit, at intervals.
const LOWEST_PID_MAX: u64 = 301;
/// No source, type or options: null for `mount(2)`.
const NONE: Option<&str> = None;

/// The result of setting up the mounts.
#[derive(Debug)]
pub(super) enum Mounts {
    /// All mounts are set up; the text is for the report.
    Complete(String),
    /// These mounts could not be made read-only.
    Writable(String),
    /// Its own `/proc` could not be mounted, for this reason.
    NoProc(String),
}

/// Sets up the mounts.
pub(super) fn set_up(policy: &Policy) -> Result<Mounts, Error> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .map_err(system("make its mounts private"))?;
    // The list of mounts has resolved paths. A path that can't be resolved can't be bound either.
    let meant = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let writable: Vec<PathBuf> =
        std::iter::once(&policy.workspace).chain(&policy.writes).map(meant).collect();
    let bound = |path: &PathBuf| mount(Some(path), path, NONE, MsFlags::MS_BIND, NONE).is_ok();
    let all_bound = writable.iter().all(bound);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(errno) = mount(Some("proc"), "/proc", Some("proc"), flags, NONE) {
        if passes(errno) {
            return Err(Error::System("mount a /proc of its own", errno.into()));
        }
        return Ok(Mounts::NoProc(format!("this machine does not let it mount a /proc of its own: {errno}")));
    }
    let pid_max = LOWEST_PID_MAX.max(policy.resources.processes.saturating_add(2));
    let proc = match fs::write("/proc/sys/kernel/pid_max", pid_max.to_string()) {
        Ok(()) => format!("its own /proc, never more than {pid_max} processes"),
        Err(_) => "its own /proc".to_owned(),
    };
    let left = if all_bound { read_only(&writable) } else { vec!["/".to_owned()] };
    Ok(match left.as_slice() {
        [] => Mounts::Complete(format!("{proc}; everything but the workspace is read-only")),
        some => Mounts::Writable(some.join(", ")),
    })
}

/// Makes every mount but these read-only. Returns the mounts that could not be changed.
fn read_only(writable: &[PathBuf]) -> Vec<String> {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return vec!["/".to_owned()] };
    let mut left = Vec::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(4);
        let (Some(at), Some(options)) = (fields.next(), fields.next()) else { continue };
        let at = unescaped(at);
        // The last stage still writes its user mapping to `/proc`.
        if writable.iter().any(|path| path == Path::new(&at)) || at == "/proc" {
            continue;
        }
        let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        // A mount with neither option has strict times, which a user namespace may not change.
        if !options.split(',').any(|option| option == "relatime" || option == "noatime") {
            flags |= MsFlags::MS_STRICTATIME;
        }
        for option in options.split(',') {
            flags |= match option {
                "nosuid" => MsFlags::MS_NOSUID,
                "nodev" => MsFlags::MS_NODEV,
                "noexec" => MsFlags::MS_NOEXEC,
                "noatime" => MsFlags::MS_NOATIME,
                "nodiratime" => MsFlags::MS_NODIRATIME,
                "relatime" => MsFlags::MS_RELATIME,
                _ => MsFlags::empty(),
            };
        }
        // A mount hidden by another one fails with these errors; it can't be reached, so it may stay as it is.
        if let Err(errno) = mount(NONE, at.as_str(), NONE, flags, NONE)
            && errno != nix::Error::EINVAL
            && errno != nix::Error::ENOENT
        {
            left.push(at);
        }
    }
    left
}

/// Decodes a path: `mountinfo` writes spaces and other special characters as a backslash and three
/// octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => plain.push_str(part),
        }
    }
    plain
}
