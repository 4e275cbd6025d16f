//! The graph of a run, drawn from left to right: a card per step with its state and cost, to the
//! right of the steps that it waits for.

use domain::{ChildId, wire::StepReport};
use maud::{Markup, html};
use trace::ContextNode;

use super::{answer, card::Now, layout::lay_out, live, row, run, shell::Here, status};
use crate::{
    call::Call,
    live_runs::State,
    problem::{ApiResult, ProblemDetails},
    routes::context,
};

/// A graph with more steps is shown only as a tree.
const MOST_STEPS: usize = 400;
/// The most characters of a condition, and of the values that it read.
const CONDITION: usize = 600;

pub(super) async fn show(call: Call) -> ApiResult {
    let run = call.watched.run(call.part("trace")?).await?;
    let of = call.one("of")?;
    run.look(move |state| {
        let trace = state.trace();
        let root = client::root(trace)?;
        let node = match &of {
            Some(child) => context(trace, child)?,
            None => root,
        };
        let Some(drawn) = part(state, node) else {
            return Err(ProblemDetails::not_found("no_graph", format!("`{}` is not a graph", node.id)));
        };
        let live = root.is_live().then(|| format!("runs/{}/graph/live?of={}", trace.id(), node.id));
        let body = html! {
            (run::head(trace, root))
            (run::views(trace, run::View::Graph))
            @if node.parent.is_some() { p { a href={ "runs/" (trace.id()) "/graph" } { "The whole graph" } " › " (node.id) } }
            div class="graph" id="part" tabindex="0" role="region" aria-label="The graph" data-live=[live] { (drawn) }
        };
        answer::page(&call, &run::title(root), Here::Runs, &body)
    })
    .await?
}

/// The live updates of the graph.
pub(super) async fn live(call: Call) -> ApiResult {
    let of = call.one::<ChildId>("of")?;
    let draw = move |state: &State| {
        let trace = state.trace();
        part(state, of.as_ref().map_or_else(|| trace.root(), |child| trace.context(child))?)
    };
    live::part(call, draw).await
}

/// The drawing of a graph with its legend; none for a context that runs an agent.
fn part(state: &State, node: &ContextNode) -> Option<Markup> {
    let trace = state.trace();
    let group = trace.plan_of(node)?;
    if group.steps.len() > MOST_STEPS {
        return Some(
            html! { p { "The graph has " (group.steps.len()) " steps, too many to draw: see its tree." } },
        );
    }
    let steps = trace.graph_outcome(node).map(|outcome| outcome.steps).unwrap_or_default();
    let now = Now { trace, saw: state.saw(), node, group, depth: 0 };
    Some(html! {
        (lay_out(group, &now.cards(&steps)))
        (legend())
        (skipped(&now, &steps))
    })
}

fn legend() -> Markup {
    html! {
        p class="legend" {
            @for word in ["completed", "running", "input_required", "pending", "skipped", "failed", "timed_out", "aborted", "cancelled"] {
                span { span class={ "mark " (status::class(word)) } aria-hidden="true" { (status::sign_of(word)) } " " (status::words(word)) }
            }
            @for (class, word) in [("edge", "reads its output"), ("edge order", "only starts after it")] {
                span { svg class="key line" aria-hidden="true" { path class=(class) d="M0 6h28" {} } " " (word) }
            }
            span { svg class="key" aria-hidden="true" { rect class="card" x="1" y="1" width="12" height="10" {} rect class="card" x="3" y="3" width="8" height="6" {} } " group of steps" }
        }
    }
}

/// The steps that were skipped by their condition, with the values that it read. A card has no room
/// for them.
fn skipped(now: &Now<'_>, steps: &[StepReport]) -> Markup {
    let places = (0u32..).zip(now.group.steps.iter().zip(steps));
    let skipped: Vec<_> = places
        .filter_map(|(place, (step, report))| Some((&step.id, now.skipped(step, place, report)?)))
        .collect();
    html! {
        @if !skipped.is_empty() {
            h2 { "Skipped by their condition" }
            ul class="plain skipped" {
                @for (id, (when, saw)) in skipped {
                    li { strong { (id) } " when " code { (row::short(&when, CONDITION)) } @if let Some(saw) = saw { "; it read " code { (row::short(&saw, CONDITION)) } } }
                }
            }
        }
    }
}
