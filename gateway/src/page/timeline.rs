//! A run over time: a row for each agent, indented as the tree, with its waits, attempts, calls and tools. Made from the same spans as
//! `trellis trace` shows.

use std::collections::HashMap;

use coordinator::trace::{
    ContextNode, Row, Trace,
    account::{Ledger, entry_of},
};
use maud::{Markup, html};
use shared::{
    Usd,
    clock::Clock,
    telemetry::{Moment, Span, SpanId, Value},
    when,
};

use super::{answer, context, row, run, shell::Here};
use crate::{
    blocking::blocking,
    call::{Answered, Call},
    cluster,
};

/// Rows of one page: the rest is a link away.
const MOST_ROWS: usize = 500;
/// The width of a row in its own units.
const WIDTH: u64 = 10_000;
/// The least width of a bar.
const NARROWEST: u64 = 20;
/// Points of the line of what was spent.
const POINTS: usize = 200;

/// A bar of a row.
#[derive(Debug)]
struct Bar {
    class: &'static str,
    from: u64,
    width: u64,
    told: String,
    /// The entry of the journal that tells of it.
    entry: Option<u64>,
}

pub(super) async fn show(call: Call) -> Answered {
    let trace_id = call.part("trace")?;
    let from = call.one::<usize>("from")?.unwrap_or(0);
    let run = call.watched.run(trace_id).await?;
    let (log, ledger, journals) = cluster::account(&call.bus, trace_id).await?;
    let spans = blocking(move || log.spans(&journals, Clock::Machine.now())).await?;
    run.show(move |trace| {
        let root = cluster::root(trace)?;
        let body = html! {
            (run::head(trace, root))
            (run::views(trace, run::View::Timeline))
            div id="part" data-redraw[root.is_live()] { (draw(trace, &spans, &ledger, from)) }
        };
        answer::page(&call, &run::title(root), Here::Runs, &body)
    })
    .await
}

/// What a span is on a row; none if it is drawn by others.
fn class(span: &Span) -> Option<&'static str> {
    let name: &str = &span.name;
    let begins = |word: &str| name.starts_with(word);
    match () {
        () if begins("queue wait") => Some("queue"),
        () if begins("wait ") => Some("waits"),
        () if begins("attempt ") && span.error.as_deref() == Some("worker_lost") => Some("lost"),
        () if begins("attempt ") && span.error.is_some() => Some("failed"),
        () if begins("attempt ") => Some("attempt"),
        () if begins("chat ") || begins("call ") => Some("chat"),
        () if begins("execute_tool ") => Some("tool"),
        // A graph waits for its steps.
        () if begins("invoke_workflow") => Some("waits"),
        () => None,
    }
}

fn text_of<'a>(span: &'a Span, wanted: &str) -> Option<&'a str> {
    let (_, value) = span.attributes.iter().find(|(name, _)| name == wanted)?;
    if let Value::Text(text) = value { Some(text) } else { None }
}

/// The bars of each context, by its id.
fn bars(spans: &[Span], start: Moment, end: Moment) -> HashMap<String, Vec<Bar>> {
    let by_id: HashMap<SpanId, &Span> = spans.iter().map(|span| (span.span_id, span)).collect();
    let whole = end.since(start).as_nanos().max(1);
    let place = |at: Moment| {
        let passed = at.since(start).as_nanos() * u128::from(WIDTH) / whole;
        u64::try_from(passed).unwrap_or(WIDTH).min(WIDTH)
    };
    let mut bars: HashMap<String, Vec<Bar>> = HashMap::new();
    for span in spans {
        let Some(class) = class(span) else { continue };
        // The span of its context is the first above it that has a status.
        let mut above = Some(span);
        let context = loop {
            let Some(one) = above else { break None };
            if text_of(one, "trellis.status").is_some() {
                break text_of(one, "trellis.child_id");
            }
            above = one.parent.and_then(|parent| by_id.get(&parent).copied());
        };
        let Some(context) = context else { continue };
        let (from, to) = (place(span.start), place(span.end));
        let lasts = u64::try_from(span.end.since(span.start).as_millis()).unwrap_or(u64::MAX);
        let error = span.error.as_ref().map_or_else(String::new, |error| format!(", {error}"));
        let told = format!("{}, {}{error}", span.name, when::lasts(lasts));
        bars.entry(context.to_owned()).or_default().push(Bar {
            class,
            from,
            width: (to - from).max(NARROWEST),
            told,
            entry: entry_of(span),
        });
    }
    bars.values_mut().for_each(thin);
    bars
}

