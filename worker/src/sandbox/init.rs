//! The first process of the namespaces. It mounts what is to be seen there, starts the program, reaps
//! what is left behind, and ends when the program does: the kernel then ends everything else in the
//! namespace. Told to end, it asks everything to, and waits a little before it insists.

use std::process::ExitCode;

use nix::{
    sys::{
        prctl,
        signal::{SigSet, Signal},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use shared::agent::Layer;

use super::{
    Error, Handoff, Word, mounts, outside, say, system,
    watch::{self, Reach, Watch},
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

/// Starts the program, and stays until it has ended.
pub(super) fn attend(mut handoff: Handoff, signals: &SigSet) -> Result<ExitCode, Error> {
    let reach = if handoff.has(Layer::PidNamespace) { Reach::Namespace } else { Reach::Descendants };
    // Orphans come to this process, wherever they went before.
    prctl::set_child_subreaper(true).map_err(system("adopt orphans"))?;
    prctl::set_dumpable(false).map_err(system("close its own memory"))?;
    handoff.parent = watch::own_pid()?;
    let watch = Watch::new(&handoff.policy, reach);
    let program = handoff.next("program").spawn().map_err(|e| Error::System("start the last step", e))?;
    let program = Pid::from_raw(i32::try_from(program.id()).expect("a process id fits"));
    watch.begin();
    let status = loop {
        if signals.wait().map_err(system("wait for a signal"))? == Signal::SIGTERM {
            watch.end();
        }
        if let Some(status) = reap(program) {
            break status;
        }
    };
    if let Some(what) = watch.exceeded() {
        say(&Word::Exceeded(what));
    }
    if let Reach::Descendants = reach {
        watch.clear();
    }
    Ok(ExitCode::from(status))
}

/// Takes in whatever has ended; how the program did, if it is among them.
fn reap(program: Pid) -> Option<u8> {
    let mut status = None;
    loop {
        let (pid, code) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, code),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
            Ok(_) | Err(_) => return status,
        };
        if pid == program {
            status = Some(u8::try_from(code).unwrap_or(u8::MAX));
        }
    }
}
