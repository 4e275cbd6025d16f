//! Starts the program and waits until it has ended: reaps orphans, passes SIGTERM on, and reports a
//! limit that the watch found exceeded. Runs in the first process of the namespaces, or outside if
//! there are no namespaces.

use std::process::ExitCode;

use nix::{
    sys::{
        prctl,
        signal::{SigSet, Signal},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    handoff::{Error, Handoff, HelperMessage, send, system},
    watch::{self, Reach, Watch},
};

/// Starts the program, waits until it has ended, and returns its exit code.
pub(super) fn attend(mut handoff: Handoff, signals: &SigSet) -> Result<ExitCode, Error> {
    let reach = if handoff.own_proc { Reach::Namespace } else { Reach::Descendants };
    // Orphaned descendants get this process as their parent.
    prctl::set_child_subreaper(true).map_err(system("become the parent of orphans"))?;
    prctl::set_dumpable(false).map_err(system("protect its own memory"))?;
    handoff.parent = watch::own_pid()?;
    let watch = Watch::new(&handoff.policy, reach);
    let program = handoff.next("program").spawn().map_err(|e| Error::System("start the last stage", e))?;
    let program = Pid::from_raw(i32::try_from(program.id()).expect("a process id fits"));
    watch.begin();
    let status = loop {
        if signals.wait().map_err(system("wait for a signal"))? == Signal::SIGTERM {
            watch.terminate();
        }
        if let Some(status) = reap(program) {
            break status;
        }
    };
    if let Some(reason) = watch.exceeded() {
        send(&HelperMessage::Exceeded(reason));
    }
    if let Reach::Descendants = reach {
        watch.kill_all();
    }
    Ok(ExitCode::from(status))
}

/// Reaps every child that has ended. Returns the program's exit status if the program is among
/// them.
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
