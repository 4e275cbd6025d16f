//! Writes what people and programs read. A reader that goes away, or a full disk, is an error of the
//! command and never a panic.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use serde_json::Value;

/// To stdout: data.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("could not write the output")
}

pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// To stderr: what went wrong. If even that can't be said, the exit code still does.
pub(crate) fn complain(what: &str) {
    std::io::stderr().write_all(format!("error: {what}\n").as_bytes()).ok();
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}
