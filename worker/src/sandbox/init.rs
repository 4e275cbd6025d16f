//! The first process of the namespaces. It mounts what is to be seen there, starts the program, reaps
//! what is left behind, and ends when the program does: the kernel then ends everything else in the
//! namespace. Told to end, it asks everything to, and waits a little before it insists.

use std::process::ExitCode;

use nix::sys::{prctl, signal::Signal};
use shared::agent::Layer;

use super::{
    attend::attend,
    handoff::{Error, Handoff, system},
    mounts, outside, watch,
};

pub(super) fn run(mut handoff: Handoff) -> Result<ExitCode, Error> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(system("follow its starter"))?;
    // The parent of a first process is 0 to itself; the `/proc` it still has knows better.
    if watch::own_parent()? != handoff.parent {
        return Ok(ExitCode::FAILURE);
    }
    let detail = mounts::own(&handoff.policy.workspace, handoff.policy.resources.processes)?;
    handoff.applied(Layer::PidNamespace, format!("its processes end together; {detail}"));
    let signals = outside::listen()?;
    attend(handoff, &signals)
}
