//! The outcome of a run, printed for people or programs.

use serde_json::json;
use shared::{Json, wire::Outcome};

use crate::{
    cluster::watch::Watch,
    terminal::{
        ending::Ending,
        output::{self, Output},
        text, tree,
    },
};

/// Prints the outcome of a run that has ended.
pub(crate) fn print(watch: &Watch, output: Output) -> anyhow::Result<Ending> {
    let Some(outcome) = watch.outcome() else { return Ok(Ending::Failed) };
    match output {
        Output::Json => output::print_json(&json!(outcome))?,
        // The outcome may be kept longer than the log.
        Output::Text if watch.trace().root().is_none() => output::print(&one_line(outcome))?,
        Output::Text => output::print(&tree::show(watch.trace()))?,
    }
    Ok(outcome.context.status.into())
}

pub(crate) fn one_line(outcome: &Outcome) -> String {
    let context = &outcome.context;
    let status = text::plain(serde_json::to_value(context.status));
    let said = context.result.as_ref().map(Json::to_text);
    let said = said.or_else(|| context.result_object.as_ref().map(|at| format!("→ {}", at.object)));
    let said = said.or_else(|| context.error.as_ref().map(|error| error.message.clone()));
    let said = said.or_else(|| context.reason.clone()).unwrap_or_default();
    let money = tree::money(&context.budget);
    format!("{} {status} {money} {}\n", outcome.trace_id, text::cut(&text::flat(&said), 200))
}
