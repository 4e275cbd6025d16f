//! The receipt of a run as a page, with sums by agent and model; and the list of its events in
//! words, with their costs.

use domain::{Amount, TraceId, Usd, wording::count};
use maud::{Markup, html};
use text::human_time;
use trace::{
    Trace,
    account::{ContextAccount, Line, Receipt},
};

use super::{
    answer::{self, Tag},
    row, run,
    shell::Here,
};
use crate::{
    blocking::blocking,
    call::Call,
    problem::{ApiResult, ProblemDetails},
};

/// The most agents that are listed, in the order of the tree.
const AGENTS: usize = 500;
/// The events on one page.
const EVENTS: usize = 200;
/// The most characters of an event's detail.
const DETAIL: usize = 300;

/// The receipt of a run, and true if its log is complete.
async fn made(call: &Call, trace_id: TraceId) -> ApiResult<(Receipt, bool)> {
    let (log, ledger, journals) = call.client.account(trace_id).await?;
    let made = blocking(move || Some((Receipt::of(&log, &ledger, &journals)?, log.findings.is_empty())));
    let message = || format!("the event log of {trace_id} has no context, so there is no receipt");
    made.await?.ok_or_else(|| ProblemDetails::not_found("expired", message()))
}

/// A view that is generated from the receipt of a run.
async fn view(
    call: Call,
    view: run::View,
    draw: impl FnOnce(&Trace, &Receipt) -> Markup + Send + 'static,
) -> ApiResult {
    let trace_id = call.part("trace")?;
    let run = call.watched.run(trace_id).await?;
    let tag = Tag::of(&run).await?;
    if let Some(known) = tag.known(&call) {
        return Ok(known);
    }
    let (receipt, is_whole) = made(&call, trace_id).await?;
    let shown = run.show(move |trace| {
        let root = client::root(trace)?;
        let body = html! {
            (run::head(trace, root))
            (run::views(trace, view))
            div id="part" data-redraw[root.is_live()] {
                @if !is_whole { p class="wrong" { "The event log is incomplete, and so is this view. `trellis audit` shows the problems." } }
                (draw(trace, &receipt))
            }
        };
        answer::page(&call, &run::title(root), Here::Runs, &body)
    });
    Ok(tag.on(shown.await?))
}

pub(super) async fn show(call: Call) -> ApiResult {
    view(call, run::View::Receipt, sums).await
}

pub(super) async fn events(call: Call) -> ApiResult {
    let from = call.one::<usize>("from")?.unwrap_or(0);
    view(call, run::View::Events, move |trace, receipt| happened(trace, receipt, from)).await
}

fn table(caption: &str, names: &[&str], rows: &Markup) -> Markup {
    html! {
        h2 { (caption) }
        table class="list" {
            thead { tr { @for name in names { th scope="col" { (name) } } } }
            tbody { (rows) }
        }
    }
}

fn sums(trace: &Trace, receipt: &Receipt) -> Markup {
    let Receipt { total, so_far, contexts, models, other, .. } = receipt;
    let estimated = contexts.first().map_or(Usd::ZERO, |root| root.estimated.cost_usd);
    let agents = html! { @for one in contexts.iter().take(AGENTS) { (account(trace, one)) } };
    let of_models = html! {
        @for model in models {
            tr {
                th scope="row" { (model.model) }
                td data-name="Calls" { (model.calls) }
                td data-name="Tokens in" { (model.usage.input_tokens) }
                td data-name="of them cached" { (model.usage.cached_tokens) }
                td data-name="Tokens out" { (model.usage.output_tokens) }
                td data-name="Cost" { (with_estimate(model.cost, model.estimated)) }
            }
        }
        @for one in other {
            tr {
                th scope="row" { (one.what) }
                td data-name="Calls" { (one.bookings) }
                @for name in ["Tokens in", "of them cached", "Tokens out"] { td data-name=(name) { "–" } }
                td data-name="Cost" { (one.cost.cost_usd) }
            }
        }
    };
    html! {
        p class="sum" {
            strong { (total.cost_usd) } @if *so_far { " so far" } ", " (total.tokens) " tokens"
            @if estimated > Usd::ZERO { "; " (estimated) " of it is estimated: the end of those calls is unknown" }
            ". " a href={ "v1/runs/" (trace.id()) "/receipt" } { "As JSON" }
        }
        (table("By agent: spent is the sum of own and beneath it", &["Agent", "Own", "Beneath it", "Spent", "Of", "Ran", "Waited"], &agents))
        @if contexts.len() > AGENTS { p class="hint" { "And " (count(contexts.len() - AGENTS, "more agent")) ": the JSON has them all." } }
        @if !models.is_empty() || !other.is_empty() {
            (table("By model", &["Model", "Calls", "Tokens in", "of them cached", "Tokens out", "Cost"], &of_models))
        }
    }
}

