//! The last stage: gives up every right that the program must not have, reports the applied layers, and becomes
//! the program. Before that, no code of the program runs.

use std::{
    fmt,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use domain::agent::{Layer, Resources};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        signal::SigSet,
    },
    unistd::{getgid, getuid, setsid},
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::{
    filter,
    handoff::{Error, Handoff, HelperMessage, Policy, send, system},
    outside,
};

/// The user id of the program inside its user namespace: an ordinary user.
const PROGRAM_USER: u32 = 1000;
/// The helper's exit code when a required layer is missing, so that the program must not run.
const REFUSED: u8 = 126;
/// The newest Landlock ABI whose rights are restricted here. An older kernel restricts the rights
/// that it knows.
const LANDLOCK_ABI: ABI = ABI::V9;

/// Paths that every program may read, since it needs them to run. Missing ones are skipped.
pub(super) const SYSTEM_PATHS: [&str; 17] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
];
/// Paths that a program with network access may also read: name resolution and ports.
const NETWORK_PATHS: [&str; 6] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols"];
const DEVICES: [&str; 4] = ["/dev/null", "/dev/full", "/dev/random", "/dev/urandom"];
/// A program that may write to this device can share memory through it.
const ZEROS: &str = "/dev/zero";

pub(super) fn run(mut handoff: Handoff) -> Result<ExitCode, Error> {
    setsid().map_err(system("start its own session"))?;
    // The parent blocks signals to wait for them, and a child inherits the blocking.
    SigSet::empty().thread_set_mask().map_err(system("unblock signals"))?;
    // Entered by path, to get the writable mount of the workspace.
    std::env::set_current_dir(&handoff.policy.workspace)
        .map_err(|error| Error::System("enter the workspace", error))?;
    if handoff.mapped {
        let (uid, gid) = (getuid(), getgid());
        unshare(CloneFlags::CLONE_NEWUSER).map_err(system("give up its rights in the namespaces"))?;
        outside::map_user(PROGRAM_USER, uid, gid)
            .map_err(|error| Error::System("become an ordinary user", error))?;
    }
    prctl::set_no_new_privs().map_err(system("forbid new privileges"))?;
    // If the worker is root, its program must not have the rights of root, with or without
    // namespaces. After `no_new_privs` it can't get them back.
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|errno| Error::System("give up its capabilities", errno.into()))?;
    let (name, arguments) = handoff.policy.command.split_first().map_or(("", &[][..]), |(n, a)| (n, a));
    let mut program = Command::new(name);
    program.args(arguments).env_clear().envs(&handoff.policy.env);
    let name = name.to_owned();

    let is_applied = |layer| handoff.report.applied.iter().any(|applied| applied.layer == layer);
    let around = OuterLayers {
        own_processes: handoff.own_proc,
        read_only: is_applied(Layer::PidNamespace),
        counts_shared: is_applied(Layer::Cgroup),
    };
    if handoff.wants(Layer::Landlock) {
        match landlock(&handoff.policy, around) {
            Ok(Ok(detail)) => handoff.applied(Layer::Landlock, detail),
            Ok(Err(reason)) => handoff.missing(Layer::Landlock, reason),
            Err(error) => handoff.missing(Layer::Landlock, error.to_string()),
        }
    }
    if handoff.wants(Layer::Rlimits) {
        match rlimits(&handoff.policy, handoff.mapped, handoff.runs_as_root) {
            Ok(detail) => handoff.applied(Layer::Rlimits, detail),
            Err(errno) => handoff.missing(Layer::Rlimits, errno.to_string()),
        }
    }
    // Last, since the filter denies calls that the other layers need.
    if handoff.wants(Layer::Seccomp) {
        match filter::apply(handoff.policy.network, around.counts_shared) {
            Ok(detail) => handoff.applied(Layer::Seccomp, detail),
            Err(error) => handoff.missing(Layer::Seccomp, error.to_string()),
        }
    }
    let Handoff { policy, report, .. } = handoff;
    if report.missing.iter().any(|missing| policy.requires.contains(&missing.layer)) {
        send(&HelperMessage::Refused(report));
        return Ok(ExitCode::from(REFUSED));
    }
    send(&HelperMessage::Ready(report));
    Err(Error::Program { program: name, source: program.exec() })
}

/// The results of earlier layers on which later ones rely.
#[derive(Debug, Clone, Copy)]
struct OuterLayers {
    /// The program can see and signal only its own processes.
    own_processes: bool,
    /// Everything but the program's writable paths is mounted read-only.
    read_only: bool,
    /// The kernel counts the memory that processes share.
    counts_shared: bool,
}

