//! The last stage: gives up every right that the program must not have, reports the applied layers, and becomes
//! the program. Before that, no code of the program runs.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::SigSet,
    },
    unistd::{getgid, getuid, setsid},
};
use shared::agent::{Layer, Resources};

use super::{
    filter,
    handoff::{Error, Handoff, HelperMessage, Policy, send, system},
    outside,
};

/// The user id of the program inside its user namespace: an ordinary user.
const PROGRAM_USER: u32 = 1000;
/// The helper's exit code when a required layer is missing, so that the program must not run.
const REFUSED: u8 = 126;
/// The newest Landlock ABI whose rights are restricted here; an older kernel restricts those it knows.
const LANDLOCK_ABI: ABI = ABI::V9;

/// Paths that every program may read, needed to run at all. Absent ones are skipped.
const SYSTEM_PATHS: [&str; 17] = [
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
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

pub(super) fn run(mut handoff: Handoff) -> Result<ExitCode, Error> {
    setsid().map_err(system("start its own session"))?;
    // The parent blocks signals to wait for them, and a child inherits the blocking.
    SigSet::empty().thread_set_mask().map_err(system("unblock signals"))?;
    // Enter by path, to get the writable mount of the workspace.
    std::env::set_current_dir(&handoff.policy.workspace)
        .map_err(|error| Error::System("enter the workspace", error))?;
    if handoff.mapped {
        let (uid, gid) = (getuid(), getgid());
        unshare(CloneFlags::CLONE_NEWUSER).map_err(system("give up its rights in the namespaces"))?;
        outside::map_user(PROGRAM_USER, uid, gid)
            .map_err(|error| Error::System("become an ordinary user", error))?;
    }
    prctl::set_no_new_privs().map_err(system("forbid new privileges"))?;
    let (name, arguments) = handoff.policy.command.split_first().map_or(("", &[][..]), |(n, a)| (n, a));
    let mut program = Command::new(name);
    program.args(arguments).env_clear().envs(&handoff.policy.env);
    let name = name.to_owned();

    if handoff.wants(Layer::Landlock) {
        match landlock(&handoff.policy, handoff.has(Layer::PidNamespace)) {
            Ok(Ok(detail)) => handoff.applied(Layer::Landlock, detail),
            Ok(Err(reason)) => handoff.missing(Layer::Landlock, reason),
            Err(error) => handoff.missing(Layer::Landlock, error.to_string()),
        }
    }
    if handoff.wants(Layer::Rlimits) {
        match rlimits(&handoff.policy.resources, handoff.mapped) {
            Ok(detail) => handoff.applied(Layer::Rlimits, detail),
            Err(errno) => handoff.missing(Layer::Rlimits, errno.to_string()),
        }
    }
    // Last, since the filter denies calls that the other layers need.
    if handoff.wants(Layer::Seccomp) {
        match filter::apply(handoff.policy.network) {
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

/// Applies Landlock. Returns what it enforces, or why it enforces nothing.
fn landlock(policy: &Policy, own_proc: bool) -> Result<Result<String, String>, RulesetError> {
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
        .add_rules(path_beneath_rules(SYSTEM_PATHS, AccessFs::from_read(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(&policy.reads, AccessFs::from_read(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?;
    if policy.network {
        created = created.add_rules(path_beneath_rules(NETWORK_PATHS, open))?;
    }
    if own_proc {
        created = created.add_rules(path_beneath_rules(["/proc"], open))?;
    }
    let status = created.restrict_self()?;
    let tcp = if policy.network { "" } else { " TCP," };
    Ok(match (status.ruleset, status.landlock) {
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available { effective_abi, .. },
        ) => Ok(format!("ABI {}: files,{tcp} signals, abstract sockets", effective_abi as i32)),
        (_, LandlockStatus::NotEnabled) => Err("Landlock is switched off in this kernel".into()),
        (_, LandlockStatus::NotImplemented) => Err("this kernel has no Landlock".into()),
        (RulesetStatus::NotEnforced, LandlockStatus::Available { .. }) => {
            Err("this kernel enforces none of the rules".into())
        }
    })
}

fn rlimits(resources: &Resources, mapped: bool) -> Result<String, nix::Error> {
    let Resources { memory_bytes, cpu_seconds, file_bytes, open_files, processes } = *resources;
    // The soft limit sends SIGXCPU one second before the hard limit kills.
    setrlimit(Resource::RLIMIT_CPU, cpu_seconds, cpu_seconds.saturating_add(1))?;
    for (resource, limit) in [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, file_bytes),
        (Resource::RLIMIT_NOFILE, open_files),
        (Resource::RLIMIT_AS, memory_bytes),
    ] {
        setrlimit(resource, limit, limit)?;
    }
    if mapped {
        // Within a user namespace only its own processes count; outside, all processes of the user would.
        setrlimit(Resource::RLIMIT_NPROC, processes, processes)?;
    }
    Ok(format!(
        "memory {memory_bytes} bytes and processor time {cpu_seconds} s per process, files of {file_bytes} bytes, \
         {open_files} open files, {processes} processes"
    ))
}
