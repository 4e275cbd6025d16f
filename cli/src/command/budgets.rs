//! `trellis budgets`: shows the budgets of contexts, raises their limits, and decides disputed
//! charges.

use anyhow::Context;
use bus::From;
use client::Client;
use domain::{
    ChildId, Tokens, TraceId, Usd,
    subject::Filter,
    wire::{Control, DeadLetter, DecideDispute, Decision, Dispute, DisputedCost, Raise, Sender},
};
use serde_json::json;
use trace::{ContextNode, Trace};

use crate::{
    cluster::{connect::Servers, failure::unreachable},
    input::{
        context_ref::{ContextRef, RunRef, WrittenRef, meant},
        parse,
    },
    terminal::{
        display,
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        table,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the whole budget of a context, by default of the root.
    Show {
        #[command(flatten)]
        context: ContextRef,
    },
    /// Show the budgets of all contexts of a run.
    Tree {
        /// The run: its id, a unique prefix of the id, or @last.
        trace: RunRef,
    },
    /// Raise the limits of a context.
    ///
    /// Contexts that paused because the budget was used up continue.
    #[command(after_help = EXIT_CODES)]
    Raise {
        #[command(flatten)]
        context: ContextRef,
        /// The new limit, in dollars.
        #[arg(long, value_name = "USD", value_parser = parse::usd, allow_hyphen_values = true)]
        #[arg(required_unless_present = "max_tokens")]
        max_cost_usd: Option<Usd>,
        /// The new limit, in tokens.
        #[arg(long, value_name = "N", value_parser = parse::tokens)]
        max_tokens: Option<Tokens>,
    },
    /// List the disputed charges of a run: costs without a hold that exceeded the budget.
    Disputes {
        /// The run: its id, a unique prefix of the id, or @last.
        trace: RunRef,
    },
    /// Accept a disputed charge: it is booked, even past the limit.
    #[command(after_help = EXIT_CODES)]
    Accept(DisputedCharge),
    /// Drop a disputed charge: it is not booked.
    #[command(after_help = EXIT_CODES)]
    Drop(DisputedCharge),
}

/// A disputed charge, as `budgets disputes` lists it.
#[derive(Debug, clap::Args)]
pub(crate) struct DisputedCharge {
    /// The run and the context.
    #[arg(value_name = "TRACE/CHILD")]
    context: WrittenRef,
    /// The number of the disputed charge within its context.
    ///
    /// The context may precede it as a word of its own.
    #[arg(required = true, num_args = 1..=2, value_name = "NUMBER")]
    words: Vec<String>,
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    match command {
        Command::Show { context } => {
            let (trace, child) = context.named(&client).await?;
            let trace = client.replay(trace).await?;
            show(find(&trace, child.as_ref())?, output)
        }
        Command::Tree { trace } => whole(&client.replay(trace.find(&client).await?).await?, output),
        Command::Raise { context, max_cost_usd, max_tokens } => {
            let (trace, child) = context.named(&client).await?;
            let known = client.replay(trace).await?;
            let node = find(&known, child.as_ref())?;
            let child_id = node.id.clone();
            if !node.is_live() {
                output::error(&format!("`{child_id}` has ended: its limits can't be raised"));
                return Ok(Ending::Refused);
            }
            raise(&client, trace, Raise { child_id, max_cost_usd, max_tokens }, output).await
        }
        Command::Disputes { trace } => disputes(&client.replay(trace.find(&client).await?).await?, output),
        Command::Accept(disputed) => decide(&client, disputed, Decision::Accepted, output).await,
        Command::Drop(disputed) => decide(&client, disputed, Decision::Dropped, output).await,
    }
}

pub(super) fn find<'a>(trace: &'a Trace, child: Option<&ChildId>) -> anyhow::Result<&'a ContextNode> {
    let Some(child) = child else { return trace.root().context("the run has no root") };
    trace.context(child).with_context(|| {
        let known = trace.contexts().iter().map(|node| node.id.as_str());
        let hint = display::did_you_mean(child.as_str(), known, "`trellis budgets tree` shows all contexts");
        format!("the run has no context `{child}`\n\nhint: {hint}")
    })
}