/// Applies Landlock. Returns the rules that it enforces, or the reason why they are not enough.
fn landlock(policy: &Policy, around: OuterLayers) -> Result<Result<String, String>, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
        .scope(Scope::from_all(LANDLOCK_ABI))?;
    if !policy.network {
        rules = rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let open = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut created = rules
        .create()?
        .add_rules(path_beneath_rules([&policy.workspace], AccessFs::from_all(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(&policy.writes, AccessFs::from_all(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(SYSTEM_PATHS, AccessFs::from_read(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(&policy.reads, AccessFs::from_read(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(
            [ZEROS],
            if around.counts_shared {
                AccessFs::ReadFile | AccessFs::WriteFile
            } else {
                AccessFs::ReadFile.into()
            },
        ))?;
    if policy.network {
        created = created.add_rules(path_beneath_rules(NETWORK_PATHS, open))?;
    }
    if around.own_processes {
        created = created.add_rules(path_beneath_rules(["/proc"], open))?;
    }
    let status = created.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available { effective_abi, .. },
        ) => enforced(effective_abi as i32, policy.network, around),
        (_, LandlockStatus::NotEnabled) => Err("Landlock is switched off in this kernel".into()),
        (_, LandlockStatus::NotImplemented) => Err("this kernel has no Landlock".into()),
        (RulesetStatus::NotEnforced, LandlockStatus::Available { .. }) => {
            Err("this kernel enforces none of the rules".into())
        }
    })
}

/// The rules that Landlock of this version enforces, or its gaps that no other layer closes.
fn enforced(abi: i32, network: bool, around: OuterLayers) -> Result<String, String> {
    let lacks = [
        (3, around.read_only, "it can empty files that it may only read"),
        (6, around.own_processes, "it can send signals to other processes"),
    ];
    let lacks = lacks.into_iter().filter(|(since, provided, _)| abi < *since && !provided);
    let lacks: Vec<&str> = lacks.map(|(_, _, what)| what).collect();
    if !lacks.is_empty() {
        return Err(format!("only in part, as this kernel has version {abi} of it: {}", lacks.join("; ")));
    }
    let tcp = if abi >= 4 && !network { ", TCP" } else { "" };
    let scopes = if abi >= 6 { ", signals, abstract sockets" } else { "" };
    Ok(format!("ABI {abi}: files{tcp}{scopes}"))
}

/// Sets the limits of the process. Only root may raise a limit above the worker's own. So a larger
/// limit of the profile becomes that of the worker, and the report mentions it.
fn rlimits(policy: &Policy, mapped: bool, runs_as_root: bool) -> Result<String, nix::Error> {
    let Resources { memory_bytes: _, cpu_seconds, file_bytes, open_files, processes } = policy.resources;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // The soft limit sends SIGXCPU one second before the hard limit kills.
    let killed = within(cpu_seconds.saturating_add(1), getrlimit(Resource::RLIMIT_CPU)?.1);
    let own = if killed.asked.is_some() { killed.limit.saturating_sub(1) } else { u64::MAX };
    let cpu_seconds = within(cpu_seconds, own);
    setrlimit(Resource::RLIMIT_CPU, cpu_seconds.limit, killed.limit)?;
    let bound = |resource: Resource, asked: u64| -> Result<Bound, nix::Error> {
        let bound = within(asked, getrlimit(resource)?.1);
        setrlimit(resource, bound.limit, bound.limit)?;
        Ok(bound)
    };
    let file_bytes = bound(Resource::RLIMIT_FSIZE, file_bytes)?;
    let open_files = bound(Resource::RLIMIT_NOFILE, open_files)?;
    let address_space_bytes = bound(Resource::RLIMIT_AS, policy.address_space_bytes)?;
    // In a user namespace the kernel counts only the processes of that namespace. Outside of one,
    // all processes of the user would be counted. Processes of root are never counted.
    let counted = mapped && !runs_as_root;
    let processes = if counted {
        format!("{} processes", bound(Resource::RLIMIT_NPROC, processes)?)
    } else {
        "no limit on processes".to_owned()
    };
    Ok(format!(
        "an address space of {address_space_bytes} bytes and processor time {cpu_seconds} s per process, files of {file_bytes} bytes, \
         {open_files} open files, {processes}"
    ))
}

/// A limit, and the requested one if that is larger than the worker's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    limit: u64,
    asked: Option<u64>,
}

fn within(asked: u64, own: u64) -> Bound {
    Bound { limit: asked.min(own), asked: (asked > own).then_some(asked) }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.limit)?;
        match self.asked {
            Some(asked) => write!(f, " (the worker's own limit, instead of {asked})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_a_limit_is_never_larger_than_the_workers_own() {
        assert_eq!(within(100, 256).to_string(), "100");
        assert_eq!(within(256, 256).to_string(), "256");
        assert_eq!(within(1024, 256).to_string(), "256 (the worker's own limit, instead of 1024)");
        assert_eq!(within(u64::MAX, 256).limit, 256);
    }

    #[test]
    fn s4_an_old_landlock_is_reported_with_its_version() {
        let around =
            |own_processes, read_only| OuterLayers { own_processes, read_only, counts_shared: false };
        for (abi, network, around, expected) in [
            (7, false, around(false, false), "ABI 7: files, TCP, signals, abstract sockets"),
            (6, true, around(false, false), "ABI 6: files, signals, abstract sockets"),
            (5, false, around(true, false), "ABI 5: files, TCP"),
            (3, false, around(true, false), "ABI 3: files"),
            (1, false, around(true, true), "ABI 1: files"),
        ] {
            assert_eq!(enforced(abi, network, around).as_deref(), Ok(expected));
        }
        for (abi, around, lacks) in [
            (5, around(false, true), "it can send signals to other processes"),
            (2, around(true, false), "it can empty files that it may only read"),
            (2, around(false, false), "it can empty files that it may only read; it can send signals"),
        ] {
            let why = enforced(abi, false, around).unwrap_err();
            assert!(why.contains(lacks) && why.starts_with("only in part"), "{why}");
        }
    }
}
