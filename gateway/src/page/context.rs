//! One agent: its goal and limits, its journal step by step, its files, and what may be done about it.

use coordinator::trace::{ContextNode, Status, Trace};
use maud::{Markup, html};
use serde_json::json;
use shared::{
    journal_text::{self, Line},
    subject::{Action, Subject},
    wire::{HistoryEntry, HistoryStep, Text},
};

use super::{answer, files, money, row, run, shell::Here, status};
use crate::{
    call::{Answered, Call},
    cluster,
    routes::{context, outputs_of},
};

/// Entries of one page of a journal.
const ENTRIES: usize = 200;
/// Bytes of a part of an entry.
const PART: usize = 16 << 10;
/// Characters of what an entry says on its line.
const SAID: usize = 200;

pub(super) async fn show(call: Call) -> Answered {
    let (trace_id, child) = (call.part("trace")?, call.part("child")?);
    let before =
        call.number("before")?.map_or(usize::MAX, |before| usize::try_from(before).unwrap_or(usize::MAX));
    let run = call.watched.run(trace_id).await?;
    // Graphs and built-in agents keep none.
    let entries = match cluster::journal(&call.bus, trace_id, &child).await {
        Ok(entries) => entries,
        Err(problem) if problem.is("no_journal") => Vec::new(),
        Err(problem) => return Err(problem),
    };
    run.show(move |trace| {
        let node = context(trace, &child)?;
        let step = entries.last().map_or(0, |entry| entry.number);
        let live = (node.is_live() && before == usize::MAX)
            .then(|| format!("runs/{trace_id}/contexts/{child}/live?step={step}"));
        let body = html! {
            (way(trace, node))
            div id="agent" data-live=[live] { (agent(&call, trace, node, &entries, before)) }
        };
        answer::page(&call, child.as_str(), Here::Runs, &body)
    })
    .await
}

/// The way from the run to an agent.
fn way(trace: &Trace, node: &ContextNode) -> Markup {
    let mut above = Vec::new();
    let mut at = node.parent;
    while let Some(index) = at {
        let parent = trace.node(index);
        above.push(parent);
        at = parent.parent;
    }
    html! {
        nav class="way" aria-label="The way here" {
            a href={ "runs/" (trace.id()) } { @match trace.root() { Some(root) => (run::title(root)), None => "run" } }
            @for parent in above.iter().rev() {
                " › " a href={ "runs/" (trace.id()) "/contexts/" (parent.id) } { (parent.id) }
            }
        }
    }
}

/// What changes while an agent works, besides its journal.
pub(super) fn head(trace: &Trace, node: &ContextNode) -> Markup {
    let budget = node.budget.snapshot();
    html! {
        header class="head" id="head" data-version=(trace.version()) {
            h1 { (node.id) }
            p class="state" {
                (status::mark(&trace.word(node))) " · " (row::lasts(node.started_at, node.end().map(|end| end.at)))
                @if let Some(attempt) = node.attempts.iter().last() {
                    " · attempt " (node.attempt()) " on " (attempt.worker_id)
                }
                @if node.progress.steps > 0 { " · step " (node.progress.steps) " of " (node.limits.max_steps) }
                @if node.is_live() { " · " (row::doing(trace, node)) }
            }
            div class="money" { (money::bar(&budget)) span { (money::told(&budget)) } }
            @if let Some(why) = node.why() { p class="wrong" { (why) } }
        }
    }
}

fn agent(call: &Call, trace: &Trace, node: &ContextNode, entries: &[HistoryEntry], before: usize) -> Markup {
    let result = node.end().and_then(|end| end.result.as_ref()).and_then(|_| node.says());
    html! {
        (head(trace, node))
        div id="actions" { (actions(call, trace, node)) }
        (facts(trace, node))
        (journal(call, trace, node, entries, before))
        @let files = outputs_of(entries).unwrap_or_default();
        @if !files.is_empty() { section { h2 { "Files" } (files::of_context(trace.id(), &node.id, &files)) } }
        (branch(call, trace, node, entries))
        section class="result" id="result" { @if let Some(result) = result { h2 { "Result" } pre { (result) } } }
    }
}

fn actions(call: &Call, trace: &Trace, node: &ContextNode) -> Markup {
    let path = format!("v1/runs/{}", trace.id());
    let asks = matches!(node.status, Status::InputRequired { .. });
    html! {
        @if node.is_live() && call.may_send(&Subject::Steer) && node.graph.is_none() {
            form class="tell" data-again data-json={ (path) "/contexts/" (node.id) "/tell" } {
                label for="tell" { "Tell it" }
                input id="tell" name="text" required maxlength="4000";
                button type="submit" { "Tell" }
            }
        }
        @if asks { p { a href="questions" { "Answer its question" } } }
        @if node.is_live() && call.may_send(&Subject::Cancel) {
            div class="actions" {
                button type="button" data-post={ (path) "/cancel" } data-body=(json!({"child_id": node.id}))
                    data-ask={ "Cancel " (node.id) " and everything beneath it? What was spent stays spent." } { "Cancel" }
            }
        }
    }
}

