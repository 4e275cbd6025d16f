//! The last step: gives up every right the program must not have, says what it is under, and becomes
//! the program. Nothing of the program has run before.

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
    handoff::{Error, Handoff, Policy, Word, say, system},
    outside,
};

/// Nobody in particular.
const USER: u32 = 1000;
/// How the helper ends instead of a program it must not run.
const REFUSED: u8 = 126;
/// The newest rights we know to take away; an older kernel takes those it knows.
const RIGHTS: ABI = ABI::V9;

/// What every program needs to be run at all. What is not there is left out.
const SYSTEM: [&str; 17] = [
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
/// What is needed to find and trust others.
const NETWORK: [&str; 6] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols"];
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

pub(super) fn run(mut handoff: Handoff) -> Result<ExitCode, Error> {
    setsid().map_err(system("have its own session"))?;
    // Whoever started this waits for signals with its own blocked, and a program inherits that.
    SigSet::empty().thread_set_mask().map_err(system("open its signals"))?;
    // By its path, so that it is the mount of it that can be written to.
    std::env::set_current_dir(&handoff.policy.workspace)
        .map_err(|error| Error::System("enter the workspace", error))?;
    if handoff.mapped {
        let (uid, gid) = (getuid(), getgid());
        unshare(CloneFlags::CLONE_NEWUSER).map_err(system("give up its rights in the namespaces"))?;
        outside::map(USER, uid, gid).map_err(|error| Error::System("be an ordinary user", error))?;
    }
    prctl::set_no_new_privs().map_err(system("rule out new privileges"))?;
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
    // The last: it takes away what the others are made with.
    if handoff.wants(Layer::Seccomp) {
        match filter::apply(handoff.policy.network) {
            Ok(detail) => handoff.applied(Layer::Seccomp, detail),
            Err(error) => handoff.missing(Layer::Seccomp, error.to_string()),
        }
    }
    let Handoff { policy, report, .. } = handoff;
    if report.missing.iter().any(|missing| policy.requires.contains(&missing.layer)) {
        say(&Word::Refused(report));
        return Ok(ExitCode::from(REFUSED));
    }
    say(&Word::Ready(report));
    Err(Error::Program { program: name, source: program.exec() })
}

/// What is enforced, or why nothing is.
fn landlock(policy: &Policy, own_proc: bool) -> Result<Result<String, String>, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .scope(Scope::from_all(RIGHTS))?;
    if !policy.network {
        rules = rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let open = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut created = rules
        .create()?
        .add_rules(path_beneath_rules([&policy.workspace], AccessFs::from_all(RIGHTS)))?
        .add_rules(path_beneath_rules(SYSTEM, AccessFs::from_read(RIGHTS)))?
        .add_rules(path_beneath_rules(&policy.reads, AccessFs::from_read(RIGHTS)))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?;
    if policy.network {
        created = created.add_rules(path_beneath_rules(NETWORK, open))?;
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
        (_, LandlockStatus::NotEnabled) => Err("this kernel has it switched off".into()),
        (_, LandlockStatus::NotImplemented) => Err("this kernel does not have it".into()),
        (RulesetStatus::NotEnforced, LandlockStatus::Available { .. }) => {
            Err("this kernel enforces none of it".into())
        }
    })
}

fn rlimits(resources: &Resources, mapped: bool) -> Result<String, nix::Error> {
    let Resources { memory_bytes, cpu_seconds, file_bytes, open_files, processes } = *resources;
    // A warning one second before the end.
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
        // Counted within the user namespace; elsewhere, everything the user runs would count.
        setrlimit(Resource::RLIMIT_NPROC, processes, processes)?;
    }
    Ok(format!(
        "memory {memory_bytes} bytes and processor time {cpu_seconds} s a process, files of {file_bytes} bytes, \
         {open_files} open files, {processes} processes"
    ))
}
