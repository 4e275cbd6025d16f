//! `trellis receipt`: the cost of a run, line by line, with sums that agree at every level.

use std::path::PathBuf;

use domain::{Usd, wording::count};
use serde_json::json;
use trace::account::{ContextAccount, Line, Receipt, RepricedRun};

use crate::{
    cluster::connect::Servers,
    command::audit,
    input::{context_ref::RunRef, price_table},
    terminal::{
        display,
        ending::Ending,
        output::{self, Format},
        sheet, table,
    },
};

/// The characters of a detail that are shown on a line.
const SHOWN: usize = 80;

const EXAMPLES: &str = "\
Examples:
  trellis receipt 0af7…319c                     every call with its time, waits and cost
  trellis receipt 0af7…319c -o csv > run.csv    the timeline, for a spreadsheet: its costs add up to the total
  trellis receipt 0af7…319c -o md               for a report
  trellis receipt 0af7…319c --reprice new.toml  the cost at other prices

-o csv and -o md are for this command only. `trellis audit` proves the sums.
";

/// Show the cost of a run: every call and booking, every context and every model.
///
/// Each context's own cost and the costs of its children add up to its spending, and the root's spending is the total. The receipt is
/// made from the event log and the journals, without a coordinator or a model.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run: its id, a unique prefix of the id, or @last.
    trace: RunRef,
    /// Also show the cost at the prices of this file: a worker's settings, as TOML, YAML or JSON.
    ///
    /// Calls with known tokens are priced again. Estimates, programs' own costs and charges stay the same.
    #[arg(long, value_name = "TABLE")]
    reprice: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, servers: &Servers, format: Format) -> anyhow::Result<Ending> {
    let prices = match args.reprice.as_deref().map(price_table::read).transpose() {
        Ok(prices) => prices,
        Err(ending) => return Ok(ending),
    };
    let client = servers.cluster().await?;
    let trace = args.trace.find(&client).await?;
    let (log, ledger, journals) = client.account(trace).await?;
    let Some(receipt) = Receipt::of(&log, &ledger, &journals) else {
        anyhow::bail!(
            "the log of {} has no context for a receipt\n\nhint: `trellis audit` shows the cause",
            trace
        )
    };
    if !log.findings.is_empty() {
        output::note("the event log is incomplete, and so is this receipt: `trellis audit` shows the gaps");
    }
    let repriced = prices.map(|prices| {
        RepricedRun::of(log.trace(), &ledger, &journals, |model, usage| {
            let priced = prices.cost(model, usage)?;
            Some((priced.amount.cost_usd, priced.prices))
        })
    });
    match format {
        Format::Json | Format::Yaml => {
            output::print_json(&json!({"receipt": receipt, "repriced": repriced}))?
        }
        Format::Csv => output::print(&sheet::csv(TIMELINE, &timeline(&receipt, Money::Plain)))?,
        Format::Text => output::print(&shown(&receipt, repriced.as_ref(), false))?,
        Format::Md => output::print(&shown(&receipt, repriced.as_ref(), true))?,
    }
    Ok(Ending::Completed)
}

#[derive(Clone, Copy, PartialEq)]
enum Money {
    /// `$0.05`
    Dollars,
    /// `0.05`
    Plain,
}

fn shown(receipt: &Receipt, repriced: Option<&RepricedRun>, markdown: bool) -> String {
    let status = display::plain(serde_json::to_value(receipt.status));
    let so_far = if receipt.so_far { ", so far" } else { "" };
    let mut out = if markdown { "# Receipt\n\n".to_owned() } else { String::new() };
    out.push_str(&format!("run {}, {status}, began {}", receipt.trace_id, receipt.began));
    if let Some(ended) = receipt.ended {
        out.push_str(&format!(", ended {ended} ({})", time(ended.millis_since(receipt.began))));
    }
    out.push_str(&format!("\ntotal {}{so_far}\n", receipt.total));
    let mut part = |title: &str, table: String| {
        let mark = if markdown { "## " } else { "" };
        out.push_str(&format!("\n{mark}{title}\n{}{table}", if markdown { "\n" } else { "" }));
    };
    part("What happened", draw(TIMELINE_SHOWN, &shortened(timeline(receipt, Money::Dollars)), markdown));
    part("Contexts: own + children = spent", draw(CONTEXTS, &contexts(&receipt.contexts), markdown));
    part("Models", draw(MODELS, &models(receipt), markdown));
    if let Some(repriced) = repriced {
        part("With the other prices", draw(REPRICED, &repricing(repriced), markdown));
        let unpriced = repriced.models.iter().filter(|model| model.would_be.is_none());
        for model in unpriced {
            out.push_str(&format!(
                "not known: the table has no price for {}, whose {} cost {}\n",
                model.model,
                count(model.calls, "call"),
                model.was
            ));
        }
    }
    out
}