/// What it was asked for, and within which bounds.
fn facts(trace: &Trace, node: &ContextNode) -> Markup {
    let profile = node.order.agent_id.as_ref().and_then(|agent| trace.agent(agent));
    let model = profile.and_then(|profile| profile.model.as_ref());
    let tools: Vec<&str> =
        node.tools.iter().flat_map(|tools| tools.iter().map(|tool| tool.as_str())).collect();
    html! {
        dl class="facts" {
            @if let Some(goal) = node.order.goal.as_ref().map(Text::as_str) { dt { "Goal" } dd class="said" { (goal) } }
            @if let Some(agent) = &node.order.agent_id { dt { "Agent" } dd { (agent) } }
            @if let Some(model) = model { dt { "Model" } dd { (model) } }
            @if !tools.is_empty() { dt { "Tools" } dd { (tools.join(", ")) } }
            dt { "Pool" } dd { (trace.pool_of(node)) }
            @if !node.adjusted.is_empty() {
                dt { "Lower than asked" }
                dd { @for one in &node.adjusted { span { (one.to_string()) } " " } }
            }
            @for note in node.notes.iter() { dt { "Note" } dd { (note) } }
        }
    }
}

/// A new run that begins with what this agent has done up to a step.
fn branch(call: &Call, trace: &Trace, node: &ContextNode, entries: &[HistoryEntry]) -> Markup {
    let Some(last) = entries.last().map(|entry| entry.number).filter(|_| call.may_send(&Subject::Submit))
    else {
        return Markup::default();
    };
    let fixed = json!({
        "agent_id": node.order.agent_id,
        "branch_from": {"trace_id": trace.id(), "child_id": node.id},
    });
    let goal = node.order.goal.as_ref().map(Text::as_str).unwrap_or_default();
    html! {
        details class="branch" {
            summary { "Branch: a new run from here" }
            form data-json="v1/runs" data-go="runs/" data-body=(fixed) {
                p class="hint" {
                    "The new run begins with a copy of this journal up to a step, and goes on from there. This run stays as it is, and \
                     what it cost is not paid again."
                }
                label { "After step " input type="number" name="branch_from.step" min="1" max=(last) value=(last) required; }
                label { "Goal " textarea name="goal" rows="3" maxlength="100000" { (goal) } }
                label { "Model " input name="model" placeholder="as it is" size="24"; }
                label { "Costs at most $" input name="max_cost_usd" inputmode="decimal" size="6" placeholder="as by default"; }
                button type="submit" { "Begin" }
            }
        }
    }
}

/// Whether the caller may take an agent back to a step.
pub(super) fn may_restore(call: &Call) -> bool {
    call.may_send(&Subject::Admin(Action::Restore))
}

fn journal(
    call: &Call,
    trace: &Trace,
    node: &ContextNode,
    entries: &[HistoryEntry],
    before: usize,
) -> Markup {
    let until = entries.len().min(before);
    let from = until.saturating_sub(ENTRIES);
    let may_restore = node.is_live() && may_restore(call);
    let shown = entries.get(from..until).unwrap_or_default();
    html! {
        @if !entries.is_empty() || node.is_live() && node.graph.is_none() {
            section {
                h2 { "Journal" }
                @if from > 0 {
                    p { a href={ (call.here) "?before=" (from) } { (from) " earlier steps" } }
                }
                ol class="journal" id="journal" { @for entry in shown { (step(trace, entry, may_restore)) } }
                p class="now said" id="words" {}
            }
        }
    }
}

/// An entry of its journal.
pub(super) fn step(trace: &Trace, entry: &HistoryEntry, may_restore: bool) -> Markup {
    let Line { what, who, tokens, cost, said } = journal_text::line(&entry.step);
    let is_wrong = matches!(&entry.step, HistoryStep::Tool(step) if step.is_error)
        || matches!(entry.step, HistoryStep::Lost(_));
    html! {
        li id={ "e-" (entry.number) } {
            span class="number" { (entry.number) }
            span class="what" { (what) }
            span class="kind" { (who) }
            span class="amount" { (cost) @if !tokens.is_empty() { span class="of" { " · " (tokens) " tokens" } } }
            span class=[is_wrong.then_some("wrong")] { (row::short(&said, SAID)) }
            @if may_restore {
                button type="button" data-post={ "v1/runs/" (trace.id()) "/restore" }
                    data-body=(json!({"child_id": entry.child_id, "to": entry.number}))
                    data-ask={ "Take " (entry.child_id) " back to step " (entry.number) "? What it did after that no longer counts; what it cost stays spent." } {
                    "Restore" span class="unseen" { " to step " (entry.number) }
                }
            }
            details {
                summary { "Whole" span class="unseen" { " step " (entry.number) } }
                @for (name, value) in journal_text::parts(&entry.step) {
                    h3 { (name) }
                    pre { (row::cut(&value, PART)) }
                    @if value.len() > PART {
                        p { a href={ "v1/runs/" (trace.id()) "/contexts/" (entry.child_id) "/journal" } { "The rest is in the journal" } }
                    }
                }
            }
        }
    }
}
