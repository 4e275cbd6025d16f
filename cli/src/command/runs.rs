//! `trellis runs`: describes, watches, cancels, restores and deletes runs. Lists are in `finding`;
//! all else is replayed from the log.

use std::{collections::BTreeSet, fmt::Write};

use bus::{Bus, ClientBus};
use client::{Client, TAKES_EFFECT, questions};
use domain::{
    CallId, ChildId, PoolName, Timestamp,
    id::ModelName,
    wire::{EndStatus, HistoryStep, Text},
};
use host::clock::Clock;
use serde_json::json;
use text::human_time;
use trace::{ContextNode, Trace};

use crate::{
    cluster::connect::Servers,
    command::{amend, cancel_all, delete_restore, finding, rerun, workers},
    input::{
        context_ref::{ContextRef, RunRef, WrittenRef},
        parse,
    },
    terminal::{
        confirm, display,
        ending::{EXIT_CODES, Ending},
        live::{self, WatchEnd},
        missing_workers, news, outcome,
        output::{self, Output},
        pager,
        questions::{Answerer, Questions, expected},
        table, tree,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List runs, the newest first.
    #[command(after_help = finding::EXAMPLES)]
    List(Box<finding::ListArgs>),
    /// List the open questions of all runs, the newest run first.
    Pending(finding::PendingArgs),
    #[command(alias = "describe")]
    Show(ShowArgs),
    Graph(amend::ShowArgs),
    /// Watch a run until it ends.
    ///
    /// The exit code is that of the outcome. Ctrl-C leaves the run, which continues.
    #[command(after_help = EXIT_CODES)]
    Watch {
        /// The run: its id, a unique prefix of the id, or @last.
        trace: RunRef,
        /// The answer to every question of the agents.
        #[arg(long, value_name = "TEXT", value_parser = parse::text)]
        answer: Option<Text>,
        /// Show the live output of the agents.
        #[arg(long)]
        words: bool,
    },
    Cancel(CancelArgs),
    Rerun(rerun::Args),
    /// Return a live agent to an entry of its journal, from which it continues.
    ///
    /// Later entries lose their effect, but their cost remains booked. Children that they spawned are not run again: if the agent
    /// spawns one again, it gets the result of the earlier child. A run that has ended can't be restored: `trellis submit
    /// --branch-from` begins a new run at that entry.
    #[command(after_help = "Examples:\n  trellis runs restore 0af765/writer@4")]
    Restore {
        #[command(flatten)]
        context: ContextRef,
        /// The last entry that remains, if the name has no @STEP; 0 removes all.
        ///
        /// `trellis history` shows the entries.
        #[arg(long, value_name = "STEP")]
        to: Option<u32>,
    },
    /// Delete the journal, outputs, inputs and result of a run, or of one context and its descendants.
    ///
    /// The command asks first. Live contexts, and contexts that others still read, are refused. The cost stays in the budget.
    #[command(
        after_help = "Examples:\n  trellis runs delete 0af765\n  trellis runs delete 0af765/writer --force --yes"
    )]
    Delete {
        #[command(flatten)]
        context: ContextRef,
        /// Cancel live contexts, and delete contexts that others still read.
        #[arg(long)]
        force: bool,
        /// Do not ask first; required without a terminal.
        #[arg(long, short)]
        yes: bool,
    },
}

/// Show one run: its tree, and each context's budget, attempts, time limits and questions.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The run: its id, a unique prefix of the id, or @last.
    trace: RunRef,
}

