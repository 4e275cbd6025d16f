//! The page of one agent: its goal and limits, its journal step by step, its files, and its
//! actions.

use domain::{
    Timestamp, Usd,
    subject::{Action, Subject},
    wire::{Copies, Funding, HistoryEntry, HistoryStep, Text, ToolOutput},
    wording::count,
};
use maud::{Markup, html};
use serde_json::json;
use text::{
    human_time,
    journal_text::{self, Line},
};
use trace::{ContextNode, Trace};

use super::{answer, files, money, open_requests, raise, row, run, shell::Here, status, waiting_contexts};
use crate::{
    call::Call,
    problem::ApiResult,
    routes::{context, outputs_of},
};

/// The entries on one page of a journal.
const ENTRIES: usize = 200;
/// The most bytes of one part of an entry.
const PART: usize = 16 << 10;
/// The most characters on the line of an entry.
const SAID: usize = 200;

pub(super) async fn show(call: Call) -> ApiResult {
    let (trace_id, child) = (call.part("trace")?, call.part("child")?);
    let place = |number: Option<u64>| number.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let (before, entry) = (place(call.number("before")?), place(call.number("entry")?));
    let run = call.watched.run(trace_id).await?;
    // Graphs and built-in agents have no journal.
    let entries = call.client.journal_or_empty(trace_id, &child).await?;
    // An entry among the newest [`ENTRIES`] is shown on the last page, because only that page is
    // live.
    let around = entry.filter(|entry| entries.len().saturating_sub(*entry) >= ENTRIES);
    let before = before.or(around.map(|entry| entry.saturating_add(ENTRIES / 2))).unwrap_or(usize::MAX);
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

/// The breadcrumbs from the run to an agent.
fn way(trace: &Trace, node: &ContextNode) -> Markup {
    way_through(trace, node.parent.map(|parent| trace.node(parent)), false)
}

/// The breadcrumbs from the run to a page beneath an agent.
pub(super) fn way_to(trace: &Trace, node: &ContextNode) -> Markup {
    way_through(trace, Some(node), true)
}

/// `last` is the last agent in the breadcrumbs. A page beneath an agent links up to that agent,
/// even to the root.
fn way_through(trace: &Trace, last: Option<&ContextNode>, is_beneath: bool) -> Markup {
    let above: Vec<&ContextNode> =
        std::iter::successors(last, |node| node.parent.map(|parent| trace.node(parent))).collect();
    html! {
        nav class="way" aria-label="Breadcrumbs" {
            a href={ "runs/" (trace.id()) } data-up[!is_beneath] { @match trace.root() { Some(root) => (run::title(root)), None => "run" } }
            // The first link is the run, so the root is left out.
            @for (place, parent) in above.iter().enumerate().rev().skip(usize::from(!is_beneath)) {
                " › " a href={ "runs/" (trace.id()) "/contexts/" (parent.id) } data-up[is_beneath && place == 0] { (parent.id) }
            }
        }
    }
}

/// The part above the journal that changes while the agent works.
pub(super) fn head(trace: &Trace, node: &ContextNode) -> Markup {
    let budget = node.budget.snapshot();
    html! {
        header class="head" id="head" data-version=(trace.version()) data-asks=[waiting_contexts::print([node])] {
            h1 { (node.id) }
            p class="state" {
                (status::mark(&trace.word(node))) " · " (row::lasts(node.identity.started_at, node.end().map(|end| end.at)))
                @if let Some(attempt) = node.attempts.iter().last() {
                    " · attempt " (node.attempt()) " on " (attempt.worker_id)
                }
                @if node.lifecycle.progress.steps > 0 { " · step " (node.lifecycle.progress.steps) " of " (node.limits.max_steps) }
                @if node.is_live() { " · " (row::doing(trace, node)) }
            }
            @let money = money::ShownBudget::of(node, &budget);
            div class="money" { (money.link(trace.id(), &node.id)) span { (money.told()) } }
            @if let Some(why) = node.why() { p class="wrong" { (why) } }
        }
    }
}

fn agent(call: &Call, trace: &Trace, node: &ContextNode, entries: &[HistoryEntry], before: usize) -> Markup {
    let result = node.end().and_then(|end| end.details.result.as_ref()).and_then(|_| node.says());
    html! {
        (head(trace, node))
        div id="asked" { (open_requests::cards(call, trace, &[node])) }
        div id="actions" { (actions(call, trace, node)) }
        (facts(trace, node))
        (journal(call, trace, node, entries, before))
        @let files = outputs_of(entries).unwrap_or_default();
        section id="files" { @if !files.is_empty() { h2 { "Files" } (files::of_context(trace.id(), &node.id, &files)) } }
        (branch(call, trace, node, entries))
        section class="result" id="result" { @if let Some(result) = result { h2 { "Result" } pre { (result) } } }
    }
}

fn actions(call: &Call, trace: &Trace, node: &ContextNode) -> Markup {
    let path = format!("v1/runs/{}", trace.id());
    html! {
        @if node.is_live() && is_agent(node) && call.may_send(&Subject::Steer) {
            form class="tell" data-again data-json={ (path) "/contexts/" (node.id) "/tell" } {
                label for="tell" { "Message to the agent" }
                input id="tell" name="text" required maxlength="4000";
                button type="submit" { "Tell" }
            }
        }
        @if node.is_live() && call.may_send(&Subject::Cancel) {
            div class="actions" {
                button type="button" data-post={ (path) "/cancel" } data-body=(json!({"child_id": node.id}))
                    data-ask={ "Cancel " (node.id) " and all of its descendants? Calls in flight are cut off; a call whose cost is unknown is booked at its \
                        hold. Money that was spent stays spent." } { "Cancel" }
                @if raise::is_allowed(call) {
                    details class="branch" { summary { "Raise" } (raise::form(trace.id(), &node.id, node.budget.ceilings.limit.cost_usd)) }
                }
            }
        }
    }
}

/// True if the context runs an agent. Graphs and approvals don't.
fn is_agent(node: &ContextNode) -> bool {
    node.graph.is_none() && node.spec.agent_id.is_some()
}

/// Its goal, inputs and limits.
fn facts(trace: &Trace, node: &ContextNode) -> Markup {
    let model = row::model(trace, node);
    let tools: Vec<&str> =
        node.terms.tools.iter().flat_map(|tools| tools.iter().map(|tool| tool.as_str())).collect();
    html! {
        dl class="facts" {
            @if let Some(goal) = node.spec.goal.as_ref().map(Text::as_str) { dt { "Goal" } dd class="said" { (goal) } }
            @if let Some(agent) = &node.spec.agent_id { dt { "Agent" } dd { (agent) } }
            @if let Some(model) = model { dt { "Model" } dd { (model) } }
            @if let Some(from) = &node.spec.branch_from {
                dt { "Branch of" }
                dd {
                    a href={ "runs/" (from.trace_id) "/contexts/" (from.child_id) "?entry=" (from.step) "#e-" (from.step) } { (from.child_id) ", entry " (from.step) }
                    " of run " code { (from.trace_id.to_string().get(..8).unwrap_or_default()) }
                }
            }
            @if !tools.is_empty() { dt { "Tools" } dd { (tools.join(", ")) } }
            @if is_agent(node) { dt { "Pool" } dd { (trace.pool_of(node)) } }
            @if !node.spec.inputs.is_empty() {
                dt { "Inputs" }
                dd {
                    @for (key, value) in &node.spec.inputs {
                        @let text = value.to_text();
                        details { summary { (key) " " span class="of" { (row::short(&text, 80)) } } pre { (row::cut(&text, PART)) } }
                    }
                }
            }
            @if !node.spec.input_from.is_empty() {
                dt { "Given" }
                dd { @for (place, key) in node.spec.input_from.iter().enumerate() { @if place > 0 { ", " } (key) } }
            }
            dt { "Ceiling" }
            dd { (ceiling(trace, node)) }
            dt { "Limits" }
            dd { (limits(node)) }
            @if !node.terms.adjusted.is_empty() {
                dt { "Lower than requested" }
                dd { @for one in &node.terms.adjusted { span { (one.to_string()) } " " } }
            }
            @for note in node.notes.iter() { dt { "Note" } dd { (note) } }
        }
    }
}

/// Its ceiling, and the source of the money.
fn ceiling(trace: &Trace, node: &ContextNode) -> String {
    let budget = node.budget.snapshot();
    let limit = budget.limit;
    let tokens = row::grouped(limit.tokens.count());
    let of = match (node.parent.map(|parent| &trace.node(parent).id), budget.funding) {
        (None, _) => String::new(),
        (Some(parent), Funding::Shared) => format!(", drawn from the budget of {parent}"),
        (Some(parent), Funding::Granted) => format!(", granted by {parent}"),
    };
    format!("{} and {tokens} tokens{of}", limit.cost_usd)
}

/// The other limits that are worth showing.
fn limits(node: &ContextNode) -> String {
    let limits = &node.limits;
    let mut told = vec![
        count(limits.max_steps, "step"),
        format!("{} tokens a step", row::grouped(limits.max_tokens_per_step.into())),
        format!("{} retries", limits.max_retries_total),
        format!("depth {} of {}", node.identity.depth, limits.max_depth),
        format!("{} children at once", limits.max_children),
    ];
    told.extend(node.terms.window_tokens.map(|tokens| format!("a window of {tokens} tokens")));
    match (node.lifecycle.deadline, node.terms.timeout_ms) {
        _ if !node.is_live() => {}
        (Some(_), _) if node.lifecycle.waiting_for_humans > 0 => told.push("its timeout is paused".into()),
        (Some(deadline), _) => told.push(format!("until {deadline}")),
        (None, Some(timeout)) if timeout > 0 => {
            told.push(format!("{} after its first attempt begins", human_time::lasts(timeout)))
        }
        (None, _) => {}
    }
    told.join(" · ")
}

/// The form for a new run that begins with a copy of this journal up to an entry.
fn branch(call: &Call, trace: &Trace, node: &ContextNode, entries: &[HistoryEntry]) -> Markup {
    if !may_branch(call) || entries.is_empty() && !(node.is_live() && is_agent(node)) {
        return Markup::default();
    }
    let last = entries.last().map_or(1, |entry| entry.number);
    // Suggests the entry before the last answer: after that answer, nothing is left to do
    // differently.
    let answer = entries.iter().rev().find(|entry| matches!(entry.step, HistoryStep::Model(_)));
    let before = answer.map_or(last, |answer| answer.number.saturating_sub(1).max(1));
    let fixed = json!({
        "branch_from": {"trace_id": trace.id(), "child_id": node.id},
    });
    let goal = node.spec.goal.as_ref().map(Text::as_str).unwrap_or_default();
    let most = node.budget.ceilings.limit.cost_usd.to_string();
    html! {
        details class="branch" {
            summary { "Branch: a new run from here" }
            form data-json="v1/runs" data-go="runs/" data-body=(fixed) {
                p class="hint" {
                    "The new run begins with a copy of this journal up to an entry, and continues from there. This run does not change, and \
                     its cost is not paid again."
                }
                label { "After entry " input type="number" name="branch_from.step" min="1" value=(before) required; }
                label { "Goal " textarea name="goal" rows="3" maxlength="100000" { (goal) } }
                @if let Some(agent) = &node.spec.agent_id {
                    label { "Agent " input name="agent_id" value=(agent) size="24" required; }
                    p class="hint" { "Another agent has another prompt and other tools." }
                }
                label { "Model " input name="model" placeholder="unchanged" size="24"; }
                label { "Costs at most $" input name="max_cost_usd" inputmode="decimal" size="8" value=(most.trim_start_matches('$')); }
                button type="submit" { "Begin" }
            }
        }
    }
}

/// True if the caller may start a run from an entry.
fn may_branch(call: &Call) -> bool {
    call.may_send(&Subject::Submit)
}

/// The actions that the caller may take at a journal entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct May {
    restore: bool,
    branch: bool,
}

