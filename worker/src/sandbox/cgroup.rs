//! A cgroup (version 2) for each program, if the machine lets the worker create cgroups. The kernel
//! then bounds the memory and the number of all processes of the program together, and kills them
//! together. A worker can create cgroups beneath its own if that is delegated to it (systemd:
//! `Delegate=yes`), or beneath one that its settings name.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::agent::Resources;
use host::random::Random;

/// The processes of the sandbox itself, with their threads. They are in the cgroup of their
/// program.
const OWN_PROCESSES: u64 = 8;
/// The cgroup that the worker moves itself to. A cgroup with processes can't give controllers to
/// the cgroups beneath it.
const OWN_CGROUP: &str = "trellis-worker";
/// `PIDS_MAX` of the kernel.
const MAX_PIDS: u64 = 4 << 20;
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// The beginning of the name of a program's cgroup. The number of the worker's process and a random
/// number follow.
const PREFIX: &str = "trellis-";
/// The number of tries to remove a cgroup, since killed processes take a moment to end.
const REMOVE_TRIES: u32 = 100;
const REMOVE_EVERY: Duration = Duration::from_millis(20);

/// The cgroup beneath which a worker creates cgroups.
#[derive(Debug, Clone)]
pub(super) struct Cgroups {
    parent: PathBuf,
}

/// The cgroup of one program.
#[derive(Debug)]
pub(super) struct Cgroup(PathBuf);

impl Cgroups {
    /// Prepares the named cgroup, or the worker's own. The error is the reason why there are no
    /// cgroups.
    pub(super) fn find(named: Option<&Path>) -> Result<Self, String> {
        let parent = match named {
            Some(named) => named.to_owned(),
            None => own_cgroup()?,
        };
        let shown = parent.display();
        let available = fs::read_to_string(parent.join("cgroup.controllers"))
            .map_err(|error| format!("`{shown}` is not a cgroup of version 2: {error}"))?;
        let is_available = |controller: &&str| available.split_whitespace().any(|name| name == *controller);
        if !CONTROLLERS.iter().all(is_available) {
            return Err(format!("the controllers memory and pids are not delegated to `{shown}`"));
        }
        let delegated = match named {
            Some(_) => Ok(()),
            None => move_out(&parent),
        };
        let delegated = delegated.and_then(|()| {
            fs::write(parent.join("cgroup.subtree_control"), "+memory +pids").inspect_err(|_| {
                if named.is_none() {
                    move_back(&parent);
                }
            })
        });
        delegated.map_err(|error| format!("`{shown}` is not delegated to the worker: {error}"))?;
        remove_leftovers(&parent);
        Ok(Cgroups { parent })
    }

    /// Creates the cgroup of a program, with its limits.
    pub(super) fn make(&self, resources: &Resources) -> Result<Cgroup, String> {
        let name = format!("{PREFIX}{}-{:032x}", std::process::id(), Random::System.bits());
        let cgroup = Cgroup(self.parent.join(name));
        let set = |name: &str, value: String| fs::write(cgroup.0.join(name), value);
        // This fails if the directory exists, since that cgroup belongs to another program.
        let made = fs::create_dir(&cgroup.0).and_then(|()| {
            set("memory.max", resources.memory_bytes.to_string())?;
            set("memory.oom.group", "1".to_owned())?;
            set("pids.max", pids_max(resources.processes))?;
            // The file is missing on a kernel without swap.
            match set("memory.swap.max", "0".to_owned()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            }
        });
        made.map_err(|error| format!("a cgroup could not be created: {error}"))?;
        Ok(cgroup)
    }
}

impl Cgroup {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns true if the kernel killed the program because it needed more memory.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        events.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|times| times.trim() != "0"))
    }

    /// Kills the processes that are left in it, and removes it.
    pub(super) async fn remove(self) {
        if let Err(error) = fs::write(self.0.join("cgroup.kill"), "1") {
            tracing::warn!(%error, cgroup = %self.0.display(), "a cgroup could not be killed");
        }
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            tokio::time::sleep(REMOVE_EVERY).await;
        }
        tracing::warn!(cgroup = %self.0.display(), "a cgroup could not be removed");
    }
}

/// The value for `pids.max`. The kernel rejects a number above its own maximum, so such a number
/// becomes no bound.
fn pids_max(processes: u64) -> String {
    match processes.saturating_add(OWN_PROCESSES) {
        pids @ ..MAX_PIDS => pids.to_string(),
        _ => "max".to_owned(),
    }
}

/// Moves this process into a cgroup, together with all processes that it will start. Returns the
/// limits, as text.
pub(super) fn enter(cgroup: &Path, resources: &Resources) -> Result<String, String> {
    let moved = fs::write(cgroup.join("cgroup.procs"), "0");
    moved.map_err(|error| format!("the cgroup could not be entered: {error}"))?;
    let processes = match pids_max(resources.processes).as_str() {
        "max" => "any number of processes".to_owned(),
        _ => format!("{} processes, their threads included,", resources.processes),
    };
    Ok(format!("{} bytes of memory and {processes} for all together", resources.memory_bytes))
}

/// Moves the worker into a cgroup beneath its own. With other processes in its cgroup that would
/// not help, since the kernel would still give no controllers to the cgroups beneath; then this is
/// an error.
fn move_out(parent: &Path) -> io::Result<()> {
    let own = std::process::id().to_string();
    let inside = fs::read_to_string(parent.join("cgroup.procs"))?;
    if inside.lines().any(|pid| pid.trim() != own) {
        return Err(io::Error::other("there are other processes in it"));
    }
    let beneath = parent.join(OWN_CGROUP);
    match fs::create_dir(&beneath) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::write(beneath.join("cgroup.procs"), own)
}

