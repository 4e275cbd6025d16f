//! The sandbox around a program that is an agent (I4). `unsafe` is forbidden here, so nothing can be done
//! between a fork and an exec: the worker starts a helper, which is the `trellis` binary itself under a
//! hidden command, and that restricts itself step by step and becomes the program:
//!
//! 1. [`outside`] makes the namespaces, and watches over them from without;
//! 2. [`init`] is the first process in them: it has its own `/proc`, everything but the workspace
//!    read-only, ends what grows too large, and takes everything with it when it ends;
//! 3. [`program`] gives up its rights, and becomes the program.
//!
//! A layer that this machine does not have is told as missing; whether that is the end of it is decided
//! by the profile, in the last step, before anything of the program has run.

mod attend;
mod environment;
mod filter;
mod handoff;
mod init;
mod mounts;
mod outside;
mod program;
mod start;
mod watch;

use std::process::ExitCode;

pub(crate) use environment::Secrets;
pub(crate) use handoff::Policy;
pub use handoff::{OWN_EXECUTABLE, VARIABLE};
pub(crate) use start::{Event, LINE, NotStarted, Program, Sandbox};

use handoff::{Error, Word, say};

/// How the helper ends when it could not do its part.
const BROKEN: u8 = 125;

/// The helper: does the named step, the first if none is named. Comes back only when there is nothing
/// left to wait for. Must be called while the process has one thread.
pub fn enter(stage: Option<&str>, told: &str) -> ExitCode {
    let entered = serde_json::from_str(told).map_err(Error::from).and_then(|handoff| match stage {
        None => outside::run(handoff),
        Some("init") => init::run(handoff),
        Some("program") => program::run(handoff),
        Some(other) => Err(Error::Stage(other.to_owned())),
    });
    entered.unwrap_or_else(|error| {
        say(&Word::Broken(error.to_string()));
        ExitCode::from(BROKEN)
    })
}
