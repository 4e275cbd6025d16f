//! Writes to stdout and stderr. A closed pipe or a full disk is an error of the command, never a
//! panic. Texts of agents lose their control characters before they are printed.

use std::{
    ffi::OsString,
    io::{ErrorKind, Write},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context;
use clap::ValueEnum;
use domain::wire::{Acceptance, Refusal};
use serde_json::{Map, Value, json};
use telemetry::json_line;
use tracing::Level;

use crate::terminal::{
    colour, display,
    ending::{Ending, REFUSED},
    yaml,
};

/// The output format: text for people, JSON (or the same value as YAML) for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
}

/// The values of `-o`. Every command accepts the first three; only a receipt accepts the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Yaml,
    #[value(hide = true)]
    Csv,
    #[value(hide = true)]
    Md,
}

impl Format {
    /// The format of an error in the arguments, which are not read yet.
    pub(crate) fn of_arguments(arguments: impl Iterator<Item = OsString>) -> Self {
        let mut after_option = false;
        for argument in arguments {
            let text = argument.to_string_lossy();
            let value = match after_option {
                true => Some(text.as_ref()),
                false => text.strip_prefix("--output=").or_else(|| text.strip_prefix("-o")),
            };
            if let Some(Ok(format)) =
                value.map(|value| Format::from_str(value.trim_start_matches('='), false))
            {
                return format;
            }
            after_option = text == "-o" || text == "--output";
        }
        Format::Text
    }

    /// The format of a command that prints no sheet.
    pub(crate) fn output(self) -> anyhow::Result<Output> {
        match self {
            Format::Text => Ok(Output::Text),
            Format::Json | Format::Yaml => Ok(Output::Json),
            Format::Csv | Format::Md => {
                anyhow::bail!("only `trellis receipt` prints csv and md\n\nhint: use `-o json`")
            }
        }
    }
}

/// Prints data to stdout. Much of it comes from agents, so control characters are replaced.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(colour::printable(text).as_bytes())
        .and_then(|()| stdout.flush())
        .context("could not write the output")
}

/// Prints a value as JSON, or as YAML with `-o yaml`.
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    match FORMAT.get() {
        Some(Format::Yaml) => print(&yaml::document(value)),
        _ => print(&format!("{value:#}\n")),
    }
}

/// Prints a value of a stream of values: on one line, or as a document of YAML.
pub(crate) fn print_json_line(value: &Value) -> anyhow::Result<()> {
    match FORMAT.get() {
        Some(Format::Yaml) => print(&format!("---\n{}", yaml::document(value))),
        _ => print(&format!("{value}\n")),
    }
}

/// The value of `-o`. Errors on stderr are JSON if it is JSON or YAML.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Sets the format of all later output.
pub(crate) fn use_format(format: Format) {
    FORMAT.get_or_init(|| format);
}

/// True if every line on stderr is a JSON log line (X8).
static LOGS_JSON: AtomicBool = AtomicBool::new(false);

/// Makes every later line on stderr a JSON log line.
pub(crate) fn log_json() {
    LOGS_JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn logs_json() -> bool {
    LOGS_JSON.load(Ordering::Relaxed)
}

/// True in quiet mode: no progress or hints, and lists print ids only.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Prints ids, one per line.
pub(crate) fn print_ids(ids: impl Iterator<Item = impl std::fmt::Display>) -> anyhow::Result<()> {
    print(&ids.map(|id| format!("{id}\n")).collect::<String>())
}

/// Prints progress to stderr. Quiet mode prints only warnings. A failed write is ignored.
pub(crate) fn note(what: &str) {
    if !is_quiet() || what.starts_with("warning: ") {
        ask(what);
    }
}

/// Prints to stderr even in quiet mode: a question, or a fact that the user needs.
pub(crate) fn ask(what: &str) {
    if logs_json() {
        return match what.strip_prefix("warning: ") {
            Some(warning) => json_line(Level::WARN, warning),
            None => json_line(Level::INFO, what),
        };
    }
    std::io::stderr().write_all(format!("{}\n", display::printable(what)).as_bytes()).ok();
}

/// Prints an error to stderr. If the write fails, the exit code still reports the error.
pub(crate) fn error(what: &str) {
    error_with(what, None, None);
}

/// As [`error`]. With JSON or YAML output, the error is a line of JSON, with the code of the refusal
/// and the exit code if they are known.
pub(crate) fn error_with(what: &str, code: Option<&str>, exit: Option<u8>) {
    if logs_json() {
        return json_line(Level::ERROR, what);
    }
    if matches!(FORMAT.get(), Some(Format::Json | Format::Yaml)) {
        let (text, hint) =
            what.rsplit_once("\n\nhint: ").map_or((what, None), |(text, hint)| (text, Some(hint)));
        let fields = [
            ("error", Some(json!(text))),
            ("hint", hint.map(|hint| json!(hint))),
            ("code", code.map(|code| json!(code))),
            ("exit", exit.map(|exit| json!(exit))),
        ];
        let fields: Map<String, Value> =
            fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        std::io::stderr().write_all(format!("{}\n", Value::Object(fields)).as_bytes()).ok();
        return;
    }
    std::io::stderr().write_all(format!("error: {}\n", display::printable(what)).as_bytes()).ok();
}

/// Warns if the cluster in this process did not end in time.
pub(crate) fn tell_closed(in_time: bool) {
    if !in_time {
        note("warning: the coordinator and the worker in this process did not end in time");
    }
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Lists the limits that were lowered from the submission's values, even in quiet mode.
pub(crate) fn adjusted(accepted: &Acceptance) {
    accepted.adjusted.iter().for_each(|adjusted| ask(&adjusted.to_string()));
}

/// Prints a refusal with all its problems. Only JSON output contains the rule.
pub(crate) fn refuse(refusal: &Refusal, output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        print_json(&json!({"refusal": refusal}))?;
    }
    error_with(&refused(refusal), Some(&refusal.code), Some(REFUSED));
    Ok(Ending::Refused)
}

/// As [`refuse`], with a hint for the refusal's code if there is one.
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
