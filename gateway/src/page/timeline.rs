//! A run over time: a row for each agent, indented as in the tree, with its waits, attempts, calls
//! and tools. It is generated from the spans that `trellis trace` shows.

use std::collections::HashMap;

use domain::{
    Usd,
    span::{Moment, Span, SpanId, Value},
};
use host::clock::Clock;
use maud::{Markup, html};
use trace::{ContextNode, Row, Trace, account::Ledger};

use super::{
    answer::{self, Tag},
    bar::{self, Bar, WIDTH},
    context, row, run,
    shell::Here,
};
use crate::{blocking::blocking, call::Call, problem::ApiResult};

/// The most rows of one page; links lead to the others.
const MOST_ROWS: usize = 500;
/// The most labels of the axis.
const MOST_TICKS: usize = 8;
/// The points of the curve of the spent money.
const POINTS: usize = 200;

pub(super) async fn show(call: Call) -> ApiResult {
    let trace_id = call.part("trace")?;
    let from = call.one::<usize>("from")?.unwrap_or(0);
    let run = call.watched.run(trace_id).await?;
    let tag = Tag::of(&run).await?;
    if let Some(known) = tag.known(&call) {
        return Ok(known);
    }
    let (log, ledger, journals) = call.client.account(trace_id).await?;
    let spans = blocking(move || log.spans(&journals, Clock::Machine.now())).await?;
    let shown = run.show(move |trace| {
        let root = client::root(trace)?;
        let body = html! {
            (run::head(trace, root))
            (run::views(trace, run::View::Timeline))
            (bar::hatches())
            (looks())
            div id="part" data-redraw[root.is_live()] { (draw(trace, &spans, &ledger, from)) }
        };
        answer::page(&call, &run::title(root), Here::Runs, &body)
    });
    Ok(tag.on(shown.await?))
}

fn text_of<'a>(span: &'a Span, wanted: &str) -> Option<&'a str> {
    let (_, value) = span.attributes.iter().find(|(name, _)| name == wanted)?;
    if let Value::Text(text) = value { Some(text) } else { None }
}

/// The bars of each context, by the context's id.
fn bars(spans: &[Span], start: Moment, end: Moment) -> HashMap<String, Vec<Bar>> {
    let by_id: HashMap<SpanId, &Span> = spans.iter().map(|span| (span.span_id, span)).collect();
    let mut bars: HashMap<String, Vec<Bar>> = HashMap::new();
    for span in spans {
        let Some(bar) = Bar::of(span, start, end) else { continue };
        // The span of a context is the first one with a status on the way up.
        let mut above = Some(span);
        let context = loop {
            let Some(one) = above else { break None };
            if text_of(one, "trellis.status").is_some() {
                break text_of(one, "trellis.child_id");
            }
            above = one.parent.and_then(|parent| by_id.get(&parent).copied());
        };
        let Some(context) = context else { continue };
        bars.entry(context.to_owned()).or_default().push(bar);
    }
    bars.values_mut().for_each(bar::thin);
    bars
}

/// The buttons that zoom without a pointer. They are not part of the redrawn element, so a focused
/// button keeps the focus.
fn looks() -> Markup {
    html! {
        div class="looks" id="looks" role="group" aria-label="The shown time range" {
            @for look in ["Closer", "Wider", "Earlier", "Later", "Whole"] {
                button type="button" data-look=(look.to_lowercase()) disabled { (look) }
            }
            span class="kind" id="range" {}
            span class="kind" { "Drag over a row to zoom in." }
        }
    }
}

/// The labels of the axis, which the script places for the zoomed range.
fn axis() -> Markup {
    html! {
        svg class="axis" aria-hidden="true" {
            @for _ in 0..MOST_TICKS { g class="tick" { line y1="16" y2="22" {} text y="13" {} } }
        }
    }
}

