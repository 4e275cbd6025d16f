//! The graph of a run, drawn from left to right: a card for each step, with its state and cost, behind those that it waits for.

use coordinator::trace::{ContextNode, Trace, word_of_step};
use maud::{Markup, html};
use shared::{
    ChildId,
    graph::Group,
    wire::{StepReport, StepStatus},
};

use super::{answer, live, row, run, shell::Here, status};
use crate::{
    call::{Answered, Call},
    cluster,
    problem::ProblemDetails,
    routes::context,
};

/// The size of a card, and the room between two.
const CARD: (usize, usize) = (180, 58);
const GAP: (usize, usize) = (60, 18);
/// Characters of a name on a card, and of a reason.
const NAME: usize = 20;
const REASON: usize = 26;
/// A graph with more steps is shown by its tree.
const MOST_STEPS: usize = 400;

pub(super) async fn show(call: Call) -> Answered {
    let run = call.watched.run(call.part("trace")?).await?;
    let of = call.one("of")?;
    run.show(move |trace| {
        let root = cluster::root(trace)?;
        let node = match &of {
            Some(child) => context(trace, child)?,
            None => root,
        };
        let Some(group) = trace.plan_of(node) else {
            return Err(ProblemDetails::not_found("no_graph", format!("`{}` is no graph", node.id)));
        };
        let live = root.is_live().then(|| format!("runs/{}/graph/live?of={}", trace.id(), node.id));
        let body = html! {
            (run::head(trace, root))
            (run::views(trace, run::View::Graph))
            @if node.parent.is_some() { p { a href={ "runs/" (trace.id()) "/graph" } { "The whole graph" } " › " (node.id) } }
            div class="graph" id="part" tabindex="0" role="region" aria-label="The graph" data-live=[live] { (part(trace, node, group)) }
        };
        answer::page(&call, &run::title(root), Here::Runs, &body)
    })
    .await
}

/// The graph as it goes on.
pub(super) async fn live(call: Call) -> Answered {
    let of = call.one::<ChildId>("of")?;
    let draw = move |trace: &Trace| {
        let node = of.as_ref().map_or_else(|| trace.root(), |child| trace.context(child))?;
        Some(part(trace, node, trace.plan_of(node)?))
    };
    live::part(call, draw).await
}

fn part(trace: &Trace, node: &ContextNode, group: &Group) -> Markup {
    html! {
        @if group.steps.len() > MOST_STEPS {
            p { "It has " (group.steps.len()) " steps: look at its tree." }
        } @else {
            (draw(trace, node, group))
            p class="legend" {
                @for word in ["completed", "running", "input_required", "pending", "skipped", "failed", "timed_out", "aborted", "cancelled"] {
                    span { span class={ "mark " (status::class(word)) } aria-hidden="true" { (status::sign_of(word)) } " " (status::words(word)) }
                }
            }
        }
    }
}

