//! What a run waits for people for: questions, which are answered here, and budgets, which are raised here.

use std::{
    collections::{VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use coordinator::trace::{ContextNode, Status, Trace};
use maud::{Markup, html};
use serde_json::json;
use shared::{
    ChildId, TraceId, Usd,
    clock::Clock,
    subject::{Action, Subject},
    wire::PendingQuestion,
};

use super::{money, questions, row};
use crate::call::Call;

/// Cards of one run.
const MOST: usize = 20;

fn is_paused(node: &ContextNode) -> bool {
    matches!(node.status, Status::Paused { .. })
}

/// The contexts of a run that wait for somebody, each before those beneath it.
pub(super) fn waiting(trace: &Trace) -> Vec<&ContextNode> {
    let waits = |node: &&ContextNode| node.waiting_for_humans > 0;
    let mut beneath: VecDeque<&ContextNode> = trace.root().into_iter().filter(waits).collect();
    let mut waiting = Vec::new();
    while let Some(node) = beneath.pop_front().filter(|_| waiting.len() < MOST) {
        if node.asks() || is_paused(node) {
            waiting.push(node);
        }
        beneath.extend(node.children.iter().map(|child| trace.node(*child)).filter(waits));
    }
    waiting
}

/// What is waited for, in a number: the script asks for the cards again when it changes. None: nothing.
pub(super) fn print<'a>(nodes: impl IntoIterator<Item = &'a ContextNode>) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    let mut count = 0;
    for node in nodes.into_iter().filter(|node| node.asks() || is_paused(node)) {
        (node.id.as_str(), is_paused(node), node.answers.len(), node.budget.limit.cost_usd.nanos())
            .hash(&mut hasher);
        count += 1;
    }
    (count > 0).then(|| format!("{:x}", hasher.finish()))
}

/// A card for each of them.
pub(super) fn cards(call: &Call, trace: &Trace, nodes: &[&ContextNode]) -> Markup {
    html! {
        @if !nodes.is_empty() {
            ul class="cards" { @for node in nodes { (card(call, trace, node)) } }
        }
    }
}

fn card(call: &Call, trace: &Trace, node: &ContextNode) -> Markup {
    let Some(question) = trace.question(&node.id) else {
        return if is_paused(node) { paused(call, trace, node) } else { Markup::default() };
    };
    let asked_at = node.clock_stopped_at;
    let age_ms = Clock::Machine.now().millis_since(asked_at);
    questions::card(&PendingQuestion { question, asked_at, age_ms }, call.may_send(&Subject::Steer))
}

fn paused(call: &Call, trace: &Trace, node: &ContextNode) -> Markup {
    let id = format!("p-{}", node.id);
    html! {
        li class="card" {
            article aria-labelledby=(id) {
                h2 class="said" id=(id) { (node.id) " waits for a larger budget" }
                p { (row::doing(trace, node)) }
                p class="kind" { (money::Shown::of(node, &node.budget.snapshot()).told()) }
                @if may_raise(call) { (raise(trace.id(), &node.id, node.budget.limit.cost_usd)) }
            }
        }
    }
}

pub(super) fn may_raise(call: &Call) -> bool {
    call.may_send(&Subject::Admin(Action::Raise))
}

/// The form that raises a ceiling.
pub(super) fn raise(trace: TraceId, child: &ChildId, limit: Usd) -> Markup {
    let limit = limit.to_string();
    html! {
        form class="raise" data-json={ "v1/runs/" (trace) "/raise" } data-body=(json!({"child_id": child})) data-done="Raised: what waited for it goes on." {
            label { "Costs at most $" input name="max_cost_usd" inputmode="decimal" size="8" value=(limit.trim_start_matches('$')); }
            label { "Tokens at most " input type="number" name="max_tokens" min="1" step="1" placeholder="as now"; }
            button type="submit"
                data-ask={ "Raise what " (child) " may use? What waits for it goes on and may spend it, and it can't be lowered again." } { "Raise" }
        }
    }
}
