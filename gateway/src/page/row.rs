//! One row of the tree of a run: a context or a step, its money, and what it does now. And the rows beneath one.

use std::hash::{DefaultHasher, Hash, Hasher};

use coordinator::trace::{ContextNode, Phase, Row, Status, Trace, word_of_step};
use maud::{Markup, html};
use shared::{ChildId, Timestamp, wire::StepReport};

use super::{money, status};

/// Contexts this deep, and lists longer than this, are loaded when they are opened.
const OPEN_DEPTH: u32 = 3;
const OPEN_ROWS: usize = 50;
/// Rows that are loaded at once.
pub(super) const LOADED_ROWS: usize = 200;
/// Characters of what a context says.
const SHOWN: usize = 160;

/// At most so many characters, on one line.
pub(super) fn short(text: &str, most: usize) -> String {
    let mut flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = flat.char_indices().nth(most) {
        flat.truncate(end);
        flat.push('…');
    }
    flat
}

/// At most so many bytes.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// Whether the rows beneath a context are there before anybody opens it.
pub(super) fn is_open(node: &ContextNode, rows: usize) -> bool {
    node.depth < OPEN_DEPTH && rows <= OPEN_ROWS
}

/// What a context does now, or what came of it.
pub(super) fn doing(trace: &Trace, node: &ContextNode) -> String {
    let names = |children: &[_]| {
        let mut names: Vec<String> =
            children.iter().take(3).map(|child| trace.node(*child).id.to_string()).collect();
        if children.len() > names.len() {
            names.push(format!("{} more", children.len() - names.len()));
        }
        names.join(", ")
    };
    let waits = trace.snapshot(node).waits;
    match &node.status {
        Status::Submitted { .. } => format!("waits for a worker of the pool {}", trace.pool_of(node)),
        Status::Working(Phase::Queued { .. }) => "waits to be tried again".into(),
        Status::Working(Phase::Running { .. }) => match (waits, node.attempts.iter().last()) {
            (Some(waits), _) => waits,
            (None, Some(attempt)) => format!("runs on {}", attempt.worker_id),
            (None, None) => String::new(),
        },
        Status::Working(Phase::Waiting { children, .. }) => format!("waits for {}", names(children)),
        Status::Working(Phase::Steps) => {
            format!("{} of {} ended", node.children.len() - node.live_children as usize, node.children.len())
        }
        Status::InputRequired { .. } | Status::Paused { .. } | Status::Ended(_) => {
            short(&node.says().or_else(|| node.why()).unwrap_or_default(), SHOWN)
        }
    }
}

/// The id of a row on the page.
pub(super) fn id(child: &ChildId) -> String {
    format!("c-{child}")
}

fn id_of_step(node: &ContextNode, step: &StepReport) -> String {
    format!("s-{}-{}", node.id, step.id)
}

/// How long a context has lasted: what runs is counted by the script.
pub(super) fn lasts(from: Timestamp, until: Option<Timestamp>) -> Markup {
    html! {
        @match until {
            Some(until) => time { (shared::when::lasts(until.millis_since(from))) },
            None => time data-since=(from.millis()) {},
        }
    }
}

/// The row of a context.
pub(super) fn context(trace: &Trace, node: &ContextNode) -> Markup {
    let (word, attempts) = (trace.word(node), node.attempt());
    let budget = node.budget.snapshot();
    let is_live = node.is_live();
    let kind = match (&node.graph, &node.order.agent_id) {
        (Some(_), _) => "graph".to_owned(),
        (None, Some(agent)) if agent.as_str() != node.id.as_str() => agent.to_string(),
        (None, _) => String::new(),
    };
    html! {
        div class="row" id={ "r-" (node.id) } {
            (status::small(&word, attempts > 1))
            a class="name" href={ "runs/" (trace.id()) "/contexts/" (node.id) } { (node.id) }
            span class="kind" { (kind) @if attempts > 1 { " · attempt " (attempts) } }
            span class="amount" { (budget.spent.cost_usd) span class="of" { " / " (budget.limit.cost_usd) } }
            (money::bar(&budget))
            span class="now" data-live[is_live] { (doing(trace, node)) }
            (lasts(node.started_at, node.end().map(|end| end.at)))
        }
    }
}