/// In which column each step stands: behind all that it waits for.
fn columns(group: &Group) -> Vec<usize> {
    let mut columns = vec![0; group.steps.len()];
    // A step waits for earlier ones only; as many rounds as there are steps are enough whatever their order.
    for _ in 0..group.steps.len() {
        let mut moved = false;
        for (place, step) in group.steps.iter().enumerate() {
            let column = step.waits_for.iter().map(|on| columns[*on as usize] + 1).max().unwrap_or(0);
            if column > columns[place] {
                columns[place] = column;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    columns
}

/// A card of the drawing.
#[derive(Debug, Default)]
pub(super) struct Card {
    pub(super) title: String,
    pub(super) class: &'static str,
    pub(super) sign: &'static str,
    pub(super) name: String,
    pub(super) note: String,
    pub(super) href: Option<String>,
    pub(super) is_pale: bool,
}

/// The steps of a graph or group as cards, each behind those that it waits for.
pub(super) fn lay_out(group: &Group, cards: &[Card]) -> Markup {
    let columns = columns(group);
    let mut rows = vec![0; columns.len()];
    let mut taken = vec![0; columns.iter().max().map_or(1, |last| last + 1)];
    for (place, column) in columns.iter().enumerate() {
        rows[place] = taken[*column];
        taken[*column] += 1;
    }
    let at = |place: usize| (columns[place] * (CARD.0 + GAP.0) + 2, rows[place] * (CARD.1 + GAP.1) + 2);
    let width = taken.len() * (CARD.0 + GAP.0) - GAP.0 + 4;
    let height = taken.iter().max().copied().unwrap_or(1) * (CARD.1 + GAP.1) + 4;
    html! {
        svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } {
            @for (place, step) in group.steps.iter().enumerate() {
                @for on in &step.waits_for {
                    @let (from, to) = (at(*on as usize), at(place));
                    path class="edge" d=(edge(from, to)) {}
                    @let (x, y) = (to.0, to.1 + CARD.1 / 2);
                    path class="tip" d={ "M" (x) " " (y) " l-8 -4 v8 z" } {}
                }
            }
            @for (place, card) in cards.iter().enumerate().take(columns.len()) { (drawn(card, at(place))) }
        }
    }
}

/// From the right side of a card to the left side of a later one. Cards in between are passed beneath.
fn edge(from: (usize, usize), to: (usize, usize)) -> String {
    let (x1, y1, x2, y2) = (from.0 + CARD.0, from.1 + CARD.1 / 2, to.0, to.1 + CARD.1 / 2);
    let curve = |x: usize, y: usize, x2: usize, y2: usize| {
        let middle = (x + x2) / 2;
        format!("C{middle} {y} {middle} {y2} {x2} {y2}")
    };
    let (next, before) = (x1 + GAP.0, x2 - GAP.0);
    if next == x2 {
        return format!("M{x1} {y1} {}", curve(x1, y1, x2, y2));
    }
    let lane = from.1 + CARD.1 + GAP.1 / 2;
    format!("M{x1} {y1} {} H{before} {}", curve(x1, y1, next, lane), curve(before, lane, x2, y2))
}

fn drawn(card: &Card, (x, y): (usize, usize)) -> Markup {
    let content = html! {
        title { (card.title) }
        rect class={ "card " (card.class) } x=(x) y=(y) width=(CARD.0) height=(CARD.1) rx="6" {}
        text x=(x + 10) y=(y + 23) class="step" { tspan class={ "mark " (card.class) } { (card.sign) } " " (row::short(&card.name, NAME)) }
        text x=(x + 10) y=(y + 44) class="note" { (row::short(&card.note, REASON)) }
    };
    html! {
        g class=[card.is_pale.then_some("pale")] {
            @match &card.href { Some(href) => a href=(href) { (content) }, None => (content) }
        }
    }
}

fn draw(trace: &Trace, node: &ContextNode, group: &Group) -> Markup {
    let steps = trace.graph_outcome(node).map(|outcome| outcome.steps).unwrap_or_default();
    let cards: Vec<Card> = steps.iter().map(|step| card(trace, step)).collect();
    lay_out(group, &cards)
}

/// A step as it is now.
fn card(trace: &Trace, step: &StepReport) -> Card {
    let context = step.contexts.last().and_then(|id| trace.context(id));
    // A step that runs may wait for somebody.
    let word = match context.filter(|node| node.is_live()) {
        Some(node) => trace.word(node),
        None => word_of_step(step),
    };
    let href = context.map(|node| match node.graph {
        Some(_) => format!("runs/{}/graph?of={}", trace.id(), node.id),
        None => format!("runs/{}/contexts/{}", trace.id(), node.id),
    });
    let many = if step.contexts.len() > 1 { format!(" ×{}", step.contexts.len()) } else { String::new() };
    let attempt = context.filter(|node| node.is_live()).map_or(0, ContextNode::attempt);
    let again = if attempt > 1 { format!(" · attempt {attempt}") } else { String::new() };
    let reason = step.reason.as_deref().unwrap_or_default();
    let why = if reason.is_empty() { String::new() } else { format!(": {}", row::short(reason, 400)) };
    Card {
        title: format!("{}, {}{why}", step.id, status::words(&word)),
        class: status::class(&word),
        sign: status::sign_of(&word),
        name: format!("{}{many}", step.id),
        note: if reason.is_empty() { format!("{}{again}", step.cost_usd) } else { reason.to_owned() },
        href,
        is_pale: matches!(step.status, StepStatus::Skipped | StepStatus::Pending),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::{decode::Format, graph};

    use super::*;

    #[test]
    fn a_step_stands_behind_all_that_it_waits_for() {
        let graph = json!({"name": "g", "mode": "parallel", "steps": [
            {"id": "a", "agent_id": "x", "task_description": "a"},
            {"id": "b", "agent_id": "x", "task_description": "b", "depends_on": ["a"]},
            {"id": "c", "agent_id": "x", "task_description": "c"},
            {"id": "d", "agent_id": "x", "task_description": "d", "depends_on": ["b", "c"]},
        ]});
        let (_, plan) = graph::read(graph.to_string().as_bytes(), Format::Json).unwrap();
        assert_eq!(columns(plan.group(0)), [0, 1, 0, 2]);
    }
}