fn draw<const N: usize>(heading: [&str; N], rows: &[[String; N]], markdown: bool) -> String {
    if markdown { sheet::markdown(heading, rows) } else { table::show(heading, rows) }
}

const TIMELINE: [&str; 16] = [
    "at_ms",
    "at",
    "sequence",
    "event",
    "context",
    "what",
    "waited_ms",
    "call",
    "model",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "held_usd",
    "cost_usd",
    "tokens",
    "detail",
];

fn timeline(receipt: &Receipt, money: Money) -> Vec<[String; 16]> {
    let dollars = |usd: Usd| plain(usd.to_string(), money);
    let row = |line: &Line| {
        let cost = line.cost.as_ref();
        let usage = cost.and_then(|cost| cost.usage);
        let of = |count: fn(&domain::wire::Usage) -> u64| {
            usage.as_ref().map(count).map_or_else(String::new, |n| n.to_string())
        };
        let tokens = cost.map_or_else(String::new, |cost| {
            let (to, from) = (cost.booked.tokens.count(), cost.before.tokens.count());
            if to >= from { (to - from).to_string() } else { format!("-{}", from - to) }
        });
        let detail = match cost {
            Some(cost) => audit::word(cost.why).to_owned(),
            None => line.detail.clone(),
        };
        [
            line.place.at.millis().to_string(),
            line.place.at.to_string(),
            line.place.sequence.to_string(),
            line.place.event.to_string(),
            line.child_id.as_ref().map_or_else(String::new, ToString::to_string),
            line.what.clone(),
            line.waited_ms.map_or_else(String::new, |waited| waited.to_string()),
            cost.and_then(|cost| cost.call_id.as_ref()).map_or_else(String::new, ToString::to_string),
            cost.and_then(|cost| cost.model.as_ref()).map_or_else(String::new, ToString::to_string),
            of(|usage| usage.input_tokens),
            of(|usage| usage.cached_tokens),
            of(|usage| usage.output_tokens),
            cost.map_or_else(String::new, |cost| dollars(cost.held.cost_usd)),
            cost.map_or_else(String::new, |cost| {
                plain(display::change(cost.booked.cost_usd, cost.before.cost_usd), money)
            }),
            tokens,
            detail,
        ]
    };
    receipt.lines.iter().map(row).collect()
}

fn plain(amount: String, money: Money) -> String {
    if money == Money::Plain { amount.replace('$', "") } else { amount }
}

const TIMELINE_SHOWN: [&str; 11] = [
    "AT",
    "SEQUENCE",
    "EVENT",
    "CONTEXT",
    "WHAT",
    "WAITED",
    "MODEL",
    "IN/CACHED/OUT",
    "HELD",
    "COST",
    "DETAIL",
];

/// The columns of the timeline that fit on a screen.
fn shortened(rows: Vec<[String; 16]>) -> Vec<[String; 11]> {
    let short = |row: [String; 16]| {
        let [
            _,
            at,
            sequence,
            event,
            context,
            what,
            waited,
            call,
            model,
            input,
            cached,
            output,
            held,
            cost,
            _,
            detail,
        ] = row;
        let tokens = if input.is_empty() { String::new() } else { format!("{input}/{cached}/{output}") };
        let waited = waited.parse().map_or_else(|_| String::new(), time);
        let detail = if call.is_empty() { detail } else { format!("{detail}, call {call}") };
        let detail = display::cut(&display::flat(&detail), SHOWN);
        [at, sequence, event, display::cut(&context, 40), what, waited, model, tokens, held, cost, detail]
    };
    rows.into_iter().map(short).collect()
}

const CONTEXTS: [&str; 14] = [
    "CONTEXT",
    "AGENT",
    "STATUS",
    "TRIES",
    "RAN",
    "WORKER",
    "HOLD",
    "HUMAN",
    "CHILDREN",
    "BUDGET",
    "OWN",
    "+ CHILDREN",
    "= SPENT",
    "NOTES",
];