/// Moves the worker back. After a failure it stays where it is, which does no harm.
fn move_back(parent: &Path) {
    let moved = fs::write(parent.join("cgroup.procs"), std::process::id().to_string());
    let removed = moved.and_then(|()| fs::remove_dir(parent.join(OWN_CGROUP)));
    if let Err(error) = removed {
        tracing::warn!(%error, cgroup = %parent.display(), "the worker stays in a cgroup of its own");
    }
}

/// Removes the cgroups of workers that have ended. A cgroup that still has processes can't be
/// removed, and stays.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let worker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let worker = worker.and_then(|(pid, _)| pid.parse::<u32>().ok());
        if worker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The directory of this process's cgroup.
fn own_cgroup() -> Result<PathBuf, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("`{path}`: {error}"));
    let within = read("/proc/self/cgroup")?;
    let within = within.lines().find_map(|line| line.strip_prefix("0::/"));
    let within = within.ok_or("this machine has no cgroups of version 2")?;
    let mounts = read("/proc/self/mountinfo")?;
    // `id parent device root at options … - type source options`
    let mount_point = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then_some(mount.split(' ').nth(4)?)
    });
    let mount_point = mount_point.ok_or("cgroups of version 2 are not mounted on this machine")?;
    // In a container with a shared namespace the path belongs to another one, and the directory
    // does not exist.
    Ok(Path::new(mount_point).join(within.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: after a move that did not help, the worker is back in its operator's cgroup, and its
    /// own cgroup is removed.
    #[test]
    fn s4_a_worker_that_may_not_divide_its_cgroup_moves_back() {
        let parent = std::env::temp_dir().join(format!("trellis-moved-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        let (own, procs) = (std::process::id().to_string(), parent.join("cgroup.procs"));
        fs::write(&procs, format!("{own}\n1\n")).unwrap();
        assert!(move_out(&parent).unwrap_err().to_string().contains("other processes"));
        assert!(!parent.join(OWN_CGROUP).exists());
        fs::write(&procs, format!("{own}\n")).unwrap();
        move_out(&parent).unwrap();
        let moved = parent.join(OWN_CGROUP).join("cgroup.procs");
        assert_eq!(fs::read_to_string(&moved).unwrap(), own);
        // Imitates the kernel: a process leaves its old cgroup, and the files of a cgroup do not
        // prevent its removal.
        fs::remove_file(&moved).unwrap();
        fs::write(&procs, "").unwrap();
        move_back(&parent);
        assert_eq!(fs::read_to_string(&procs).unwrap(), own);
        assert!(!parent.join(OWN_CGROUP).exists());
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn s4_a_cgroup_without_the_controllers_is_not_used() {
        let directory = std::env::temp_dir().join(format!("trellis-cgroup-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let why = Cgroups::find(Some(&directory)).unwrap_err();
        assert!(why.contains("is not a cgroup of version 2"), "{why}");
        fs::write(directory.join("cgroup.controllers"), "cpu pids\n").unwrap();
        let why = Cgroups::find(Some(&directory)).unwrap_err();
        assert!(why.contains("not delegated"), "{why}");
        fs::write(directory.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let all = Cgroups::find(Some(&directory)).unwrap();
        let cgroup = all.make(&Resources::default()).unwrap();
        assert_ne!(all.make(&Resources::default()).unwrap().path(), cgroup.path());
        let read = |name: &str| fs::read_to_string(cgroup.path().join(name)).unwrap();
        assert_eq!(fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap(), "+memory +pids");
        assert_eq!(
            (read("memory.max"), read("memory.swap.max")),
            ((1_u64 << 30).to_string(), "0".to_owned())
        );
        assert_eq!((read("pids.max").as_str(), read("memory.oom.group").as_str()), ("72", "1"));
        assert!(!cgroup.ran_out_of_memory());
        fs::write(cgroup.path().join("memory.events"), "low 0\noom 1\noom_kill 0\n").unwrap();
        assert!(!cgroup.ran_out_of_memory());
        fs::write(cgroup.path().join("memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        assert!(cgroup.ran_out_of_memory());
        fs::remove_dir_all(&directory).unwrap();
    }

    /// A plain directory imitates a cgroup: the kernel, too, removes only one without children and
    /// processes.
    #[test]
    fn s4_only_the_cgroups_of_a_dead_worker_are_removed() {
        let directory = std::env::temp_dir().join(format!("trellis-leftovers-{}", std::process::id()));
        let own = format!("trellis-{}-1", std::process::id());
        // No process has this number, since it is above the highest.
        let (dead, used) = ("trellis-4194305-0".to_owned(), "trellis-4194305-1".to_owned());
        let others = ["trellis-worker".to_owned(), "other-4194305-0".to_owned(), own, used.clone()];
        for name in others.iter().chain([&dead]) {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        fs::write(directory.join(&used).join("a-process"), "").unwrap();
        fs::write(directory.join("cgroup.controllers"), "memory pids\n").unwrap();
        Cgroups::find(Some(&directory)).unwrap();
        assert!(!directory.join(&dead).exists());
        for name in others {
            assert!(directory.join(&name).exists(), "{name}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn s4_the_worker_stays_where_it_is_if_moving_would_not_help() {
        let directory = std::env::temp_dir().join(format!("trellis-move-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cgroup.procs"), format!("1\n{}\n", std::process::id())).unwrap();
        assert!(move_out(&directory).unwrap_err().to_string().contains("other processes"));
        assert!(!directory.join(OWN_CGROUP).exists());
        fs::write(directory.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        move_out(&directory).unwrap();
        assert!(directory.join(OWN_CGROUP).join("cgroup.procs").exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
