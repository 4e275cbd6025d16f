//! A trace as a tree for people: who ran under whom, how it ended, and what it cost.

use std::fmt::Write;

use coordinator::{
    rehearsal::Rehearsal,
    trace::{ContextNode, Trace},
};
use serde_json::{Value, json};
use shared::wire::{EndStatus, GraphVerdict, Payload, StepReport};

/// The whole of it, as text.
pub(crate) fn show(rehearsal: &Rehearsal, events: bool) -> String {
    let trace = &rehearsal.trace;
    let mut text = String::new();
    let Some(root) = trace.root() else { return text };
    if events {
        for (at, event) in &rehearsal.log {
            let event = serde_json::to_string(event).unwrap_or_default();
            writeln!(text, "{:>8} ms  {}", at.millis(), cut(&event, 160)).expect("a string takes all");
        }
        text.push('\n');
    }
    branch(trace, root, "", "", &mut text);
    let reasons =
        root.end().and_then(|end| end.error.as_ref().map(|e| e.message.clone()).or(end.reason.clone()));
    if let Some(reason) = reasons {
        writeln!(text, "\n{reason}").expect("a string takes all");
    }
    if !trace.outputs().is_empty() {
        text.push_str("\noutputs\n");
        for (key, value) in trace.outputs() {
            writeln!(text, "  {key}: {}", cut(&value.to_text().replace('\n', " "), 100))
                .expect("a string takes all");
        }
    }
    text
}

/// One line for a context, then its children beneath it; a graph's steps that never ran, too.
fn branch(trace: &Trace, node: &ContextNode, stem: &str, fork: &str, text: &mut String) {
    let budget = &node.budget;
    let name = format!("{stem}{fork}{}", node.id);
    let money = format!("{} of {}", budget.spent.cost_usd, budget.limit.cost_usd);
    let tries = if node.attempt() > 1 { format!("  {} attempts", node.attempt()) } else { String::new() };
    let answer = node.end().and_then(|end| end.result.as_ref()).map(preview).unwrap_or_default();
    writeln!(text, "{name:<32} {:<14} {money:<18}{tries}{answer}", word(trace, node))
        .expect("a string takes all");
    let below = match fork {
        "" => String::new(),
        "└─ " => format!("{stem}   "),
        _ => format!("{stem}│  "),
    };
    let told = worth_a_line(trace, node);
    let last = node.children.len() + told.len();
    let fork_at = |number: usize| if number + 1 == last { "└─ " } else { "├─ " };
    for (number, child) in node.children.iter().enumerate() {
        branch(trace, trace.node(*child), &below, fork_at(number), text);
    }
    for (number, step) in told.iter().enumerate() {
        let name = format!("{below}{}{}", fork_at(node.children.len() + number), step.id);
        let reason = step.reason.as_deref().unwrap_or_default();
        writeln!(text, "{name:<32} {:<14} {}", step_word(step), cut(reason, 80)).expect("a string takes all");
    }
}

/// Steps that the contexts alone do not explain: never run, or done only in part.
fn worth_a_line(trace: &Trace, node: &ContextNode) -> Vec<StepReport> {
    let steps = trace.graph_outcome(node).map(|outcome| outcome.steps).unwrap_or_default();
    steps.into_iter().filter(|step| step.contexts.is_empty() || step.partial).collect()
}

/// The status of a context; a graph that completed says so if it did only in part.
fn word(trace: &Trace, node: &ContextNode) -> String {
    let completed = node.end().is_some_and(|end| end.status == EndStatus::Completed);
    let verdict = trace.graph_outcome(node).map(|outcome| outcome.verdict);
    if completed && verdict == Some(GraphVerdict::Partial) {
        return "partial".into();
    }
    plain(serde_json::to_value(node.status_word()))
}

fn step_word(step: &StepReport) -> String {
    if step.partial { "partial".into() } else { plain(serde_json::to_value(step.status)) }
}

fn plain(word: serde_json::Result<Value>) -> String {
    word.ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn preview(result: &Payload) -> String {
    let shown = match result {
        Payload::Inline(value) => value.to_text().replace('\n', " "),
        Payload::Reference { object, .. } => format!("→ {object}"),
    };
    format!("  {}", cut(&shown, 60))
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The outcome and the snapshots, for programs.
pub(crate) fn as_json(rehearsal: &Rehearsal, events: bool) -> anyhow::Result<Value> {
    let trace = &rehearsal.trace;
    let contexts: Vec<_> = trace.contexts().iter().map(|node| trace.snapshot(node)).collect();
    let outcome = trace.root().and_then(|root| trace.outcome(&root.id));
    let mut shown = json!({"outcome": outcome, "contexts": contexts});
    if events {
        let log: Result<Vec<Value>, _> = rehearsal
            .log
            .iter()
            .map(|(at, event)| {
                Ok::<_, serde_json::Error>(json!({"at": at, "event": serde_json::to_value(event)?}))
            })
            .collect();
        shown["events"] = Value::Array(log?);
    }
    Ok(shown)
}
