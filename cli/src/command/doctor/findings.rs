//! What `trellis doctor` found: each with a level, and a hint where something is to be done.

use serde::Serialize;
use serde_json::json;

use crate::{
    cluster::connect::{Denied, Unreachable},
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Ok,
    /// These credentials may not ask.
    NotChecked,
    Warn,
    Fail,
    /// The server could not be reached.
    Unreachable,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(
        &mut self,
        check: &'static str,
        level: Level,
        found: impl Into<String>,
        hint: Option<&str>,
    ) {
        self.0.push(Finding { check, level, found: found.into(), hint: hint.map(str::to_owned) });
    }

    pub(super) fn not_checked(&mut self, check: &'static str) {
        self.add(check, Level::NotChecked, "not checked: this role may not ask", None);
    }

    /// An error of a command: its text, and the hint after it.
    pub(super) fn add_error(&mut self, check: &'static str, error: &anyhow::Error) {
        if error.is::<Denied>() {
            return self.not_checked(check);
        }
        let said = format!("{error:#}");
        let (found, hint) = said.split_once("\n\nhint: ").unwrap_or((&said, ""));
        let level = if error.is::<Unreachable>() { Level::Unreachable } else { Level::Fail };
        self.add(check, level, found, (!hint.is_empty()).then_some(hint));
    }

    /// Whether something was found in a check.
    pub(super) fn has(&self, check: &str) -> bool {
        self.0.iter().any(|finding| finding.check == check)
    }

    pub(super) fn print(&self, output: Output) -> anyhow::Result<Ending> {
        match output {
            Output::Json => output::print_json(&json!(self.0))?,
            Output::Text => {
                for Finding { check, level, found, hint } in &self.0 {
                    let word = match level {
                        Level::Ok => "ok",
                        Level::NotChecked => "-",
                        Level::Warn => "warn",
                        Level::Fail | Level::Unreachable => "fail",
                    };
                    let hint = hint.as_ref().map_or_else(String::new, |hint| format!("      hint: {hint}\n"));
                    output::print(&format!("{word:<5} {check}: {found}\n{hint}"))?;
                }
            }
        }
        let any = |wanted: Level| self.0.iter().any(|finding| finding.level == wanted);
        Ok(match (any(Level::Unreachable), any(Level::Fail)) {
            (true, _) => Ending::Unreachable,
            (false, true) => Ending::Failed,
            (false, false) => Ending::Completed,
        })
    }
}
