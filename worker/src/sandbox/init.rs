//! The first process of the namespaces. It sets up the mounts, starts the program and reaps
//! orphans. It ends when the program ends, and the kernel then kills every other process of the
//! namespace. On SIGTERM it sends SIGTERM to all processes, and SIGKILL after a short wait.

use std::process::ExitCode;

use domain::agent::Layer;
use nix::sys::{prctl, signal::Signal};

use super::{
    attend::attend,
    handoff::{Error, Handoff, HelperMessage, send, system},
    mounts::{self, Mounts},
    outside, watch,
};

pub(super) fn run(mut handoff: Handoff) -> Result<ExitCode, Error> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(system("follow the process that started it"))?;
    // In the first process of a pid namespace `getppid` returns 0. The old `/proc`, still mounted,
    // has the real number.
    if watch::own_parent()? != handoff.parent {
        return Ok(ExitCode::FAILURE);
    }
    match mounts::set_up(&handoff.policy)? {
        // Without its own `/proc` this process can neither see nor count the program's processes.
        Mounts::NoProc(reason) => {
            send(&HelperMessage::Unable(Layer::PidNamespace, reason));
            return Ok(ExitCode::FAILURE);
        }
        Mounts::Writable(left) => handoff.missing(
            Layer::PidNamespace,
            format!("only in part: it has its own /proc, but these mounts are not read-only: {left}"),
        ),
        Mounts::Complete(detail) => {
            handoff.applied(Layer::PidNamespace, format!("all processes end together; {detail}"));
        }
    }
    handoff.own_proc = true;
    let signals = outside::block_signals()?;
    attend(handoff, &signals)
}
