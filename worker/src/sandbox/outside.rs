//! The first step: makes the namespaces and stays outside of them. The first process in a new pid
//! namespace is always a child, so this one waits, hands signals on, and ends as that one ends. Where
//! there is no pid namespace it does that one's work itself.

use std::{
    fs, io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus},
};

use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
    },
    unistd::{Gid, Pid, Uid, close, getgid, getppid, getuid},
};
use shared::agent::Layer;

use super::{
    attend::attend,
    handoff::{Error, Handoff, system},
    watch,
};

pub(super) fn run(mut handoff: Handoff) -> Result<ExitCode, Error> {
    close_inherited()?;
    let signals = listen()?;
    let worker = Pid::from_raw(handoff.parent);
    let inside = namespaces(&mut handoff)?;
    // A worker that is gone leaves nothing behind. Where processes end together, at once; elsewhere they
    // have to be looked for first.
    prctl::set_pdeathsig(if inside { Signal::SIGKILL } else { Signal::SIGTERM })
        .map_err(system("follow the worker"))?;
    if getppid() != worker {
        return Ok(ExitCode::FAILURE);
    }
    handoff.parent = watch::own_pid()?;
    if !inside {
        return attend(handoff, &signals);
    }
    let mut first = handoff.next("init").spawn().map_err(|e| Error::System("start the first process", e))?;
    let pid = Pid::from_raw(i32::try_from(first.id()).expect("a process id fits"));
    loop {
        let signal = signals.wait().map_err(system("wait for a signal"))?;
        if signal == Signal::SIGTERM {
            // It has perhaps ended in this moment.
            let _ = kill(pid, Signal::SIGTERM);
        }
        let ended = first.try_wait().map_err(|e| Error::System("wait for the first process", e))?;
        if let Some(status) = ended {
            return Ok(code(status));
        }
    }
}

/// Whether there is a pid namespace, for the next process.
fn namespaces(handoff: &mut Handoff) -> Result<bool, Error> {
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
        for layer in [(Layer::PidNamespace, processes), (Layer::NetworkNamespace, network)] {
            if let (layer, true) = layer {
                handoff.missing(layer, format!("user namespaces are not to be had here: {errno}"));
            }
        }
        return Ok(false);
    }
    map(0, uid, gid).map_err(Error::Unmapped)?;
    handoff.mapped = true;
    if network {
        handoff.applied(Layer::NetworkNamespace, "no interface but its own loopback, which is down".into());
    }
    Ok(processes)
}

/// Says whom a user of the new namespace stands for: this user, and nobody else.
pub(super) fn map(inside: u32, uid: Uid, gid: Gid) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{inside} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{inside} {gid} 1"))
}

/// Termination and the end of children, to be waited for. Blocked from here on, in what this process
/// starts as well.
pub(super) fn listen() -> Result<SigSet, Error> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGCHLD);
    signals.thread_block().map_err(system("block signals"))?;
    Ok(signals)
}

/// Whatever somebody left open for the worker is not for the program.
fn close_inherited() -> Result<(), Error> {
    let listed = fs::read_dir("/proc/self/fd").map_err(|e| Error::System("list its descriptors", e))?;
    let open: Vec<i32> = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // One of them was the list itself, which is closed by now.
        let _ = close(descriptor);
    }
    Ok(())
}

/// As a shell tells it.
pub(super) fn code(status: ExitStatus) -> ExitCode {
    let signalled = || 128 + status.signal().unwrap_or_default();
    ExitCode::from(u8::try_from(status.code().unwrap_or_else(signalled)).unwrap_or(u8::MAX))
}