/// Cancel a run, one context with its descendants, or all runs that match.
///
/// A cancel also applies to a run that begins later.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trellis runs cancel 0af765/writer\n  trellis runs cancel --all --label env=test --status paused"
)]
pub(crate) struct CancelArgs {
    /// The run: its id, a unique prefix of the id, or @last. `TRACE/CHILD` is one context with its descendants.
    #[arg(value_name = "TRACE[/CHILD]")]
    context: Option<WrittenRef>,
    #[command(flatten)]
    filters: cancel_all::Filters,
    /// Cancel only this context and its descendants.
    #[arg(long, value_name = "ID", hide = true)]
    child: Option<ChildId>,
    /// The reason, for the log.
    #[arg(long, value_name = "TEXT", value_parser = parse::text)]
    reason: Option<Text>,
    /// Do not undo steps that succeeded, and stop undos that have begun.
    #[arg(long)]
    without_undo: bool,
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    match command {
        Command::List(args) => finding::list(&client, *args, output).await,
        Command::Pending(args) => finding::pending(&client, args, output).await,
        Command::Show(ShowArgs { trace }) => {
            let trace = client.replay(trace.find(&client).await?).await?;
            let mut rest = estimates(&client, &trace).await;
            if output == Output::Text {
                rest.push_str(&waits_for_workers(&client, &trace).await);
            }
            let started = client.first_claim(trace.id()).await?;
            describe(&client, servers, (&trace, started), &rest, output).await
        }
        Command::Watch { trace, answer, words } => {
            let trace = trace.find(&client).await?;
            let found = client.replay(trace).await?;
            let is_live = found.root().is_some_and(ContextNode::is_live);
            if let Some(nobody) = servers.nobody_serves(&client).filter(|_| is_live) {
                live::stands(&client, &found, answer, output).await?;
                return Err(nobody.into());
            }
            let waits = waits_for_workers(&client, &found).await;
            if !waits.is_empty() {
                output::note(waits.trim());
            }
            let asked = Questions::new(Answerer::is(answer, false, false));
            match live::follow(&client, trace, asked, words, live::OnSignal::Leave).await? {
                WatchEnd::Ended(watch) => outcome::print(&client, servers, &watch, output).await,
                WatchEnd::Left | WatchEnd::LeftCancelled => Ok(Ending::Left),
            }
        }
        Command::Graph(args) => amend::show(&client, &args.context, output).await,
        Command::Cancel(CancelArgs { context, filters, child, reason, without_undo }) => {
            let Some(context) = context.filter(|_| !filters.all) else {
                return cancel_all::run(&client, filters, reason, without_undo, output).await;
            };
            let (trace, named) = context.context(&client).await?;
            let child = named.or(child);
            let known = client.find(trace).await?.unwrap_or_else(|| Trace::new(trace));
            let cancel = trace::Command::Cancel {
                child_id: child.clone(),
                reason: reason.as_ref().map(ToString::to_string),
                without_undo,
            };
            if let Some(ending) = delete_restore::refused(&known, cancel, output)? {
                return Ok(ending);
            }
            client.cancel(trace, child.clone(), reason, without_undo).await?;
            let (trace, stopped) =
                client.until(trace, |trace| stopped(trace, child.as_ref(), without_undo)).await?;
            let undone = known.root().is_some_and(|root| root.undoing > 0);
            cancelled(&trace, child.as_ref(), stopped, undone && without_undo, output)
        }
        Command::Rerun(args) => rerun::run(args, &client, servers, output).await,
        Command::Restore { context, to } => {
            let Some(to) = context.step().or(to) else {
                anyhow::bail!(
                    "the entry is missing\n\nhint: write TRACE/CHILD@STEP; `trellis history` shows the entries"
                );
            };
            let (trace, child) = context.find(&client).await?;
            delete_restore::restore(&client, trace, child, to, output).await
        }
        Command::Delete { context, force, yes } => {
            let (trace, child) = context.named(&client).await?;
            let what = child
                .as_ref()
                .map_or_else(|| format!("run {trace}"), |child| format!("`{child}` of run {trace}"));
            let what = format!("deletes the journals, outputs, inputs and results of {what} for good");
            if let Some(ending) = confirm::asked(&what, yes).await? {
                return Ok(ending);
            }
            delete_restore::delete(&client, trace, child, force, output).await
        }
    }
}