impl May {
    /// Only a live context can be restored.
    pub(super) fn of(call: &Call, is_live: bool) -> Self {
        let restore = is_live && call.may_send(&Subject::Admin(Action::Restore));
        May { restore, branch: may_branch(call) }
    }
}

/// The address of the agent's page at a journal entry.
pub(super) fn at_entry(trace: &Trace, node: &ContextNode, number: u64) -> String {
    format!("runs/{}/contexts/{}?entry={number}#e-{number}", trace.id(), node.id)
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
    let may = May::of(call, node.is_live());
    let mut before = Before::default();
    let shown = entries.iter().map(|entry| (entry, before.take(entry))).take(until).skip(from);
    html! {
        @if !entries.is_empty() || node.is_live() && node.spec.agent_id.is_some() {
            section {
                h2 { "Journal" }
                @if from > 0 {
                    p { a href={ (call.here) "?before=" (from) } { (from) " earlier entries" } }
                }
                ol class="journal" id="journal" { @for (entry, around) in shown { (step(trace, entry, may, around)) } }
                p class="now said" id="words" {}
            }
        }
    }
}

/// The hold of an entry's call, as long as the trace has the call in full.
pub(super) fn held(trace: &Trace, entry: &HistoryEntry) -> Option<Usd> {
    let (call, _) = entry.step.paid_call()?;
    let call = trace.context(&entry.child_id)?.calls.kept().get(call)?;
    Some(call.held.cost_usd).filter(|held| *held > Usd::ZERO)
}