fn step(node: &ContextNode, step: &StepReport) -> Markup {
    let reason = step.reason.as_deref().unwrap_or_default();
    html! {
        li id=(id_of_step(node, step)) {
            div class="row step" {
                (status::small(&word_of_step(step), false))
                span class="name" { (step.id) }
                span class="kind" { "step" }
                span class="now" { (short(reason, SHOWN)) }
            }
        }
    }
}

/// A context with what is beneath it.
pub(super) fn branch(trace: &Trace, node: &ContextNode) -> Markup {
    let rows = trace.rows(node);
    let open = is_open(node, rows.len());
    html! {
        li id=(id(&node.id)) {
            @if rows.is_empty() {
                (context(trace, node))
            } @else {
                div class="fold" {
                    button type="button" aria-expanded=(open) aria-controls={ "u-" (node.id) } {
                        span class="unseen" { "what is beneath " (node.id) }
                    }
                    (context(trace, node))
                }
                ul id={ "u-" (node.id) } hidden[!open] data-rows=(node.id) data-load=[(!open).then(|| format!("runs/{}/rows/{}", trace.id(), node.id))] {
                    @if open { (list(trace, node, &rows)) }
                }
            }
        }
    }
}

fn list(trace: &Trace, node: &ContextNode, rows: &[Row<'_>]) -> Markup {
    html! {
        @for row in rows {
            @match row {
                Row::Context(child) => (branch(trace, child)),
                Row::Step(report) => (step(node, report)),
            }
        }
    }
}

/// The rows beneath a context, from a place on, and how to get the rest.
pub(super) fn beneath(trace: &Trace, node: &ContextNode, from: usize) -> Markup {
    let rows = trace.rows(node);
    let until = rows.len().min(from.saturating_add(LOADED_ROWS));
    html! {
        (list(trace, node, rows.get(from..until).unwrap_or_default()))
        @if until < rows.len() {
            li class="more" {
                button type="button" data-more={ "runs/" (trace.id()) "/rows/" (node.id) "?from=" (until) } {
                    (rows.len() - until) " more"
                }
            }
        }
    }
}

/// The whole tree.
pub(super) fn tree(trace: &Trace) -> Markup {
    html! {
        ul class="tree" { @if let Some(root) = trace.root() { (branch(trace, root)) } }
    }
}

/// What a row shows, in a number: the same number is the same row.
pub(super) fn print(trace: &Trace, node: &ContextNode) -> u64 {
    let mut hasher = DefaultHasher::new();
    let budget = &node.budget;
    trace.word(node).hash(&mut hasher);
    for amount in [budget.limit, budget.spent, budget.held, budget.estimated] {
        (amount.cost_usd.nanos(), amount.tokens.count()).hash(&mut hasher);
    }
    (node.attempt(), node.children.len(), node.live_children, node.waiting.len(), node.questions)
        .hash(&mut hasher);
    match &node.status {
        Status::Working(Phase::Waiting { children, .. }) => children.len().hash(&mut hasher),
        Status::Working(Phase::Queued { .. }) => "queued".hash(&mut hasher),
        Status::Submitted { .. }
        | Status::Working(_)
        | Status::InputRequired { .. }
        | Status::Paused { .. }
        | Status::Ended(_) => {}
    }
    hasher.finish()
}

/// Which rows are beneath a context, and the state of its steps, in a number.
pub(super) fn print_of_list(trace: &Trace, node: &ContextNode) -> u64 {
    let mut hasher = DefaultHasher::new();
    if node.graph.is_none() {
        node.children.len().hash(&mut hasher);
        return hasher.finish();
    }
    for row in trace.rows(node) {
        match row {
            Row::Context(child) => child.id.as_str().hash(&mut hasher),
            Row::Step(step) => (step.id.as_str(), word_of_step(&step)).hash(&mut hasher),
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_cut_to_a_line() {
        assert_eq!(short("a\n b\t c", 9), "a b c");
        assert_eq!(short("ööööö", 3), "ööö…");
    }
}
