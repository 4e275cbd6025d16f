//! The requests of a run to people: questions that can be answered here, and budgets that can be
//! raised here.

use domain::{subject::Subject, wire::PendingQuestion};
use host::clock::Clock;
use maud::{Markup, html};
use trace::{ContextNode, Trace};

use super::{money, questions, raise, row, waiting_contexts::is_paused};
use crate::call::Call;

/// A card for each context that waits.
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
    let asked_at = node.lifecycle.clock_stopped_at;
    let age_ms = Clock::Machine.now().millis_since(asked_at);
    questions::card(&PendingQuestion { question, asked_at, age_ms }, call.may_send(&Subject::Steer))
}

fn paused(call: &Call, trace: &Trace, node: &ContextNode) -> Markup {
    // The ceiling is part of the id: after a raise that is used up too, it is a new card.
    let id = format!("p-{}-{}", node.id, node.budget.ceilings.limit.cost_usd.nanos());
    html! {
        li class="card" {
            article aria-labelledby=(id) {
                h2 class="said" id=(id) { (node.id) " waits for a larger budget" }
                p { (row::doing(trace, node)) }
                p class="kind" { (money::ShownBudget::of(node, &node.budget.snapshot()).told()) }
                @if raise::is_allowed(call) { (raise::form(trace.id(), &node.id, node.budget.ceilings.limit.cost_usd)) }
            }
        }
    }
}
