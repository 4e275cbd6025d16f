//! Starts the program and stays until it has ended: reaps orphans, passes a request to end on, and reports what
//! the watch found. Called by the first process of the namespaces, or outside them where there are none.

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
    handoff::{Error, Handoff, Word, say, system},
    watch::{self, Reach, Watch},
};

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
