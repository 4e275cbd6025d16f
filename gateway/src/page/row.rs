//! A row in the tree of a run: a context or a step, its money, and its present activity. Also the
//! lists of rows beneath a context.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use domain::{
    ChildId, Timestamp, Usd,
    id::ModelName,
    wire::{StepReport, StepStatus},
};
use maud::{Markup, html};
use trace::{CallState, ContextIndex, ContextNode, Phase, Row, Status, Trace, word_of_step};

use super::{money, status, waiting_contexts};

/// Lists are open from the top until this many rows are shown. Other lists are loaded when the user
/// opens them.
pub(super) const OPEN_ROWS: usize = 200;
/// The rows that are loaded at once.
pub(super) const LOADED_ROWS: usize = 200;
/// The most characters of a context's activity.
const SHOWN: usize = 160;

/// The most names in a list of names.
const NAMED: usize = 3;

/// The text on one line, with at most this many characters.
pub(super) fn short(text: &str, most: usize) -> String {
    let mut flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = flat.char_indices().nth(most) {
        flat.truncate(end);
        flat.push('…');
    }
    flat
}

/// A number with commas between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let commas = |place: usize| place > 0 && (digits.len() - place).is_multiple_of(3);
    digits
        .chars()
        .enumerate()
        .flat_map(|(place, digit)| commas(place).then_some(',').into_iter().chain([digit]))
        .collect()
}

/// At most this many bytes of the text.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// Links to the earlier and later pages of a long list.
pub(super) fn pages(path: &str, from: usize, size: usize, all: usize) -> Markup {
    let last = all.saturating_sub(1) / size * size;
    html! {
        nav class="pages" aria-label="Pages" {
            @if from > 0 { a href={ (path) "?from=" (from.saturating_sub(size).min(last)) } { "Earlier" } }
            @if from.saturating_add(size) < all { a href={ (path) "?from=" (from + size) } { "Later" } }
        }
    }
}

/// The hash of a list that is loaded when the user opens it.
pub(super) const CLOSED: u64 = 1;

/// True if the context has rows beneath it.
pub(super) fn has_rows(node: &ContextNode) -> bool {
    node.graph.is_some() || !node.children.is_empty()
}

/// The first few names, and the number of the others.
fn few(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names[..names.len() - more].join(", ");
    if more > 0 { format!("{first}, {more} more") } else { first }
}

/// The present activity of a context, or its result.
pub(super) fn doing(trace: &Trace, node: &ContextNode) -> String {
    let names = |children: &[ContextIndex]| {
        few(&children.iter().map(|child| trace.node(*child).id.to_string()).collect::<Vec<_>>())
    };
    let waits = trace.waits(node);
    match &node.status {
        Status::Submitted { .. } => format!("waits for a worker of the pool {}", trace.pool_of(node)),
        Status::Working(Phase::Queued { .. }) => "waits for a retry".into(),
        Status::Working(Phase::Running { .. }) => match (waits, node.attempts.iter().last()) {
            (Some(waits), _) => waits,
            (None, _) if has_call(node) => {
                model(trace, node).map_or_else(|| "makes a call".into(), |model| format!("waits for {model}"))
            }
            (None, Some(attempt)) => format!("runs on {}", attempt.worker_id),
            (None, None) => String::new(),
        },
        Status::Working(Phase::Waiting { children, .. }) => format!("waits for {}", names(children)),
        Status::Working(Phase::Steps) if node.is_undoing() => "undoes its completed steps".into(),
        Status::Working(Phase::Steps) => {
            let steps = trace.plan_of(node).map_or(0, |group| group.steps.len());
            let open = node.graph.as_ref().map_or(0, |run| run.progress.unfinished as usize);
            let live: Vec<ContextIndex> =
                node.children.iter().copied().filter(|child| trace.node(*child).is_live()).collect();
            let waits =
                if live.is_empty() { String::new() } else { format!("waits for {} · ", names(&live)) };
            format!("{waits}{} of {steps} steps ended", steps.saturating_sub(open))
        }
        // The reason without its command: the page has a button for that next to it.
        Status::Paused { .. } => {
            let why = node.says().unwrap_or_default();
            short(why.split_once("; go on with `").map_or(&*why, |(why, _)| why), SHOWN)
        }
        Status::InputRequired { .. } | Status::Ended(_) => {
            short(&node.says().or_else(|| node.why()).unwrap_or_default(), SHOWN)
        }
    }
}

/// The model that a context calls, if its submission or profile names it.
pub(super) fn model<'a>(trace: &'a Trace, node: &'a ContextNode) -> Option<&'a ModelName> {
    let profile = || trace.agent(node.spec.agent_id.as_ref()?)?.model.as_ref();
    node.spec.model.as_ref().or_else(profile)
}

