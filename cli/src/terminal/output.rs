//! Writes to stdout and stderr. A closed pipe or a full disk is an error of the command, never a panic.

use std::{
    io::{ErrorKind, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use domain::wire::{Acceptance, Refusal};
use serde_json::{Value, json};
use telemetry::json_line;
use tracing::Level;

use crate::terminal::{colour, display, ending::Ending};

/// What a command prints: text for people, JSON for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
}

/// What `-o` may name. Every command knows the first two; a receipt is also a sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    #[value(hide = true)]
    Csv,
    #[value(hide = true)]
    Md,
}

impl Format {
    /// For a command that prints no sheet.
    pub(crate) fn output(self) -> anyhow::Result<Output> {
        match self {
            Format::Text => Ok(Output::Text),
            Format::Json => Ok(Output::Json),
            Format::Csv | Format::Md => {
                anyhow::bail!("only `trellis receipt` prints csv and md\n\nhint: use `-o json`")
            }
        }
    }
}

/// Data, to stdout. Much of it comes from agents, so control characters are replaced.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(colour::printable(text).as_bytes())
        .and_then(|()| stdout.flush())
        .context("could not write the output")
}

pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// A value on one line, for streams of values.
pub(crate) fn print_json_line(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value}\n"))
}

/// Whether everything on stderr is a line of a JSON log (X8).
static LOGS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, what is written to stderr is a line of a JSON log.
pub(crate) fn log_json() {
    LOGS_JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn logs_json() -> bool {
    LOGS_JSON.load(Ordering::Relaxed)
}

/// Whether only what was asked for is printed: no progress, no hints, and of a list the ids alone.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Ids alone, a line each.
pub(crate) fn print_ids(ids: impl Iterator<Item = impl std::fmt::Display>) -> anyhow::Result<()> {
    print(&ids.map(|id| format!("{id}\n")).collect::<String>())
}

/// Progress, to stderr; warnings also if it is to be quiet. Failing to write it is no error.
pub(crate) fn note(what: &str) {
    if !is_quiet() || what.starts_with("warning: ") {
        ask(what);
    }
}

/// What the user is asked, or has to know, to stderr.
pub(crate) fn ask(what: &str) {
    if logs_json() {
        return match what.strip_prefix("warning: ") {
            Some(warning) => json_line(Level::WARN, warning),
            None => json_line(Level::INFO, what),
        };
    }
    std::io::stderr().write_all(format!("{}\n", display::printable(what)).as_bytes()).ok();
}

/// An error, to stderr. If it can't be written, the exit code still tells it.
pub(crate) fn error(what: &str) {
    if logs_json() {
        return json_line(Level::ERROR, what);
    }
    std::io::stderr().write_all(format!("error: {}\n", display::printable(what)).as_bytes()).ok();
}

/// Says so if what ran in this process did not end in time.
pub(crate) fn tell_closed(in_time: bool) {
    if !in_time {
        note("warning: the coordinator and the worker in this process did not end in time");
    }
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Tells which limits are lower than the submission asked for, also if it is to be quiet.
pub(crate) fn adjusted(accepted: &Acceptance) {
    accepted.adjusted.iter().for_each(|adjusted| ask(&adjusted.to_string()));
}

/// Prints a refusal with all its problems. The rule is only for programs (`-o json`).
pub(crate) fn refuse(refusal: &Refusal, output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        print_json(&json!({"refusal": refusal}))?;
    }
    error(&refused(refusal));
    Ok(Ending::Refused)
}

/// As `refuse`, with what to do about a refusal of this code, if that is known.
pub(crate) fn refuse_with(
    refusal: &Refusal,
    hint: fn(&str) -> Option<&'static str>,
    output: Output,
) -> anyhow::Result<Ending> {
    let ending = refuse(refusal, output)?;
    if let Some(hint) = hint(&refusal.code) {
        note(&format!("\nhint: {hint}"));
    }
    Ok(ending)
}

pub(crate) fn refused(refusal: &Refusal) -> String {
    let Refusal { code, message, problems, rule: _ } = refusal;
    // Some messages already contain the problems.
    let untold = problems.iter().filter(|problem| !message.contains(&problem.message));
    let listed: Vec<String> = untold.map(|problem| format!("\n{problem}")).collect();
    let gap = if listed.is_empty() { "" } else { "\n" };
    format!("refused ({code}): {message}{gap}{}", listed.concat())
}
