//! `trellis runs delete` and `trellis runs restore`. Each is first decided here, on the replayed
//! trace, so that the user sees a refusal at once. The coordinator's decision is the one that takes
//! effect.

use client::{Client, TAKES_EFFECT};
use domain::{
    ChildId, TraceId,
    wire::{Control, Delete, HistoryEntry, Query, QueryAnswer, Referrers, Restore},
    wording::count,
};
use host::clock::Clock;
use serde_json::json;
use trace::{Command, ContextNode, Trace};

use crate::terminal::{
    ending::Ending,
    output::{self, Output},
};

/// Deletes the journal, outputs, inputs and result of a run, or of one context and its descendants.
pub(crate) async fn delete(
    client: &Client,
    trace_id: TraceId,
    child: Option<ChildId>,
    force: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    let known = client.replay(trace_id).await?;
    let delete = Delete { child_id: child.clone(), force, outside: Referrers::Known(Vec::new()) };
    let branches = match client.query(&Query::Branches { trace_id }).await? {
        Ok(QueryAnswer::Branches { branches }) => Some(branches),
        Err(_) => None,
        Ok(other) => return Err(client::Error::other_answer(other).into()),
    };
    if let Err(refusal) =
        trace::decide(&known, Command::Delete { delete: delete.clone(), branches }, Clock::Machine.now())
    {
        return output::refuse_with(&refusal.to_wire(), guarded, output);
    }
    let control = Control { delete: Some(delete), ..Control::of(trace_id) };
    client.control(&control).await?;
    let gone = |trace: &Trace| {
        let node = child.as_ref().map_or_else(|| trace.root(), |child| trace.context(child));
        node.is_some_and(|node| node.lifecycle.deleted)
    };
    let (_, taken) = client.until(trace_id, gone).await?;
    let what = child.map_or_else(|| format!("run {trace_id}"), |child| format!("`{child}`"));
    report(&format!("{what} is deleted; its cost stays in the budget"), taken, output)
}

fn guarded(code: &str) -> Option<&'static str> {
    (code == "guarded")
        .then_some("--force cancels live contexts, and deletes contexts that others still read")
}

/// Returns a live agent to a step of its journal.
pub(crate) async fn restore(
    client: &Client,
    trace_id: TraceId,
    child: ChildId,
    to: u32,
    output: Output,
) -> anyhow::Result<Ending> {
    let known = client.replay(trace_id).await?;
    let done = known.context(&child).map_or(0, |node| node.restores.len());
    let number = u32::try_from(done).unwrap_or(u32::MAX).saturating_add(1);
    let restore = Restore { child_id: child.clone(), number, to };
    if let Some(ending) = refused(&known, Command::Restore(restore.clone()), output)? {
        return Ok(ending);
    }
    let entries = client.journal(trace_id, &child).await?;
    let last = entries.last().map_or(0, |entry: &HistoryEntry| entry.number);
    if to >= last {
        output::error(&format!(
            "`{child}` has only {}\n\nhint: name an earlier step; `trellis history` shows them",
            count(last, "step")
        ));
        return Ok(Ending::Refused);
    }
    let control = Control { restore: Some(restore), ..Control::of(trace_id) };
    client.control(&control).await?;
    let restored =
        |trace: &Trace| trace.context(&child).is_some_and(|node: &ContextNode| node.restores.len() > done);
    let (_, taken) = client.until(trace_id, restored).await?;
    report(&format!("`{child}` continues after step {to}"), taken, output)
}

/// Decides the command on the replayed trace. If the core refuses it, prints the refusal and
/// returns the ending.
pub(super) fn refused(known: &Trace, command: Command, output: Output) -> anyhow::Result<Option<Ending>> {
    match trace::decide(known, command, Clock::Machine.now()) {
        Ok(_) => Ok(None),
        Err(refusal) => output::refuse(&refusal.to_wire(), output).map(Some),
    }
}

fn report(done: &str, taken: bool, output: Output) -> anyhow::Result<Ending> {
    match output {
        Output::Json => output::print_json(&json!({"stored": true, "taken": taken}))?,
        Output::Text if taken => output::print(&format!("{done}\n"))?,
        Output::Text => {
            let seconds = TAKES_EFFECT.as_secs();
            output::error(&format!("the command is stored, but did not take effect within {seconds} s"));
        }
    }
    Ok(if taken { Ending::Completed } else { Ending::Failed })
}