/// Leaves out short bars that would lie on one of their kind: however long a journal is, a row has a few thousand at most.
fn thin(bars: &mut Vec<Bar>) {
    bars.sort_by_key(|bar| (bar.from, !bar.is_attempt()));
    let mut drawn: HashMap<&str, u64> = HashMap::new();
    bars.retain(|bar| {
        let is_seen = drawn.get(bar.class).is_none_or(|last| bar.from >= last + NARROWEST / 4);
        if is_seen || bar.width > NARROWEST {
            drawn.insert(bar.class, bar.from);
            return true;
        }
        false
    });
}

impl Bar {
    fn is_attempt(&self) -> bool {
        matches!(self.class, "attempt" | "failed" | "lost")
    }

    fn drawn(&self) -> Markup {
        let (y, height) = if self.is_attempt() { (1, 8) } else { (3, 4) };
        html! { rect class=(self.class) x=(self.from) width=(self.width) y=(y) height=(height) { title { (self.told) } } }
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
        p class="legend" {
            @for (class, word) in [("queue", "in the queue"), ("attempt", "attempt"), ("chat", "model"), ("tool", "tool"), ("waits", "waits"), ("failed", "failed"), ("lost", "lost")] {
                span { svg class="key" viewBox="0 0 10 10" aria-hidden="true" { rect class=(class) width="10" height="10" {} } " " (word) }
            }
            span class="kind" { "the whole is " (when::lasts(lasts)) "; drag over it to look closer" }
            button type="button" id="whole" hidden { "Show all" }
        }
        @if rows.len() > MOST_ROWS {
            p { "Agents " (rows.len().min(from.saturating_add(1))) " to " (rows.len().min(from.saturating_add(MOST_ROWS))) " of " (rows.len()) "." }
        }
        div id="band" hidden {}
        table class="timeline" data-zoom=(WIDTH) data-lasts=(lasts.max(1)) {
            thead class="unseen" { tr { th scope="col" { "Agent" } th scope="col" { "What it did" } } }
            tbody {
                @for (node, depth) in rows.iter().skip(from).take(MOST_ROWS) {
                    @let own = bars.get(node.id.as_str()).map(Vec::as_slice).unwrap_or_default();
                    tr {
                        th scope="row" class={ "d" ((*depth).min(6)) } {
                            a href={ "runs/" (trace.id()) "/contexts/" (node.id) } { (node.id) }
                        }
                        td {
                            svg viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" role="group" aria-label=(summary(own)) {
                                @for bar in own {
                                    @match bar.entry {
                                        // The keys go by way of the agent, whose page has all entries.
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

/// What was spent by then, as a line that rises to all of it.
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
    // In the units of a row: from its foot, nearly to its top.
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

/// A row in words.
fn summary(bars: &[Bar]) -> String {
    let count = |class: &str| bars.iter().filter(|bar| bar.class == class).count();
    let word = |class: &str, word: &str| {
        let number = count(class);
        (number > 0).then(|| shared::text::count(number, word))
    };
    let words = [
        word("attempt", "attempt"),
        word("failed", "failed attempt"),
        word("lost", "lost attempt"),
        word("chat", "model call"),
        word("tool", "tool call"),
        word("waits", "wait"),
    ];
    let told: Vec<String> = words.into_iter().flatten().collect();
    if told.is_empty() { "nothing of its own".into() } else { told.join(", ") }
}

/// A context and all beneath it, each with its depth in the tree.
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
