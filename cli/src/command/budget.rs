//! `trellis budget`: shows the budgets of contexts, and raises their limits.

use anyhow::Context;
use coordinator::trace::{ContextNode, Trace};
use serde_json::json;
use shared::{
    ChildId, Tokens, TraceId, Usd,
    bus::{self, Bus, From},
    subject::{Filter, Subject},
    wire::{Control, DeadLetter, Raise},
};

use crate::{
    cluster::{
        client,
        connect::{Servers, unreachable},
    },
    input::parse,
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        table, text,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the budget of one context in full; of the root if none is named.
    Show {
        /// The run's id, as `runs list` shows it.
        trace: TraceId,
        /// The context; without it, the root.
        child: Option<ChildId>,
    },
    /// Show the budgets of all contexts of a run.
    Tree {
        /// The run's id, as `runs list` shows it.
        trace: TraceId,
    },
    /// Raise the limits of a context. Contexts that paused because the budget was used up continue.
    #[command(after_help = EXIT_CODES)]
    Raise {
        /// The run's id, as `runs list` shows it.
        trace: TraceId,
        /// The context; without it, the root.
        child: Option<ChildId>,
        /// The new limit, in dollars.
        #[arg(long, value_name = "USD", value_parser = parse::usd, allow_hyphen_values = true)]
        #[arg(required_unless_present = "max_tokens")]
        max_cost_usd: Option<Usd>,
        /// The new limit, in tokens.
        #[arg(long, value_name = "N", value_parser = parse::tokens)]
        max_tokens: Option<Tokens>,
    },
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let bus = servers.cluster().await?;
    match command {
        Command::Show { trace, child } => {
            let trace = client::replay(&bus, trace).await?;
            show(find(&trace, child.as_ref())?, output)
        }
        Command::Tree { trace } => whole(&client::replay(&bus, trace).await?, output),
        Command::Raise { trace, child, max_cost_usd, max_tokens } => {
            let known = client::replay(&bus, trace).await?;
            let node = find(&known, child.as_ref())?;
            let child_id = node.id.clone();
            if !node.is_live() {
                output::error(&format!("`{child_id}` has ended: its limits can't be raised"));
                return Ok(Ending::Refused);
            }
            raise(&bus, trace, Raise { child_id, max_cost_usd, max_tokens }, output).await
        }
    }
}

fn find<'a>(trace: &'a Trace, child: Option<&ChildId>) -> anyhow::Result<&'a ContextNode> {
    let Some(child) = child else { return trace.root().context("the trace has no root") };
    trace.context(child).with_context(|| {
        let known = trace.contexts().iter().map(|node| node.id.as_str());
        let hint = text::did_you_mean(child.as_str(), known, "`trellis budget tree` shows all contexts");
        format!("the trace has no context `{child}`\n\nhint: {hint}")
    })
}

fn show(node: &ContextNode, output: Output) -> anyhow::Result<Ending> {
    let budget = node.budget.snapshot();
    if output == Output::Json {
        output::print_json(&json!({"child_id": node.id, "status": node.status_word(), "budget": budget}))?;
        return Ok(Ending::Completed);
    }
    let row = |what: &str, amount: shared::Amount| {
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
    let row = |node: &ContextNode| {
        let budget = node.budget.snapshot();
        [
            format!("{}{}", "  ".repeat(node.depth as usize), node.id),
            text::plain(serde_json::to_value(node.status_word())),
            budget.limit.cost_usd.to_string(),
            budget.spent.cost_usd.to_string(),
            budget.own.cost_usd.to_string(),
            budget.held.cost_usd.to_string(),
            budget.remaining.cost_usd.to_string(),
            text::plain(serde_json::to_value(budget.funding)),
        ]
    };
    let heading = ["CONTEXT", "STATUS", "LIMIT", "SPENT", "OWN", "HELD", "LEFT", "FUNDING"];
    let mut rows = Vec::new();
    rows_of(trace, trace.root(), &row, &mut rows);
    output::print(&table::show(heading, &rows))?;
    Ok(Ending::Completed)
}

/// A row for a context and then for its descendants, so that indentation shows the tree.
fn rows_of<R>(
    trace: &Trace,
    node: Option<&ContextNode>,
    row: &impl Fn(&ContextNode) -> R,
    rows: &mut Vec<R>,
) {
    let Some(node) = node else { return };
    rows.push(row(node));
    for child in &node.children {
        rows_of(trace, Some(trace.node(*child)), row, rows);
    }
}

async fn raise(bus: &Bus, trace_id: TraceId, raise: Raise, output: Output) -> anyhow::Result<Ending> {
    let child = raise.child_id.clone();
    // A refused control becomes a dead letter: subscribe before publishing, so that it is not missed.
    let mut dead = bus.follow(&[Filter::Dead], From::Now).await.map_err(|error| unreachable(&error))?;
    let control = Control { trace_id, raise: Some(raise.clone()), charge: None, delete: None, restore: None };
    client::publish(bus, Subject::Control, &control).await?;
    let reached = |trace: &Trace| {
        trace.context(&child).is_some_and(|node| {
            raise.max_cost_usd.is_none_or(|usd| node.budget.limit.cost_usd == usd)
                && raise.max_tokens.is_none_or(|tokens| node.budget.limit.tokens == tokens)
        })
    };
    tokio::select! {
        // If both are ready, the state counts.
        biased;
        seen = client::until(bus, trace_id, reached) => {
            let (trace, reached) = seen?;
            let node = find(&trace, Some(&child))?;
            if !reached {
                output::error("the raise is stored, but was not seen to take effect yet\n\nhint: `trellis budget show` shows the limits now");
            }
            show(node, output)?;
            Ok(if reached { Ending::Completed } else { Ending::Failed })
        }
        refused = refusal(&mut dead, trace_id) => output::refuse(&refused?.refusal, output),
    }
}

/// The next dead letter of a trace.
async fn refusal(dead: &mut bus::Follow, trace_id: TraceId) -> anyhow::Result<DeadLetter> {
    loop {
        let stored = dead.next().await.map_err(|error| unreachable(&error))?;
        let Ok(letter) = serde_json::from_slice::<DeadLetter>(&stored.payload) else { continue };
        if letter.trace_id == Some(trace_id) {
            return Ok(letter);
        }
    }
}
