//! The page of one run: its state, its money, its actions, and its tree.

use axum::http::StatusCode;
use domain::{
    Timestamp,
    graph::Body,
    subject::Subject,
    wire::{EndStatus, Text},
};
use maud::{Markup, html};
use serde_json::json;
use trace::{ContextNode, Trace};

use super::{answer, money, open_requests, raise, row, shell::Here, status, waiting_contexts};
use crate::{call::Call, problem::ApiResult, routes::context};

/// The most characters of a goal in the title.
const TITLE: usize = 80;

/// The title of a run: its goal, or else the id of its root.
pub(super) fn title(root: &ContextNode) -> String {
    let goal = root.spec.goal.as_ref().map(Text::as_str).filter(|goal| !goal.is_empty());
    row::short(goal.unwrap_or(root.id.as_str()), TITLE)
}

/// The head of every view of a run: its title, state, requests to people, and money.
pub(super) fn head(trace: &Trace, root: &ContextNode) -> Markup {
    head_at(trace, root, None)
}

/// The head for the run as it was at `at`; without a time, for the present run.
pub(super) fn head_at(trace: &Trace, root: &ContextNode, at: Option<Timestamp>) -> Markup {
    let until = root.end().map(|end| end.at).or(at);
    let budget = root.budget.snapshot();
    let asks = root.lifecycle.questions;
    html! {
        header class="head" id="head" data-version=(trace.version()) data-asks=[waiting_contexts::print(waiting_contexts::all(trace))] {
            nav class="way" aria-label="Breadcrumbs" { a href="./" data-up { "‹ Runs" } }
            h1 { (title(root)) }
            p class="state" {
                @if at.is_some() { em { "at that time: " } }
                (status::mark(&trace.word(root))) " · " (row::lasts(root.identity.started_at, until))
                @if asks > 0 { " · " strong { a href={ "runs/" (trace.id()) "#asked" } { (domain::wording::count(asks, "question")) " open" } } }
                @if root.is_live() { " · " (row::doing(trace, root)) }
            }
            @let money = money::ShownBudget::of(root, &budget);
            div class="money" { (money.link(trace.id(), &root.id)) span { (money.told()) } }
            @if let Some(why) = root.why() { p class="wrong" { (row::short(&why, 600)) } }
        }
    }
}

/// The views of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Tree,
    Graph,
    Timeline,
    Money,
    Files,
    Receipt,
    Events,
}

/// The links to the views.
pub(super) fn views(trace: &Trace, here: View) -> Markup {
    let path = format!("runs/{}", trace.id());
    let mut views = vec![(View::Tree, "Tree", path.clone())];
    if trace.root().is_some_and(|root| root.graph.is_some()) {
        views.push((View::Graph, "Graph", format!("{path}/graph")));
    }
    views.push((View::Timeline, "Timeline", format!("{path}/timeline")));
    views.push((View::Money, "Money", format!("{path}/money")));
    views.push((View::Files, "Files", format!("{path}/files")));
    views.push((View::Receipt, "Receipt", format!("{path}/receipt")));
    views.push((View::Events, "Events", format!("{path}/events")));
    html! {
        nav class="views" aria-label="Views of this run" {
            @for (view, name, href) in views { a href=(href) aria-current=[(view == here).then_some("page")] { (name) } }
        }
    }
}

/// The actions that the caller may take on the run.
fn actions(call: &Call, trace: &Trace, root: &ContextNode) -> Markup {
    let path = format!("v1/runs/{}", trace.id());
    html! {
        div class="actions" id="actions" {
            @if root.is_live() && call.may_send(&Subject::Cancel) {
                button type="button" data-post={ (path) "/cancel" } data-body="{}"
                    data-ask={ "Cancel “" (title(root)) "”? All of its agents are stopped. Calls in flight are cut off; a call whose cost is unknown is booked at its \
                        hold. Money that was spent stays spent." } { "Cancel" }
            }
            @if root.is_live() && raise::is_allowed(call) {
                details class="branch" { summary { "Raise" } (raise::form(trace.id(), &root.id, root.budget.ceilings.limit.cost_usd)) }
            }
            @if !root.is_live() && call.may_send(&Subject::Submit) { (rerun(trace, root)) }
            @if let Some(url) = call.trace_url.as_ref().map(|url| url.of(trace.id())) { a href=(url) target="_blank" rel="noopener noreferrer" { "Trace ↗" } }
            a href=(path) { "JSON" }
        }
    }
}

/// Forms that run the graph again as a new run: the steps that did not succeed, or chosen steps and
/// those that depend on them.
fn rerun(trace: &Trace, root: &ContextNode) -> Markup {
    let Some(outcome) = trace.graph_outcome(root) else { return Markup::default() };
    let has_failed = root.end().is_some_and(|end| end.status != EndStatus::Completed);
    let asks = trace
        .plan_of(root)
        .is_some_and(|group| group.steps.iter().any(|step| matches!(step.body, Body::Approve(_))));
    let most = root.budget.ceilings.limit.cost_usd;
    let again = if asks { " Its approvals are asked again." } else { "" };
    html! {
        @if has_failed {
            button type="button" data-post="v1/runs" data-go="runs/" data-body=(json!({"rerun": {"trace_id": trace.id()}}))
                data-ask={ "Run the unsuccessful steps again, as a new run? It may cost " (most) " at most; the results of the successful steps are taken over." (again) } { "Rerun" }
        }
        details class="branch" {
            summary { "Rerun from a step" }
            form data-json="v1/runs" data-go="runs/" data-body=(json!({"rerun": {"trace_id": trace.id()}})) {
                p class="hint" { "A new run: these steps and all steps that depend on them run again; the results of the others are taken over. It may cost " (most) " at most." (again) }
                label { "Steps " select name="rerun.from" multiple required size=(outcome.steps.len().clamp(2, 8)) {
                    @for step in &outcome.steps { option value=(step.id) { (step.id) } }
                } }
                button type="submit" data-ask={ "Run these steps, and the steps that depend on them, again as a new run? It may cost " (most) " at most." (again) } { "Rerun" }
            }
        }
    }
}

pub(super) async fn show(call: Call) -> ApiResult {
    let run = call.watched.run(call.part("trace")?).await?;
    run.show(move |trace| {
        let root = client::root(trace)?;
        let result =
            root.end().and_then(|end| end.details.result.as_ref()).map(|_| root.says().unwrap_or_default());
        let live = root.is_live().then(|| format!("runs/{}/live?version={}", trace.id(), trace.version()));
        let body = html! {
            (head(trace, root))
            div id="asked" { (open_requests::cards(&call, trace, &waiting_contexts::all(trace))) }
            (actions(&call, trace, root))
            (views(trace, View::Tree))
            section aria-label="Agents" data-live=[live] { (row::tree(trace)) }
            section class="result" id="result" {
                @if let Some(result) = result { h2 { "Result" } pre { (result) } }
            }
            p class="id" { "run " code { (trace.id()) } }
        };
        answer::page(&call, &title(root), Here::Runs, &body)
    })
    .await
}

/// The rows beneath a context, which the page loads when the user opens its list.
pub(super) async fn rows(call: Call) -> ApiResult {
    let from = call.one::<usize>("from")?.unwrap_or(0);
    let child = call.part("child")?;
    let run = call.watched.run(call.part("trace")?).await?;
    run.show(move |trace| {
        let node = context(trace, &child)?;
        Ok(answer::document(StatusCode::OK, row::beneath(trace, node, from)))
    })
    .await
}