fn contexts(accounts: &[ContextAccount]) -> Vec<[String; 14]> {
    let row = |account: &ContextAccount| {
        let version = account.profile_version.map_or_else(String::new, |version| format!(" v{version}"));
        let agent = account.agent_id.as_ref().map_or_else(|| "-".into(), |agent| format!("{agent}{version}"));
        let mut notes = Vec::new();
        let mut note = |amount: domain::Amount, what: &str| {
            if !amount.is_zero() {
                notes.push(format!("{} {what}", amount.cost_usd));
            }
        };
        note(account.estimated, "estimated");
        note(account.disputed, "disputed");
        note(account.held, "held");
        notes.extend(account.uses.iter().map(|uses| format!("uses {uses}")));
        if let Some(from) = &account.taken_from {
            notes.push(format!("taken from {}/{}", from.trace_id, from.child_id));
        }
        if let Some(of) = &account.undoes {
            notes.push(format!("undoes {of}"));
        }
        let wait = account.wait;
        [
            format!("{}{}", "  ".repeat(account.path.len().saturating_sub(1)), account.child_id),
            agent,
            display::plain(serde_json::to_value(account.status)),
            account.attempts.to_string(),
            time(wait.ran_ms),
            time(wait.worker_ms),
            time(wait.hold_ms),
            time(wait.human_ms),
            time(wait.children_ms),
            time(wait.budget_ms),
            account.own.cost_usd.to_string(),
            account.children.cost_usd.to_string(),
            account.spent.cost_usd.to_string(),
            notes.join(", "),
        ]
    };
    accounts.iter().map(row).collect()
}

const MODELS: [&str; 7] = ["MODEL", "CALLS", "INPUT", "CACHED", "OUTPUT", "COST", "ESTIMATED"];

fn models(receipt: &Receipt) -> Vec<[String; 7]> {
    let mut rows: Vec<[String; 7]> = receipt
        .models
        .iter()
        .map(|of| {
            [
                of.model.to_string(),
                of.calls.to_string(),
                of.usage.input_tokens.to_string(),
                of.usage.cached_tokens.to_string(),
                of.usage.output_tokens.to_string(),
                of.cost.cost_usd.to_string(),
                of.estimated.cost_usd.to_string(),
            ]
        })
        .collect();
    let none = String::new;
    rows.extend(receipt.other.iter().map(|of| {
        [
            of.what.to_owned(),
            of.bookings.to_string(),
            none(),
            none(),
            none(),
            of.cost.cost_usd.to_string(),
            of.estimated.cost_usd.to_string(),
        ]
    }));
    let estimated = receipt.models.iter().map(|of| of.estimated.cost_usd);
    let estimated = estimated.chain(receipt.other.iter().map(|of| of.estimated.cost_usd));
    let estimated =
        estimated.fold(Usd::ZERO, |sum, usd| Usd::from_nanos(sum.nanos().saturating_add(usd.nanos())));
    let total = receipt.total.cost_usd.to_string();
    rows.push(["total".into(), none(), none(), none(), none(), total, estimated.to_string()]);
    rows
}

const REPRICED: [&str; 6] = ["MODEL", "CALLS", "COST", "WOULD BE", "CHANGE", "PRICES"];

fn repricing(repriced: &RepricedRun) -> Vec<[String; 6]> {
    let unknown = || "not known".to_owned();
    let row = |name: &str, calls: String, was: Usd, would_be: Option<Usd>, prices: &str| {
        let change = would_be.map_or_else(String::new, |would_be| display::change(would_be, was));
        [
            name.to_owned(),
            calls,
            was.to_string(),
            would_be.map_or_else(unknown, |usd| usd.to_string()),
            change,
            prices.to_owned(),
        ]
    };
    let mut rows: Vec<[String; 6]> = repriced
        .models
        .iter()
        .map(|of| {
            row(
                of.model.as_str(),
                of.calls.to_string(),
                of.was,
                of.would_be,
                of.prices.as_deref().unwrap_or_default(),
            )
        })
        .collect();
    let kept = "estimates, programs' own costs, charges: as they were";
    rows.push(row(kept, String::new(), repriced.kept, Some(repriced.kept), ""));
    rows.push(row("total", String::new(), repriced.was, repriced.would_be, ""));
    rows
}

/// A time in the largest suitable unit; empty for zero.
fn time(ms: u64) -> String {
    match ms {
        0 => String::new(),
        1..10_000 => format!("{ms} ms"),
        10_000..600_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        600_000..36_000_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}