/// The contexts that wait for a worker of a pool in which none answers. Empty without permission to
/// list workers.
async fn waits_for_workers(client: &Client, trace: &Trace) -> String {
    if missing_workers::waits(trace, &[]).is_empty() {
        return String::new();
    }
    let Ok(there) = client.workers().await else { return String::new() };
    let line = |(pool, said): (PoolName, String)| {
        let start = match client.bus() {
            ClientBus::Direct(Bus::Nats(_) | Bus::Memory(_)) => format!("trellis worker --pool {pool}"),
            ClientBus::Direct(Bus::Disk(_)) | ClientBus::Http(_) => workers::start(client).to_owned(),
        };
        format!("\n{said}\n  {start}\n")
    };
    missing_workers::waits(trace, &there).into_iter().map(line).collect()
}

/// The calls that are booked at their hold, with the reason that their journals give (B10).
async fn estimates(client: &Client, trace: &Trace) -> String {
    let mut text = String::new();
    for node in trace.contexts() {
        let estimates = node.estimates();
        if estimates.is_empty() {
            continue;
        }
        // A context that was cut off before its first entry has no journal.
        let entries = client.journal_or_empty(trace.id(), &node.id).await;
        for (call_id, amount) in estimates {
            let cause = match &entries {
                Ok(entries) => entries
                    .iter()
                    .find_map(|entry| cause(&entry.step, call_id))
                    .unwrap_or("it was interrupted, and its result is unknown"),
                Err(_) => "its journal can't be read",
            };
            let _ = writeln!(
                text,
                "\nestimate in {}: call {call_id} is booked at its hold, {}: {}",
                node.id,
                amount.cost_usd,
                display::flat(cause)
            );
        }
    }
    text
}

/// The reason why the journal has no certain cost of a call.
fn cause<'e>(step: &'e HistoryStep, call_id: &CallId) -> Option<&'e str> {
    match step {
        HistoryStep::Lost(lost) if lost.call_id == *call_id => Some(&lost.cause),
        HistoryStep::Model(step) if step.call_id == *call_id && step.cost.estimated => {
            Some("the provider reported no usage")
        }
        HistoryStep::Lost(_)
        | HistoryStep::Model(_)
        | HistoryStep::Began { .. }
        | HistoryStep::Tool(_)
        | HistoryStep::Told(_)
        | HistoryStep::Rung(_)
        | HistoryStep::Checked(_)
        | HistoryStep::Compacted { .. }
        | HistoryStep::Received { .. }
        | HistoryStep::Restored { .. }
        | HistoryStep::Branched { .. }
        | HistoryStep::Result(_) => None,
    }
}

/// The goal of a run, its models, and the times of submission, start and end.
fn about(trace: &Trace, started: Option<Timestamp>, now: Timestamp) -> String {
    let Some(root) = trace.root() else { return String::new() };
    let models: BTreeSet<&str> = trace.contexts().iter().filter_map(|node| model(trace, node)).collect();
    let at = |at: Timestamp| format!("{at}, {}", human_time::ago(now, at));
    let took = |end: Timestamp| {
        format!(
            "{}, {} after it was submitted",
            at(end),
            human_time::lasts(end.millis_since(root.identity.started_at))
        )
    };
    let lines = [
        ("goal", root.spec.goal.as_ref().map(ToString::to_string)),
        (
            "models",
            Some(models.into_iter().collect::<Vec<_>>().join(", ")).filter(|models| !models.is_empty()),
        ),
        ("submitted", Some(at(root.identity.started_at))),
        ("started", started.map(at)),
        ("ended", root.end().map(|end| took(end.at))),
    ];
    let line = |(name, value): (&str, Option<String>)| value.map(|value| format!("{name:<10} {value}\n"));
    lines.into_iter().filter_map(line).collect()
}

/// The model of a context: its own, or that of its agent's profile.
fn model<'t>(trace: &'t Trace, node: &'t ContextNode) -> Option<&'t str> {
    let of_profile = || trace.agent(node.spec.agent_id.as_ref()?)?.model.as_ref();
    node.spec.model.as_ref().or_else(of_profile).map(ModelName::as_str)
}

