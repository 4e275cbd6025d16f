//! `trellis trace`: a run as a tree of spans in the terminal, with bars of time and money.

use std::collections::BTreeMap;

use coordinator::trace::account::ReadLog;
use serde_json::json;
use shared::{
    Usd,
    clock::Clock,
    telemetry::{Moment, Span, SpanId, Value},
};

use crate::{
    cluster::{account, connect::Servers},
    input::context_ref::RunRef,
    terminal::{
        ending::Ending,
        output::{self, Output},
        text,
    },
};

/// Characters of the bar of time, and of the bar of money.
const TIME_BAR: usize = 32;
const MONEY_BAR: usize = 8;
/// Characters of a name.
const SHOWN: usize = 48;
/// The attributes that hold what a span cost, in the order in which they are looked for.
const COSTS: [&str; 2] = ["gen_ai.usage.cost", "trellis.cost.subtree_usd"];

const EXAMPLES: &str = "\
Examples:
  trellis trace 0af7…319c             who called whom, where it waited, what it cost
  trellis trace 0af7…319c --depth 3   only the upper part of the tree
  trellis trace 0af7…319c -o json     every span with its attributes, for programs

The bar of time is the whole run from left to right. The bar of money is the part of the run's cost. What went wrong stands behind `!`.
";

/// Show a run as a tree of spans: who called whom, where it waited, what it cost, what went wrong.
///
/// It is made from the event log and the journals: no collector and no viewer is needed, and it shows runs that were not
/// exported too. Tool calls and holds are only in what is exported.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run's id, as `runs list` shows it.
    trace: RunRef,
    /// Show this many levels of the tree.
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let bus = servers.cluster().await?;
    let trace = args.trace.find(&bus).await?;
    let journals = account::journals(&bus, trace).await?;
    let log: ReadLog = account::log(&bus, trace).await?;
    let spans = log.spans(&journals, Clock::default().now());
    match output {
        Output::Json => output::print_json(&json!({"trace_id": trace, "spans": spans}))?,
        Output::Text => output::print(&tree(&spans, args.depth.unwrap_or(usize::MAX)))?,
    }
    Ok(Ending::Completed)
}

/// The spans as a tree, a line each.
fn tree(spans: &[Span], depth: usize) -> String {
    let ids: std::collections::HashSet<SpanId> = spans.iter().map(|span| span.span_id).collect();
    let mut beneath: BTreeMap<Option<SpanId>, Vec<&Span>> = BTreeMap::new();
    // The first is the root, whatever a caller says that it hangs beneath.
    for (place, span) in spans.iter().enumerate() {
        let parent = span.parent.filter(|parent| place > 0 && ids.contains(parent));
        beneath.entry(parent).or_default().push(span);
    }
    beneath.values_mut().for_each(|spans| spans.sort_by_key(|span| (span.start, span.end)));
    let start = spans.iter().map(|span| span.start).min();
    let end = spans.iter().map(|span| span.end).max();
    let (Some(start), Some(end)) = (start, end) else { return String::new() };
    let roots = beneath.get(&None).cloned().unwrap_or_default();
    let total = roots.iter().filter_map(|root| cost(root)).max().unwrap_or(Usd::ZERO);
    let mut tree = Tree { beneath, start, end, total, depth, rows: Vec::new() };
    for root in roots {
        tree.add(root, "", "", 1);
    }
    tree.shown()
}

struct Row {
    name: String,
    time: String,
    bar: String,
    cost: String,
    note: String,
}

struct Tree<'a> {
    beneath: BTreeMap<Option<SpanId>, Vec<&'a Span>>,
    start: Moment,
    end: Moment,
    total: Usd,
    depth: usize,
    rows: Vec<Row>,
}