fn with_estimate(cost: Amount, estimated: Amount) -> Markup {
    html! {
        (cost.cost_usd)
        @if estimated.cost_usd > Usd::ZERO { span class="of" { " (" (estimated.cost_usd) " estimated)" } }
    }
}

fn account(trace: &Trace, one: &ContextAccount) -> Markup {
    let waits = [
        ("a worker", one.wait.worker_ms),
        ("a human", one.wait.human_ms),
        ("agents", one.wait.children_ms),
        ("calls in flight", one.wait.hold_ms),
        ("a larger budget", one.wait.budget_ms),
    ];
    let waited: Vec<String> = waits
        .into_iter()
        .filter(|(_, millis)| *millis > 0)
        .map(|(whom, millis)| format!("{} for {whom}", human_time::lasts(millis)))
        .collect();
    // A context that waits continues in a new attempt, so attempts do not count its tries; retries
    // do.
    let tries = trace.context(&one.child_id).map_or(1, |node| node.lifecycle.retried.saturating_add(1));
    html! {
        tr {
            th scope="row" class={ "d" (one.depth.min(6)) } {
                a href={ "runs/" (trace.id()) "/contexts/" (one.child_id) } { (one.child_id) }
                @if let Some(from) = &one.taken_from { span class="kind" { " taken over from " (from.trace_id.to_string().get(..8).unwrap_or_default()) } }
            }
            td data-name="Own" { (one.own.cost_usd) }
            td data-name="Beneath it" { (one.children.cost_usd) }
            td data-name="Spent" { (with_estimate(one.spent, one.estimated)) }
            td data-name="Of" { (one.limit.cost_usd) }
            td data-name="Ran" { (human_time::lasts(one.wait.ran_ms)) @if tries > 1 { span class="of" { " in " (count(tries, "attempt")) } } }
            td data-name="Waited" { (waited.join(", ")) }
        }
    }
}

/// The events from a position on, the oldest first.
fn happened(trace: &Trace, receipt: &Receipt, from: usize) -> Markup {
    let all = &receipt.lines;
    let until = all.len().min(from.saturating_add(EVENTS));
    let shown = all.get(from..until).unwrap_or_default();
    let rows = html! { @for line in shown { (event(trace, receipt, line)) } };
    html! {
        p class="sum" {
            "The notable ones of " (count(receipt.version, "event"))
            @if all.len() > EVENTS { ", " (from.saturating_add(1)) " to " (until) " of " (all.len()) }
            ". " a href={ "v1/runs/" (trace.id()) "/events" } { "All of them, as JSON" }
        }
        (table("What happened", &["Event", "After", "Agent", "What", "Cost", "Detail"], &rows))
        (row::pages(&format!("runs/{}/events", trace.id()), from, EVENTS, all.len()))
    }
}

fn event(trace: &Trace, receipt: &Receipt, line: &Line) -> Markup {
    let after = line.place.at.millis_since(receipt.began);
    html! {
        tr id={ "event-" (line.place.event) } {
            th scope="row" { a href={ "runs/" (trace.id()) "/money?at=" (line.place.event) } title="The money after it" { (line.place.event) } }
            td data-name="After" { time title=(line.place.at) { (human_time::lasts(after)) } }
            td data-name="Agent" { @if let Some(child) = &line.child_id { a href={ "runs/" (trace.id()) "/contexts/" (child) } { (child) } } }
            td data-name="What" { (line.what) @if let Some(waited) = line.waited_ms { span class="of" { " after " (human_time::lasts(waited)) } } }
            td data-name="Cost" {
                @if let Some(cost) = &line.cost {
                    (cost.booked.cost_usd)
                    @if cost.before.cost_usd > Usd::ZERO { span class="of" { " instead of " (cost.before.cost_usd) } }
                    @if cost.held.cost_usd > Usd::ZERO { span class="of" { " of " (cost.held.cost_usd) " held" } }
                }
            }
            td data-name="Detail" class="said" {
                @match line.cost.as_ref().and_then(|cost| cost.model.as_ref()) {
                    Some(model) => (model),
                    None => (row::short(&line.detail, DETAIL)),
                }
            }
        }
    }
}