async fn describe(
    client: &Client,
    servers: &Servers,
    (trace, started): (&Trace, Option<Timestamp>),
    rest: &str,
    output: Output,
) -> anyhow::Result<Ending> {
    let deleted: Vec<&str> =
        trace.contexts().iter().filter(|node| node.lifecycle.deleted).map(|node| node.id.as_str()).collect();
    if output == Output::Json {
        let mut shown = tree::as_json(trace);
        if !deleted.is_empty() {
            shown["deleted"] = json!(deleted);
        }
        output::print_json(&shown)?;
        return Ok(Ending::Completed);
    }
    let row = |node: &ContextNode| {
        let budget = node.budget.snapshot();
        [
            node.id.to_string(),
            agent(trace, node),
            display::plain(serde_json::to_value(node.status_word())),
            budget.spent.cost_usd.to_string(),
            budget.held.cost_usd.to_string(),
            trace.left(node).cost_usd.to_string(),
            budget.spent.tokens.to_string(),
            node.attempt().to_string(),
            node.attempts.last().map_or_else(String::new, |attempt| attempt.worker_id.to_string()),
        ]
    };
    let about = about(trace, started, Clock::Machine.now());
    let heading = ["CONTEXT", "AGENT", "STATUS", "SPENT", "HELD", "LEFT", "TOKENS", "ATTEMPTS", "WORKER"];
    let rows: Vec<_> = trace.contexts().iter().map(row).collect();
    let tree = tree::show(trace);
    let named = servers.trace_link(trace.id(), trace.is_traced());
    let mut text = format!("run {named}\n{about}\n{tree}\n{}", table::show(heading, &rows));
    for node in trace.contexts() {
        text.push_str(&time_limits(node));
        if let Some(waits) = trace.snapshot(node).waits {
            text.push_str(&format!("\nbudget of {}: {waits}\n", node.id));
        }
        let waits_for = trace.snapshot(node).waiting_for;
        if !waits_for.is_empty() {
            let names: Vec<&str> = waits_for.iter().map(ChildId::as_str).collect();
            text.push_str(&format!("\n{} waits for: {}\n", node.id, names.join(", ")));
        }
        text.push_str(&news::describe(trace, node));
        if let Some(checks) = tree::checks(node) {
            text.push_str(&format!("\nchecks of {}: {checks}\n", node.id));
        }
        for adjusted in &node.terms.adjusted {
            text.push_str(&format!("\nlimits of {}: {adjusted}\n", node.id));
        }
        for dispute in node.disputes.iter().filter(|dispute| dispute.decision.is_none()) {
            let (cost, tokens, number) = (dispute.amount.cost_usd, dispute.amount.tokens, dispute.number);
            text.push_str(&format!("\ndisputed charge {number} of {}: {cost}, {tokens} tokens\n", node.id));
            text.push_str(&format!(
                "  trellis budgets accept {}/{} {number}   (or drop)\n",
                trace.id(),
                node.id
            ));
        }
    }
    if !deleted.is_empty() {
        let names = deleted.join(", ");
        text.push_str(&format!(
            "\ndeleted, with journal, inputs, outputs and result; the cost stays: {names}\n"
        ));
    }
    text.push_str(rest);
    for question in questions(trace) {
        let (child, number) = (&question.child_id, question.number);
        let path = question.path.iter().map(ChildId::as_str).collect::<Vec<_>>().join(" › ");
        text.push_str(&format!("\nquestion {number} of {path}: {}\n", question.question));
        text.push_str(&expected(&question));
        text.push_str(&format!("  trellis answer {}/{child} 'TEXT'\n", trace.id()));
    }
    if let Some(outcome) = trace.root().and_then(|root| trace.outcome(&root.id)) {
        text.push_str(&outcome::result(client, &outcome, &tree).await);
    }
    pager::print(&text, servers).await?;
    Ok(Ending::Completed)
}