fn draw(trace: &Trace, spans: &[Span], ledger: &Ledger, from: usize) -> Markup {
    let (start, end) = (spans.iter().map(|span| span.start).min(), spans.iter().map(|span| span.end).max());
    let (Some(start), Some(end)) = (start, end) else { return html! { p { "Nothing has happened yet." } } };
    let bars = bars(spans, start, end);
    let mut rows = Vec::new();
    if let Some(root) = trace.root() {
        collect(trace, root, 0, &mut rows);
    }
    let lasts = u64::try_from(end.since(start).as_millis()).unwrap_or(u64::MAX);
    html! {
        (bar::legend())
        @if rows.len() > MOST_ROWS {
            p { "Agents " (rows.len().min(from.saturating_add(1))) " to " (rows.len().min(from.saturating_add(MOST_ROWS))) " of " (rows.len()) "." }
        }
        div id="band" hidden {}
        table class="timeline" data-width=(WIDTH) data-lasts=(lasts.max(1)) {
            thead { tr { th scope="col" { "Agent" } th scope="col" { span class="unseen" { "Activity, from left to right" } (axis()) } } }
            tbody {
                @for (node, depth) in rows.iter().skip(from).take(MOST_ROWS) {
                    @let own = bars.get(node.id.as_str()).map(Vec::as_slice).unwrap_or_default();
                    tr {
                        th scope="row" class={ "d" ((*depth).min(6)) } {
                            a href={ "runs/" (trace.id()) "/contexts/" (node.id) } { (node.id) }
                        }
                        td {
                            svg viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" role="group" aria-label=(bar::summary(own)) {
                                @for bar in own {
                                    @match bar.entry {
                                        // Not reachable by the Tab key: the link to the agent leads
                                        // to a page with all its entries.
                                        Some(entry) => a href=(context::at_entry(trace, node, entry)) tabindex="-1" { (bar.drawn()) },
                                        None => (bar.drawn()),
                                    }
                                }
                            }
                        }
                    }
                }
                (money(ledger, start, end))
            }
        }
        @if rows.len() > MOST_ROWS {
            (row::pages(&format!("runs/{}/timeline", trace.id()), from, MOST_ROWS, rows.len()))
        }
    }
}

/// The curve of the money that was spent until each time.
fn money(ledger: &Ledger, start: Moment, end: Moment) -> Markup {
    let whole = end.since(start).as_nanos().max(1);
    let mut sums = [0i128; POINTS + 1];
    for posting in &ledger.postings {
        let passed = Moment::from(posting.place.at).since(start).as_nanos() * POINTS as u128 / whole;
        let change =
            i128::from(posting.booked.cost_usd.nanos()) - i128::from(posting.before.cost_usd.nanos());
        sums[usize::try_from(passed).unwrap_or(POINTS).min(POINTS)] += change;
    }
    let mut sum = 0;
    for place in &mut sums {
        sum += *place;
        *place = sum;
    }
    let most = sums.iter().copied().max().unwrap_or(0);
    let total = Usd::from_nanos(u64::try_from(sum).unwrap_or(0));
    // In thousandths of a row's units: y = 9 means no spending, y = 1 the most.
    let line: Vec<String> = sums
        .iter()
        .enumerate()
        .map(|(place, sum)| {
            format!("{},{}", place as u64 * WIDTH / POINTS as u64, 9000 - sum.max(&0) * 8000 / most.max(1))
        })
        .collect();
    html! {
        @if most > 0 {
            tr class="spent" {
                th scope="row" { "Spent" span class="of" { " " (total) } }
                td {
                    svg viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" role="img" aria-label={ "Spent over time, " (total) " in all" } {
                        g transform="scale(1 0.001)" { polyline points=(line.join(" ")) {} }
                    }
                }
            }
        }
    }
}

/// A context and all contexts beneath it, with their depths in the tree.
fn collect<'a>(
    trace: &'a Trace,
    node: &'a ContextNode,
    depth: usize,
    into: &mut Vec<(&'a ContextNode, usize)>,
) {
    into.push((node, depth));
    for row in trace.rows(node) {
        if let Row::Context(child) = row {
            collect(trace, child, depth + 1, into);
        }
    }
}
