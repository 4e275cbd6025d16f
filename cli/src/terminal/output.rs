//! Writes what people and programs read. A reader that goes away, or a full disk, is an error of the
//! command and never a panic.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use serde_json::{Value, json};
use shared::wire::Refusal;

use crate::terminal::{ending::Ending, text};

/// What a command prints: text for people, JSON for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

/// To stdout: data. Much of it was said by agents: a terminal is given no orders by it.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text::printable(text).as_bytes())
        .and_then(|()| stdout.flush())
        .context("could not write the output")
}

pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// A value on a line of its own: one of many.
pub(crate) fn print_json_line(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value}\n"))
}

/// To stderr: what goes on.
pub(crate) fn note(what: &str) {
    std::io::stderr().write_all(format!("{}\n", text::printable(what)).as_bytes()).ok();
}

/// To stderr: what went wrong. If even that can't be said, the exit code still does.
pub(crate) fn complain(what: &str) {
    std::io::stderr().write_all(format!("error: {}\n", text::printable(what)).as_bytes()).ok();
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// A refusal, to whoever asked: what happened, and every problem at once. The rule is for programs (`-o json`).
pub(crate) fn refuse(refusal: &Refusal, output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        print_json(&json!({"refusal": refusal}))?;
    }
    complain(&refused(refusal));
    Ok(Ending::Refused)
}

pub(crate) fn refused(refusal: &Refusal) -> String {
    let Refusal { code, message, problems, rule: _ } = refusal;
    // Some messages are the list of the problems already.
    let untold = problems.iter().filter(|problem| !message.contains(&problem.message));
    let listed: Vec<String> = untold.map(|problem| format!("\n{problem}")).collect();
    let gap = if listed.is_empty() { "" } else { "\n" };
    format!("refused ({code}): {message}{gap}{}", listed.concat())
}