fn show(node: &ContextNode, output: Output) -> anyhow::Result<Ending> {
    let budget = node.budget.snapshot();
    if output == Output::Json {
        output::print_json(&json!({"child_id": node.id, "status": node.status_word(), "budget": budget}))?;
        return Ok(Ending::Completed);
    }
    let row = |what: &str, amount: domain::Amount| {
        [what.to_owned(), amount.cost_usd.to_string(), amount.tokens.to_string()]
    };
    let rows = [
        row("limit", budget.limit),
        row("spent", budget.spent),
        row("  own calls", budget.own),
        row("  estimated", budget.estimated),
        row("held", budget.held),
        row("remaining", budget.remaining),
        row("overspent", budget.overspent),
        row("disputed", budget.disputed),
    ];
    output::print(&table::show([node.id.as_str(), "COST", "TOKENS"], &rows))?;
    Ok(Ending::Completed)
}

fn whole(trace: &Trace, output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        let all = trace.contexts().iter().map(|node| {
            json!({"child_id": node.id, "parent_id": node.parent.map(|parent| &trace.node(parent).id),
                "status": node.status_word(), "budget": node.budget.snapshot()})
        });
        output::print_json(&all.collect())?;
        return Ok(Ending::Completed);
    }
    let row = |node: &ContextNode, above: usize| {
        let budget = node.budget.snapshot();
        [
            format!("{}{}", "  ".repeat(above), node.id),
            display::plain(serde_json::to_value(node.status_word())),
            budget.limit.cost_usd.to_string(),
            budget.spent.cost_usd.to_string(),
            budget.own.cost_usd.to_string(),
            budget.held.cost_usd.to_string(),
            trace.left(node).cost_usd.to_string(),
            budget.disputed.cost_usd.to_string(),
            display::plain(serde_json::to_value(budget.funding)),
        ]
    };
    let heading = ["CONTEXT", "STATUS", "LIMIT", "SPENT", "OWN", "HELD", "LEFT", "DISPUTED", "FUNDING"];
    let mut rows = Vec::new();
    rows_of(trace, trace.root(), 0, &row, &mut rows);
    output::print(&table::show(heading, &rows))?;
    Ok(Ending::Completed)
}

/// Adds a row for a context and then for its descendants, indented as in the tree. `depth` can't be
/// used for that: a group of steps has the depth of its graph.
fn rows_of<R>(
    trace: &Trace,
    node: Option<&ContextNode>,
    above: usize,
    row: &impl Fn(&ContextNode, usize) -> R,
    rows: &mut Vec<R>,
) {
    let Some(node) = node else { return };
    rows.push(row(node, above));
    for child in &node.children {
        rows_of(trace, Some(trace.node(*child)), above + 1, row, rows);
    }
}