/// True if a paid call is in flight.
fn has_call(node: &ContextNode) -> bool {
    node.calls.kept().values().any(|call| call.state == CallState::Held)
}

/// The HTML id of an item in the tree.
pub(super) fn id(child: &ChildId) -> String {
    format!("c-{child}")
}

pub(super) fn id_of_step(node: &ContextNode, step: &StepReport) -> String {
    format!("s-{}-{}", node.id, step.id)
}

/// The duration of a context. The script updates the time of a live one.
pub(super) fn lasts(from: Timestamp, until: Option<Timestamp>) -> Markup {
    html! {
        @match until {
            Some(until) => time { (text::human_time::lasts(until.millis_since(from))) },
            None => time data-since=(from.millis()) {},
        }
    }
}

/// For a context that was tried again: the worker of the attempt before, and the estimated cost of
/// calls whose end is unknown.
fn lost(node: &ContextNode) -> String {
    let mut before = node.attempts.iter().rev().skip(1);
    let worker = before
        .next()
        .map_or_else(String::new, |attempt| format!(", the one before on {}", attempt.worker_id));
    let estimated = node.budget.estimated.cost_usd;
    if estimated > Usd::ZERO { format!("{worker}; {estimated} estimated") } else { worker }
}

/// The row of a context.
pub(super) fn context(trace: &Trace, node: &ContextNode) -> Markup {
    let (word, attempts) = (trace.word(node), node.attempt());
    let budget = node.budget.snapshot();
    let is_live = node.is_live();
    let kind = match (&node.graph, &node.spec.agent_id) {
        (Some(_), _) => "graph".to_owned(),
        (None, Some(agent)) if agent.as_str() != node.id.as_str() => agent.to_string(),
        (None, _) => String::new(),
    };
    html! {
        div class="row" id={ "r-" (node.id) } {
            (status::small(&word, attempts > 1))
            a class="name" href={ "runs/" (trace.id()) "/contexts/" (node.id) } { (node.id) }
            span class="kind" { (kind) @if attempts > 1 { " · attempt " (attempts) (lost(node)) } }
            a class="amount" href=(money::href(trace.id(), &node.id)) { (budget.spent.cost_usd) span class="of" { " / " (budget.limit.cost_usd) } }
            (money::ShownBudget::of(node, &budget).bar())
            span class="now" data-live[is_live] { (doing(trace, node)) }
            (lasts(node.identity.started_at, node.end().map(|end| end.at)))
        }
    }
}

/// The steps that a step waits for.
fn waits_for(trace: &Trace, node: &ContextNode, step: &StepReport) -> String {
    let steps = trace.plan_of(node).map(|group| group.steps.as_slice()).unwrap_or_default();
    let Some(planned) = steps.iter().find(|planned| planned.id == step.id) else { return String::new() };
    let before = planned.waits_for.iter().filter_map(|on| steps.get(*on as usize));
    let names: Vec<String> = before.map(|step| step.id.to_string()).collect();
    if names.is_empty() { String::new() } else { format!("waits for {}", few(&names)) }
}

/// The row of a step, with the reason of its skip or failure, or the steps that it waits for.
pub(super) fn step(trace: &Trace, node: &ContextNode, step: &StepReport) -> Markup {
    let waits = || (step.status == StepStatus::Pending).then(|| waits_for(trace, node, step));
    let reason = step.reason.clone().or_else(waits).unwrap_or_default();
    html! {
        li id=(id_of_step(node, step)) {
            div class="row step" {
                (status::small(&word_of_step(step), false))
                span class="name" { (step.id) }
                span class="kind" { "step" }
                span class="now" { (short(&reason, SHOWN)) }
            }
        }
    }
}

/// The list beneath a context on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beneath {
    Nothing,
    /// It is loaded when the user opens it.
    Closed,
    Open,
}

/// The item of a context, with the rows beneath it.
pub(super) fn item(trace: &Trace, node: &ContextNode, beneath: Beneath, rows: &Markup) -> Markup {
    let is_open = beneath == Beneath::Open;
    html! {
        li id=(id(&node.id)) {
            @if beneath == Beneath::Nothing {
                (context(trace, node))
            } @else {
                div class="fold" {
                    button type="button" aria-expanded=(is_open) aria-controls={ "u-" (node.id) } {
                        span class="unseen" { "the rows beneath " (node.id) }
                    }
                    (context(trace, node))
                }
                ul id={ "u-" (node.id) } hidden[!is_open] data-rows=(node.id) data-load=[(!is_open).then(|| format!("runs/{}/rows/{}", trace.id(), node.id))] {
                    (rows)
                }
            }
        }
    }
}

