//! What the program sees of the file system, as far as mounts decide it: a `/proc` with its own processes
//! only, and everything but the workspace read-only. Landlock bounds what is opened; this bounds what is
//! changed without being opened, such as modes and times.

use std::{fs, path::Path};

use nix::mount::{MsFlags, mount};

use super::handoff::{Error, system};

/// The lowest bound a kernel (since 6.14) takes for the processes of a namespace. The profile's own is
/// lower, but is only looked at now and then where the kernel does not count those of root.
const LOWEST_BOUND: u64 = 301;
/// Nothing that is not said.
const NONE: Option<&str> = None;

/// Makes it so, and says how far that went.
pub(super) fn own(workspace: &Path, processes: u64) -> Result<String, Error> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .map_err(system("keep its mounts to itself"))?;
    let held = [mount(Some(workspace), workspace, NONE, MsFlags::MS_BIND, NONE)];
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let bound = LOWEST_BOUND.max(processes.saturating_add(2));
    let proc = match mount(Some("proc"), "/proc", Some("proc"), flags, NONE) {
        Ok(()) => match fs::write("/proc/sys/kernel/pid_max", bound.to_string()) {
            Ok(()) => format!("its own /proc, never more than {bound} processes"),
            Err(_) => "its own /proc".to_owned(),
        },
        Err(errno) => format!("no /proc of its own ({errno})"),
    };
    let writable = if held[0].is_ok() { read_only(workspace) } else { vec!["/".to_owned()] };
    Ok(match writable.as_slice() {
        [] => format!("{proc}; all but the workspace is read-only"),
        some => format!("{proc}; not made read-only: {}", some.join(", ")),
    })
}

/// Every mount but the workspace's; those that could not be changed.
fn read_only(workspace: &Path) -> Vec<String> {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return vec!["/".to_owned()] };
    let mut left = Vec::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(4);
        let (Some(at), Some(options)) = (fields.next(), fields.next()) else { continue };
        let at = unescaped(at);
        // The last step still has to write who it is into the second.
        if Path::new(&at) == workspace || at == "/proc" {
            continue;
        }
        let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
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
        // One that is beneath another, or hidden by it, can't be reached and needs nothing.
        if let Err(errno) = mount(NONE, at.as_str(), NONE, flags, NONE)
            && errno != nix::Error::EINVAL
            && errno != nix::Error::ENOENT
        {
            left.push(at);
        }
    }
    left
}

/// `mountinfo` writes blanks and such as three octal digits.
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