fn disputes(trace: &Trace, output: Output) -> anyhow::Result<Ending> {
    let all: Vec<(&ContextNode, &Dispute)> =
        trace.contexts().iter().flat_map(|node| node.disputes.iter().map(move |one| (node, one))).collect();
    if output == Output::Json {
        let all = all.iter().map(|(node, dispute)| json!({"child_id": node.id, "dispute": dispute}));
        output::print_json(&all.collect())?;
        return Ok(Ending::Completed);
    }
    if all.is_empty() {
        output::note("no charge of this run is disputed");
        return Ok(Ending::Completed);
    }
    let row = |(node, dispute): &(&ContextNode, &Dispute)| {
        let of = match &dispute.of {
            DisputedCost::Call(id) => format!("call {id}"),
            DisputedCost::Charge(key) => format!("charge {key}"),
        };
        let sent_by = match &dispute.sent_by {
            Sender::Worker { worker_id, attempt } => format!("{worker_id}, attempt {attempt}"),
            Sender::Control { by } => by.clone().unwrap_or_else(|| "a charge".into()),
        };
        let decision =
            dispute.decision.map_or_else(|| "open".into(), |d| display::plain(serde_json::to_value(d)));
        let (usd, tokens) = (dispute.amount.cost_usd.to_string(), dispute.amount.tokens.to_string());
        [
            node.id.to_string(),
            dispute.number.to_string(),
            usd,
            tokens,
            of,
            display::cut(&display::flat(&sent_by), 40),
            decision,
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let heading = ["CONTEXT", "NUMBER", "COST", "TOKENS", "OF", "SENT BY", "DECISION"];
    output::print(&table::show(heading, &rows))?;
    Ok(Ending::Completed)
}

async fn decide(
    client: &Client,
    DisputedCharge { context, words }: DisputedCharge,
    decision: Decision,
    output: Output,
) -> anyhow::Result<Ending> {
    let (child, number) = match words.as_slice() {
        [child, number] => (Some(child.parse::<ChildId>()?), number),
        [number] => (None, number),
        _ => anyhow::bail!("give a context and the number of a disputed charge"),
    };
    let number =
        number.parse().with_context(|| format!("{number:?} is not the number of a disputed charge"))?;
    let (trace, named) = context.context(client).await?;
    let known = client.replay(trace).await?;
    let child = named.or(child).context("a context is missing\n\nhint: write TRACE/CHILD NUMBER")?;
    let child = meant(&known, &child).clone();
    find(&known, Some(&child))?;
    let dispute = DecideDispute { child_id: child.clone(), number, decision };
    let control = Control { dispute: Some(dispute), ..Control::of(trace) };
    let decided = |trace: &Trace| {
        let disputes = trace.context(&child).into_iter().flat_map(|node| node.disputes.iter());
        disputes.into_iter().any(|one| one.number == number && one.decision == Some(decision))
    };
    apply(client, &control, &child, decided, output).await
}

async fn raise(client: &Client, trace_id: TraceId, raise: Raise, output: Output) -> anyhow::Result<Ending> {
    let child = raise.child_id.clone();
    let control = Control { raise: Some(raise.clone()), ..Control::of(trace_id) };
    let reached = |trace: &Trace| {
        trace.context(&child).is_some_and(|node| {
            raise.max_cost_usd.is_none_or(|usd| node.budget.ceilings.limit.cost_usd == usd)
                && raise.max_tokens.is_none_or(|tokens| node.budget.ceilings.limit.tokens == tokens)
        })
    };
    apply(client, &control, &child, reached, output).await
}

/// Sends a control, waits until it takes effect or is refused, and prints the budget of the
/// context.
pub(super) async fn apply(
    client: &Client,
    control: &Control,
    child: &ChildId,
    reached: impl Fn(&Trace) -> bool,
    output: Output,
) -> anyhow::Result<Ending> {
    // A refused control becomes a dead letter. The subscription begins before the control is
    // published, so the letter can't be missed.
    let mut dead =
        client.bus().follow(&[Filter::Dead], From::Now).await.map_err(|error| unreachable(&error))?;
    client.control(control).await?;
    tokio::select! {
        // If both are ready, the new state is reported, not the dead letter.
        biased;
        seen = client.until(control.trace_id, reached) => {
            let (trace, reached) = seen?;
            let node = find(&trace, Some(child))?;
            if !reached {
                output::error("the command is stored, but has not taken effect yet\n\nhint: `trellis budgets show` shows the current budget");
            }
            show(node, output)?;
            Ok(if reached { Ending::Completed } else { Ending::Failed })
        }
        refused = refusal(&mut dead, control.trace_id) => output::refuse(&refused?.refusal, output),
    }
}

/// Waits for the next dead letter of a trace.
async fn refusal(dead: &mut bus::Follow, trace_id: TraceId) -> anyhow::Result<DeadLetter> {
    loop {
        let stored = dead.next().await.map_err(|error| unreachable(&error))?;
        let Ok(letter) = serde_json::from_slice::<DeadLetter>(&stored.payload) else { continue };
        if letter.trace_id == Some(trace_id) {
            return Ok(letter);
        }
    }
}