/// The lists that are open at first, with their rows.
type Open<'a> = HashMap<&'a str, Vec<Row<'a>>>;

fn opened(trace: &Trace) -> Open<'_> {
    let (mut open, mut shown) = (Open::new(), 0);
    let mut beneath: VecDeque<&ContextNode> = trace.root().into_iter().collect();
    while let Some(node) = beneath.pop_front().filter(|_| shown < OPEN_ROWS) {
        let rows = trace.rows(node);
        let is_open = node.parent.is_none() || shown + rows.len() <= OPEN_ROWS;
        if rows.is_empty() || !is_open {
            continue;
        }
        shown += rows.len();
        let contexts =
            rows.iter().filter_map(|row| if let Row::Context(child) = row { Some(*child) } else { None });
        beneath.extend(contexts);
        open.insert(node.id.as_str(), rows);
    }
    open
}

/// The item of a context with everything beneath it.
fn branch(trace: &Trace, node: &ContextNode, open: &Open<'_>) -> Markup {
    let nothing = Markup::default();
    match open.get(node.id.as_str()) {
        _ if !has_rows(node) => item(trace, node, Beneath::Nothing, &nothing),
        None => item(trace, node, Beneath::Closed, &nothing),
        Some(rows) => item(trace, node, Beneath::Open, &list(trace, node, rows, 0, open)),
    }
}

/// The rows of a list from a position on, and a button for the rest.
fn list(trace: &Trace, node: &ContextNode, rows: &[Row<'_>], from: usize, open: &Open<'_>) -> Markup {
    let until = rows.len().min(from.saturating_add(LOADED_ROWS));
    html! {
        @for row in rows.get(from..until).unwrap_or_default() {
            @match row {
                Row::Context(child) => (branch(trace, child, open)),
                Row::Step(report) => (step(trace, node, report)),
            }
        }
        @if until < rows.len() { (more(trace, node, until, rows.len())) }
    }
}

/// The rows beneath a context that the user opens, from a position on. The lists beneath them are
/// closed.
pub(super) fn beneath(trace: &Trace, node: &ContextNode, from: usize) -> Markup {
    list(trace, node, &trace.rows(node), from, &Open::new())
}

/// A button that loads the rest of a list.
pub(super) fn more(trace: &Trace, node: &ContextNode, from: usize, rows: usize) -> Markup {
    html! {
        li class="more" {
            button type="button" data-more={ "runs/" (trace.id()) "/rows/" (node.id) "?from=" (from) } {
                (rows - from) " more"
            }
        }
    }
}

/// The whole tree.
pub(super) fn tree(trace: &Trace) -> Markup {
    html! {
        ul class="tree" { @if let Some(root) = trace.root() { (branch(trace, root, &opened(trace))) } }
    }
}

/// A hash of everything that a row shows: equal hashes mean equal rows.
pub(super) fn print(trace: &Trace, node: &ContextNode) -> u64 {
    let mut hasher = DefaultHasher::new();
    let budget = &node.budget;
    trace.word(node).hash(&mut hasher);
    for amount in [budget.ceilings.limit, budget.spent, budget.held, budget.carved, budget.estimated] {
        (amount.cost_usd.nanos(), amount.tokens.count()).hash(&mut hasher);
    }
    (
        node.attempt(),
        node.children.len(),
        node.live_children,
        node.lifecycle.waiting.len(),
        node.lifecycle.questions,
    )
        .hash(&mut hasher);
    node.answers.len().hash(&mut hasher);
    (has_call(node), node.is_undoing(), node.graph.as_ref().map(|run| run.progress.unfinished))
        .hash(&mut hasher);
    if node.parent.is_none() {
        waiting_contexts::print(waiting_contexts::all(trace)).hash(&mut hasher);
    }
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

/// A hash of the rows beneath a context and of the state of its steps; 0 if there are none.
pub(super) fn print_of_list(node: &ContextNode, shown: Option<&[Row<'_>]>) -> u64 {
    let Some(rows) = shown else { return if has_rows(node) { CLOSED } else { 0 } };
    if rows.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for row in rows {
        match row {
            Row::Context(child) => child.id.as_str().hash(&mut hasher),
            Row::Step(step) => (step.id.as_str(), word_of_step(step), &step.reason).hash(&mut hasher),
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_output_is_cut_to_a_line() {
        assert_eq!(short("a\n b\t c", 9), "a b c");
        assert_eq!(short("ööööö", 3), "ööö…");
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
