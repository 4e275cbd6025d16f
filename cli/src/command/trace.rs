//! `trellis trace`: a run as a tree of spans in the terminal, with bars of time and money.

use std::collections::BTreeMap;

use domain::{
    Usd,
    span::{Moment, Span, SpanId, Value},
};
use host::clock::Clock;
use serde_json::json;
use trace::account::ReadLog;

use crate::{
    cluster::connect::Servers,
    input::context_ref::RunRef,
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        screen,
    },
};

/// The lengths of the time bar and the money bar, in characters.
const TIME_BAR: usize = 32;
const MONEY_BAR: usize = 8;
/// The shortest time bar. If there is room only for a shorter one, it is left out.
const LEAST_BAR: usize = 8;
/// On a terminal with fewer columns, money bars are left out.
const LEAST_WITH_MONEY: usize = 56;
/// The fewest characters of a name.
const LEAST_NAME: usize = 12;
/// The most characters of a name, including the lines of the tree before it.
const SHOWN: usize = 48;
/// The attributes with the cost of a span, in the order of preference.
const COSTS: [&str; 2] = ["gen_ai.usage.cost", "trellis.cost.subtree_usd"];

const EXAMPLES: &str = "\
Examples:
  trellis trace 0af7…319c             calls, waits and costs
  trellis trace 0af7…319c --depth 3   only the upper part of the tree
  trellis trace 0af7…319c -o json     every span with its attributes, for programs

The bar of time is the whole run from left to right. The bar of money is a share of the run's cost. `!` precedes an error.
";

/// Show a run as a tree of spans: calls, waits, costs and errors.
///
/// The tree is made from the event log and the journals, without a collector or a viewer, also for runs that were not exported. The
/// span of a tool begins at the entry before it and ends at its own entry. Only exported spans include holds.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run: its id, a unique prefix of the id, or @last.
    trace: RunRef,
    /// Show this many levels of the tree.
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let trace = args.trace.find(&client).await?;
    let journals = client.journals(trace).await?;
    let log: ReadLog = client.log(trace).await?;
    let spans = log.spans(&journals, Clock::default().now());
    match output {
        Output::Json => output::print_json(&json!({"trace_id": trace, "spans": spans}))?,
        Output::Text => {
            let depth = args.depth.unwrap_or(usize::MAX);
            output::print(&tree(&spans, depth, screen::columns_of_stdout()))?;
        }
    }
    Ok(Ending::Completed)
}

/// The spans as a tree, one line each.
fn tree(spans: &[Span], depth: usize, columns: Option<usize>) -> String {
    let ids: std::collections::HashSet<SpanId> = spans.iter().map(|span| span.span_id).collect();
    let mut beneath: BTreeMap<Option<SpanId>, Vec<&Span>> = BTreeMap::new();
    // The first span is the root, even if it names a parent span of the caller.
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
    tree.shown(columns)
}

struct Row {
    name: String,
    time: String,
    from: Moment,
    to: Moment,
    money: String,
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
            name: display::cut(&display::flat(&format!("{stem}{fork}{}", name(span))), SHOWN),
            time: duration(span),
            from: span.start,
            to: span.end,
            money: self.money(span),
            cost: cost(span)
                .filter(|cost| *cost > Usd::ZERO)
                .map_or_else(String::new, |cost| cost.to_string()),
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

    /// The place of a row within the whole run, as a bar of `length` characters.
    fn time_bar(&self, row: &Row, length: usize) -> String {
        let whole = self.end.since(self.start).as_nanos().max(1);
        let place = |at: Moment| {
            let passed = at.since(self.start).as_nanos() * (length as u128) / whole;
            usize::try_from(passed).unwrap_or(length).min(length)
        };
        let from = place(row.from).min(length - 1);
        let to = place(row.to).max(from + 1);
        format!("{}{}{}", "·".repeat(from), "█".repeat(to - from), "·".repeat(length - to))
    }

    fn money(&self, span: &Span) -> String {
        let Some(cost) = cost(span).filter(|cost| *cost > Usd::ZERO) else { return String::new() };
        let of = u128::from(self.total.nanos().max(1));
        let filled = (u128::from(cost.nanos()) * (MONEY_BAR as u128)).div_ceil(of);
        let filled = usize::try_from(filled).unwrap_or(MONEY_BAR).min(MONEY_BAR);
        format!("{}{}", "▪".repeat(filled), " ".repeat(MONEY_BAR - filled))
    }

    /// The tree as text. On a narrow terminal the time bars are shorter, or they are left out and
    /// names are cut.
    fn shown(&self, columns: Option<usize>) -> String {
        let width =
            |of: fn(&Row) -> &str| self.rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
        let (names, times, costs) = (width(|row| &row.name), width(|row| &row.time), width(|row| &row.cost));
        // Amounts are never cut; their bars may be left out.
        let money = if columns.is_none_or(|columns| columns >= LEAST_WITH_MONEY) { MONEY_BAR + 1 } else { 0 };
        let without_names = times + money + costs + 6;
        let room = columns.map_or(TIME_BAR, |columns| columns.saturating_sub(names + without_names + 2));
        let length = Some(room.min(TIME_BAR)).filter(|length| *length >= LEAST_BAR);
        let names = match (columns, length) {
            (Some(columns), None) => names.min(columns.saturating_sub(without_names)).max(LEAST_NAME),
            (_, _) => names,
        };
        let mut out = String::new();
        for row in &self.rows {
            let Row { time, cost, note, .. } = row;
            let filled = if money > 0 { &row.money } else { "" };
            let name = display::fit(&row.name, names);
            let bar = length.map_or_else(String::new, |length| format!("{}  ", self.time_bar(row, length)));
            let line = format!("{name:<names$}  {time:>times$}  {bar}{filled:<money$}{cost:<costs$}  {note}");
            let line = line.trim_end();
            out.push_str(&columns.map_or(line.to_owned(), |columns| display::fit(line, columns)));
            out.push('\n');
        }
        out
    }
}

/// The name of a span. A context's name includes its id, which other commands accept.
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

/// The duration of a span: `12 ms`, `3.2 s`, `4m10s`.
fn duration(span: &Span) -> String {
    let took = span.end.since(span.start);
    let millis = took.as_millis();
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{}m{:02}s", millis / 60_000, millis % 60_000 / 1_000),
    }
}
