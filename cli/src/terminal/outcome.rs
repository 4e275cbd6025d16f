//! Prints the outcome of a run as text or JSON.

use client::{Client, Watch};
use domain::{
    Json,
    wire::{EndStatus, Outcome},
};
use serde_json::json;

use crate::{
    cluster::{connect::Servers, failure, results},
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        pager, tree,
    },
};

/// Prints the outcome of a run that has ended, with its whole result.
pub(crate) async fn print(
    client: &Client,
    servers: &Servers,
    watch: &Watch,
    output: Output,
) -> anyhow::Result<Ending> {
    let Some(outcome) = watch.outcome() else { return Ok(Ending::Failed) };
    match output {
        Output::Json => output::print_json(&json!(outcome))?,
        // In quiet mode the result is the only output.
        Output::Text if output::is_quiet() => {
            if let Some(result) = results::of_outcome(client, &outcome.context).await? {
                pager::print(&display::of_result(&result), servers).await?;
            }
            if Ending::from(outcome.context.status) != Ending::Completed {
                output::error(&why(outcome));
            }
        }
        Output::Text => {
            // The outcome may be stored longer than the log.
            let shown = match watch.trace().root() {
                Some(_) => tree::show(watch.trace()),
                None => one_line(outcome),
            };
            let result = result(client, outcome, &shown).await;
            pager::print(&format!("{shown}{result}"), servers).await?;
        }
    }
    Ok(outcome.context.status.into())
}

/// The whole result, unless the tree already shows all of it.
pub(crate) async fn result(client: &Client, outcome: &Outcome, shown: &str) -> String {
    match results::of_outcome(client, &outcome.context).await {
        Ok(Some(result)) if is_shown(&result.to_text(), shown) => String::new(),
        Ok(Some(result)) => format!("\nresult\n{}", display::of_result(&result)),
        Ok(None) => String::new(),
        Err(error) => format!("\nthe result could not be read: {}\n", failure::explained(error)),
    }
}

/// True if the first line of the tree, the root's, ends with the whole result.
fn is_shown(result: &str, tree: &str) -> bool {
    !result.contains('\n') && tree.lines().next().is_some_and(|line| line.ends_with(result))
}

/// The status and the reasons of a run's end.
fn why(outcome: &Outcome) -> String {
    let context = &outcome.context;
    let ended = match context.status {
        EndStatus::Completed => "completed",
        EndStatus::Failed => "failed",
        EndStatus::TimedOut => "timed out",
        EndStatus::Aborted => "was aborted",
        EndStatus::Cancelled => "was cancelled",
        EndStatus::Rejected => "was rejected",
    };
    let said = context.error.as_ref().map(|error| error.message.clone()).or_else(|| context.reason.clone());
    let said = said.map_or_else(String::new, |said| format!(": {said}"));
    format!("{} {ended}{said}", outcome.trace_id)
}

pub(crate) fn one_line(outcome: &Outcome) -> String {
    let context = &outcome.context;
    let status = display::plain(serde_json::to_value(context.status));
    let said = context.result.as_ref().map(Json::to_text);
    let said = said.or_else(|| context.result_object.as_ref().map(|at| format!("→ {}", at.object)));
    let said = said.or_else(|| context.error.as_ref().map(|error| error.message.clone()));
    let said = said.or_else(|| context.reason.clone()).unwrap_or_default();
    let money = tree::money(&context.budget);
    format!("{} {status} {money} {}\n", outcome.trace_id, display::cut(&display::flat(&said), 200))
}
