//! The first stage: creates the namespaces and stays outside of them. The first process of a new
//! pid namespace is always a child, so this process waits for that child, passes SIGTERM on, and
//! returns its exit code. Without a pid namespace, this process does the child's work itself.

use std::{
    fs, io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus},
};

use domain::agent::Layer;
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
    },
    unistd::{Gid, Pid, Uid, close, getgid, getppid, getuid},
};

use super::{
    attend::attend,
    cgroup,
    handoff::{Error, Handoff, passes, system},
    watch,
};

pub(super) fn run(mut handoff: Handoff) -> Result<ExitCode, Error> {
    close_inherited()?;
    let signals = block_signals()?;
    let worker = Pid::from_raw(handoff.parent);
    if handoff.wants(Layer::Cgroup) {
        let entered = handoff.cgroup.clone().and_then(|path| cgroup::enter(&path, &handoff.policy.resources));
        match entered {
            Ok(detail) => handoff.applied(Layer::Cgroup, detail),
            Err(reason) => handoff.missing(Layer::Cgroup, reason),
        }
    }
    let inside = make_namespaces(&mut handoff)?;
    // The programs of a dead worker must end. In a pid namespace SIGKILL ends all processes at
    // once. Without one this process must first find them, so it gets SIGTERM.
    prctl::set_pdeathsig(if inside { Signal::SIGKILL } else { Signal::SIGTERM })
        .map_err(system("follow the worker"))?;
    if getppid() != worker {
        return Ok(ExitCode::FAILURE);
    }
    // Its environment contains that of the program. This call follows the namespaces, since
    // creating them uses its `/proc`.
    prctl::set_dumpable(false).map_err(system("protect its own memory"))?;
    handoff.parent = watch::own_pid()?;
    if !inside {
        return attend(handoff, &signals);
    }
    let mut first = handoff.next("init").spawn().map_err(|e| Error::System("start the first process", e))?;
    let pid = Pid::from_raw(i32::try_from(first.id()).expect("a process id fits"));
    loop {
        let signal = signals.wait().map_err(system("wait for a signal"))?;
        if signal == Signal::SIGTERM {
            // The child may have ended just now.
            let _ = kill(pid, Signal::SIGTERM);
        }
        let ended = first.try_wait().map_err(|e| Error::System("wait for the first process", e))?;
        if let Some(status) = ended {
            return Ok(exit_code(status));
        }
    }
}

/// Creates the namespaces. Returns true if the next process will be in a new pid namespace.
fn make_namespaces(handoff: &mut Handoff) -> Result<bool, Error> {
    let processes = handoff.wants(Layer::PidNamespace);
    let network = !handoff.policy.network && handoff.wants(Layer::NetworkNamespace);
    if handoff.policy.network {
        handoff.missing(Layer::NetworkNamespace, "the profile allows the network".into());
    }
    if !processes && !network {
        return Ok(false);
    }
    let mut flags = CloneFlags::CLONE_NEWUSER;
    if processes {
        flags |= CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    }
    if network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    let (uid, gid) = (getuid(), getgid());
    if let Err(errno) = unshare(flags) {
        if passes(errno) {
            return Err(Error::System("make its namespaces", errno.into()));
        }
        for layer in [(Layer::PidNamespace, processes), (Layer::NetworkNamespace, network)] {
            if let (layer, true) = layer {
                handoff.missing(layer, format!("this machine allows no user namespaces: {errno}"));
            }
        }
        return Ok(false);
    }
    map_user(0, uid, gid).map_err(Error::Unmapped)?;
    handoff.mapped = true;
    if network {
        handoff.applied(Layer::NetworkNamespace, "no interface but its own loopback, which is down".into());
    }
    Ok(processes)
}

/// Maps one user of the new user namespace to the user of this process, and no others.
pub(super) fn map_user(inside: u32, uid: Uid, gid: Gid) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{inside} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{inside} {gid} 1"))
}

/// Blocks SIGTERM and SIGCHLD, to wait for them instead. Child processes inherit the blocking.
pub(super) fn block_signals() -> Result<SigSet, Error> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGCHLD);
    signals.thread_block().map_err(system("block signals"))?;
    Ok(signals)
}

/// Closes the worker's open files, since the program must not get them.
fn close_inherited() -> Result<(), Error> {
    let listed = fs::read_dir("/proc/self/fd").map_err(|e| Error::System("list its open files", e))?;
    let open: Vec<i32> = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // Closing fails for the descriptor of the listing itself, which is already closed.
        let _ = close(descriptor);
    }
    Ok(())
}

/// The exit code as a shell computes it: 128 and the signal's number for a killed process.
fn exit_code(status: ExitStatus) -> ExitCode {
    let signalled = || 128 + status.signal().unwrap_or_default();
    ExitCode::from(u8::try_from(status.code().unwrap_or_else(signalled)).unwrap_or(u8::MAX))
}
