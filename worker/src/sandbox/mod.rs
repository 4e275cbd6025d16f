//! The sandbox around a program that is an agent (I4). `unsafe` is forbidden here, so no code can run between
//! fork and exec. Instead the worker starts a helper, which is its own executable under a hidden command.
//! The helper restricts itself stage by stage, and then becomes the program:
//!
//! 1. [`outside`] makes the namespaces, and waits outside of them;
//! 2. [`init`] is the first process in them: it mounts its own `/proc`, makes everything but the workspace
//!    read-only, kills a program that exceeds its limits, and when it ends, all processes end with it;
//! 3. [`program`] gives up its rights, and becomes the program.
//!
//! A layer that this machine does not have is reported as missing. Whether the program runs without it is decided
//! by the profile, in the last stage, before the program has run.

mod attend;
mod cgroup;
mod environment;
mod filter;
mod handoff;
mod helper;
mod init;
mod mounts;
mod outside;
mod own_process;
mod paths;
mod program;
mod start;
mod usage;
mod watch;

use std::process::ExitCode;

pub(crate) use environment::{WorkerSecrets, plain as plain_environment};
pub use handoff::{OWN_EXECUTABLE, VARIABLE};
pub(crate) use handoff::{Policy, readable_message};
pub(crate) use helper::{Helper, Launched, NotStarted, Sandbox};
pub use own_process::{protect_process, runs_as_root};
pub(crate) use paths::{absolute, make_absolute_if_readable};
pub(crate) use start::{Event, MAX_LINE_BYTES, Program};

use handoff::{Error, send};

/// The helper's exit code when a stage failed.
const BROKEN: u8 = 125;

/// Runs the named stage of the helper, the first one if none is named. Returns when every process it waits for has
/// ended. Must be called while the process has a single thread.
pub fn enter(stage: Option<&str>, handoff: &str) -> ExitCode {
    let entered = serde_json::from_str(handoff).map_err(Error::from).and_then(|handoff| match stage {
        None => outside::run(handoff),
        Some("init") => init::run(handoff),
        Some("program") => program::run(handoff),
        Some(other) => Err(Error::Stage(other.to_owned())),
    });
    entered.unwrap_or_else(|error| {
        send(&error.message());
        ExitCode::from(BROKEN)
    })
}
