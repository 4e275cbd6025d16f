//! Adds errors of commands to the findings of `trellis doctor`, and prints the findings.

use gateway::doctor::{Finding, Findings, Level};
use serde_json::json;

use crate::{
    cluster::failure::{Denied, Unreachable},
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

/// Adds an error of a command: its text, and the hint in it.
pub(super) fn add_error(findings: &mut Findings, check: &'static str, error: &anyhow::Error) {
    if error.is::<Denied>() {
        return findings.not_checked(check);
    }
    let said = format!("{error:#}");
    let (found, hint) = said.split_once("\n\nhint: ").unwrap_or((&said, ""));
    let level = if error.is::<Unreachable>() { Level::Unreachable } else { Level::Fail };
    findings.add(check, level, found, (!hint.is_empty()).then_some(hint));
}

pub(super) fn print(findings: &Findings, output: Output) -> anyhow::Result<Ending> {
    match output {
        Output::Json => output::print_json(&json!(findings))?,
        Output::Text => {
            for Finding { check, level, found, hint } in &findings.0 {
                let hint = hint.as_ref().map_or_else(String::new, |hint| format!("      hint: {hint}\n"));
                output::print(&format!("{:<5} {check}: {found}\n{hint}", level.word()))?;
            }
        }
    }
    Ok(match (findings.any(Level::Unreachable), findings.any(Level::Fail)) {
        (true, _) => Ending::Unreachable,
        (false, true) => Ending::Failed,
        (false, false) => Ending::Completed,
    })
}