/// The state that earlier entries pass on to later ones.
#[derive(Debug, Default)]
pub(super) struct Before {
    copies: Copies,
    at: Option<Timestamp>,
}

/// Facts about an entry that depend on the entries before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryContext {
    /// The entry was copied from the journal that this one branched from, and paid for there (W5).
    is_copy: bool,
    /// The time since the entry before it.
    after_ms: Option<u64>,
}

impl Before {
    pub(super) fn take(&mut self, entry: &HistoryEntry) -> EntryContext {
        let is_copy = self.copies.is_copy(&entry.step);
        let after_ms = self.at.replace(entry.at).map(|before| entry.at.millis_since(before));
        EntryContext { is_copy, after_ms }
    }
}

/// A journal entry as a list item.
pub(super) fn step(trace: &Trace, entry: &HistoryEntry, may: May, around: EntryContext) -> Markup {
    let EntryContext { is_copy, after_ms } = around;
    let whole = format!("runs/{}/contexts/{}/entries/{}", trace.id(), entry.child_id, entry.number);
    let usage = entry.step.as_model().and_then(|step| step.usage);
    let is_cut =
        matches!(&entry.step, HistoryStep::Tool(step) if matches!(step.output, ToolOutput::Offloaded { .. }));
    let Line { what, who, tokens, cost, said } = journal_text::line(&entry.step);
    let is_wrong = matches!(&entry.step, HistoryStep::Tool(step) if step.is_error)
        || matches!(entry.step, HistoryStep::Lost(_));
    html! {
        li id={ "e-" (entry.number) } {
            a class="number" href=(whole) title=(entry.at) { (entry.number) }
            span class="what" { (what) }
            span class="kind" { (who) }
            span class="amount" { @if !is_copy { (cost) } @else if cost.is_empty() { "copied" } @else { "(" (cost) ") copied" } @if let Some(held) = held(trace, entry) { span class="of" { " of " (held) " held" } } @if let Some(usage) = usage { span class="of" { " · " (usage.input_tokens) " → " (usage.output_tokens) " tokens" } } @else if !tokens.is_empty() { span class="of" { " · " (tokens) " tokens" } } }
            @if let Some(after) = after_ms { span class="ago" { (human_time::lasts(after)) } }
            span class=[is_wrong.then_some("wrong")] { (row::short(&said, SAID)) }
            @if may.branch { button type="button" data-branch=(entry.number) { "Branch" span class="unseen" { " after entry " (entry.number) } } }
            @if may.restore {
                button type="button" data-post={ "v1/runs/" (trace.id()) "/restore" }
                    data-body=(json!({"child_id": entry.child_id, "to": entry.number}))
                    data-ask={ "Take " (entry.child_id) " back to entry " (entry.number) "? Its later work is discarded; the cost of that work stays spent." } {
                    "Restore" span class="unseen" { " to entry " (entry.number) }
                }
            }
            details {
                summary { "Details" span class="unseen" { " of entry " (entry.number) } }
                @for (name, value) in journal_text::parts(&entry.step) {
                    h3 { (name) }
                    pre { (row::cut(&value, PART)) }
                    @if value.len() > PART {
                        p { a href={ "v1/runs/" (trace.id()) "/contexts/" (entry.child_id) "/journal" } { "The rest is in the journal" } }
                    }
                }
                @if entry.step.as_model().is_some() {
                    p { a href=(whole) { "The model's prompt, part by part" } }
                } @else if is_cut {
                    p { a href=(whole) { "The whole output" } }
                }
            }
        }
    }
}