/// The agent of a context, with the version of its profile.
fn agent(trace: &Trace, node: &ContextNode) -> String {
    let snapshot = trace.snapshot(node);
    let agent = snapshot.agent_id.map(|agent| agent.to_string()).unwrap_or_default();
    snapshot.profile_version.map_or(agent.clone(), |version| format!("{agent} v{version}"))
}

/// The time limits of a live context, without those of its ancestors.
fn time_limits(node: &ContextNode) -> String {
    let mut limits = Vec::new();
    match (node.terms.timeout_ms, node.lifecycle.deadline) {
        (Some(timeout), _) => limits.push(format!("may run {timeout} ms from its first attempt on")),
        (None, Some(deadline)) => {
            let lasts = deadline.millis_since(node.identity.started_at);
            limits.push(format!("must end within {lasts} ms of its submission"));
        }
        (None, None) => {}
    }
    if node.limits.max_queue_ms > 0 {
        limits.push(format!("may wait {} ms for a worker", node.limits.max_queue_ms));
    }
    if limits.is_empty() || !node.is_live() {
        return String::new();
    }
    format!("\ntime of {}: {}\n", node.id, limits.join(", "))
}

/// True if the cancelled context has ended. A cancel that arrives before its run is stored, and
/// takes effect when the run begins.
fn stopped(trace: &Trace, child: Option<&ChildId>, without_undo: bool) -> bool {
    // A graph that undoes its steps is stopped: it starts no other steps.
    let is_stopped = |node: &ContextNode| !node.is_live() || (node.is_undoing() && !without_undo);
    match (trace.root(), child) {
        (None, _) => trace.version() > 0,
        (Some(root), None) => is_stopped(root),
        (Some(_), Some(child)) => trace.context(child).is_some_and(is_stopped),
    }
}

/// Prints the effect of a cancel. The exit code shows a cancel without an effect.
fn cancelled(
    trace: &Trace,
    child: Option<&ChildId>,
    stopped: bool,
    undo_dropped: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    let node = child.map_or_else(|| trace.root(), |child| trace.context(child));
    let ended = node.and_then(|node| node.end()).map(|end| end.status);
    let undoes = node.is_some_and(ContextNode::is_undoing);
    let undoes_within = node.is_some_and(|node| node.undoing > 0);
    let taken = stopped && (undo_dropped || ended.is_none_or(|status| status == EndStatus::Cancelled));
    if output == Output::Json {
        let root = trace.root().map(ContextNode::status_word);
        output::print_json(&json!({"trace_id": trace.id(), "stored": true, "taken": taken, "root": root}))?;
    }
    let what = child.map_or_else(|| "the run".to_owned(), |child| format!("`{child}`"));
    if let (true, Some(status)) = (stopped && !taken, ended) {
        let word = display::plain(serde_json::to_value(status));
        let rest =
            if undoes_within { "; a group in it still undoes (`--without-undo` ends that)" } else { "" };
        output::error(&format!("{}: nothing was cancelled: {what} had ended as {word}{rest}", trace.id()));
        return Ok(Ending::Refused);
    }
    if !taken {
        let seconds = TAKES_EFFECT.as_secs();
        output::error(&format!(
            "{}: the cancel is stored, but did not take effect within {seconds} s",
            trace.id()
        ));
        return Ok(Ending::Failed);
    }
    if output == Output::Text {
        let said = match ended {
            Some(_) if undo_dropped => format!("{what} has ended, and its remaining undos are dropped"),
            Some(_) if undoes_within => {
                format!("{what} is cancelled, and a group in it still undoes its succeeded steps")
            }
            Some(_) => format!("{what} is cancelled"),
            None if undoes => format!("{what} is cancelled, and undoes its succeeded steps"),
            None => "the run has not begun; if it begins, it is cancelled at once".into(),
        };
        output::print(&format!("{}: {said}\n", trace.id()))?;
    }
    Ok(Ending::Completed)
}