impl<'a> Tree<'a> {
    fn add(&mut self, span: &'a Span, stem: &str, fork: &str, level: usize) {
        let mut children = self.beneath.get(&Some(span.span_id)).cloned().unwrap_or_default();
        let hidden = if level >= self.depth { std::mem::take(&mut children).len() } else { 0 };
        let mut note = match (&span.error, text_of(span, "trellis.status")) {
            (Some(error), _) => format!("! {error}"),
            (None, Some(status)) if status != "completed" => status.to_owned(),
            (None, _) => String::new(),
        };
        if hidden > 0 {
            note.push_str(&format!(" (+{hidden})"));
        }
        for event in &span.events {
            let name = event.name.strip_prefix("trellis.").unwrap_or(&event.name);
            note.push_str(&format!(" [{name}]"));
        }
        self.rows.push(Row {
            name: text::cut(&text::flat(&format!("{stem}{fork}{}", name(span))), SHOWN),
            time: duration(span),
            bar: self.time_bar(span),
            cost: self.money(span),
            note: note.trim().to_owned(),
        });
        let stem = match fork {
            "" => String::new(),
            "└ " => format!("{stem}  "),
            _ => format!("{stem}│ "),
        };
        let last = children.len().saturating_sub(1);
        for (place, child) in children.into_iter().enumerate() {
            self.add(child, &stem, if place == last { "└ " } else { "├ " }, level + 1);
        }
    }

    /// Where the span lies in the whole run.
    fn time_bar(&self, span: &Span) -> String {
        let whole = self.end.since(self.start).as_nanos().max(1);
        let place = |at: Moment| {
            let passed = at.since(self.start).as_nanos() * (TIME_BAR as u128) / whole;
            usize::try_from(passed).unwrap_or(TIME_BAR).min(TIME_BAR)
        };
        let from = place(span.start).min(TIME_BAR - 1);
        let to = place(span.end).max(from + 1);
        format!("{}{}{}", "·".repeat(from), "█".repeat(to - from), "·".repeat(TIME_BAR - to))
    }

    fn money(&self, span: &Span) -> String {
        let Some(cost) = cost(span).filter(|cost| *cost > Usd::ZERO) else { return String::new() };
        let of = u128::from(self.total.nanos().max(1));
        let filled = (u128::from(cost.nanos()) * (MONEY_BAR as u128)).div_ceil(of);
        let filled = usize::try_from(filled).unwrap_or(MONEY_BAR).min(MONEY_BAR);
        format!("{}{} {cost}", "▪".repeat(filled), " ".repeat(MONEY_BAR - filled))
    }

    fn shown(&self) -> String {
        let width =
            |of: fn(&Row) -> &str| self.rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
        let (names, times, costs) = (width(|row| &row.name), width(|row| &row.time), width(|row| &row.cost));
        let mut out = String::new();
        for Row { name, time, bar, cost, note } in &self.rows {
            let line = format!("{name:<names$}  {time:>times$}  {bar}  {cost:<costs$}  {note}");
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// The name of a span; that of a context with its id, by which other commands know it.
fn name(span: &Span) -> String {
    let context = text_of(span, "trellis.status").and(text_of(span, "trellis.child_id"));
    match context.filter(|id| !span.name.ends_with(id)) {
        Some(id) => format!("{} ({id})", span.name),
        None => span.name.to_string(),
    }
}

fn text_of<'a>(span: &'a Span, wanted: &str) -> Option<&'a str> {
    let (_, value) = span.attributes.iter().find(|(name, _)| name == wanted)?;
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn cost(span: &Span) -> Option<Usd> {
    COSTS.iter().find_map(|name| {
        let (_, value) = span.attributes.iter().find(|(of, _)| of == name)?;
        if let Value::Usd(amount) = value { Some(*amount) } else { None }
    })
}

/// How long it took: `12 ms`, `3.2 s`, `4m10s`.
fn duration(span: &Span) -> String {
    let took = span.end.since(span.start);
    let millis = took.as_millis();
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{}m{:02}s", millis / 60_000, millis % 60_000 / 1_000),
    }
}
