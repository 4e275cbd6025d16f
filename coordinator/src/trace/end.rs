//! How contexts end, and cancelling. The first end counts: a context that has ended never ends again, and
//! an end reaches every live, queued and parked descendant (B12).

use shared::{
    ChildId,
    wire::{EndStatus, Failure, FailureKind, Payload},
};

use super::{ContextIndex, End, Ended, Event, Refusal, Trace};

/// How many cancels a trace keeps for contexts that do not exist yet.
const MAX_TOMBSTONES: usize = 10_000;

pub(super) fn completed(trace: &Trace, at: ContextIndex, result: Option<Payload>) -> Event {
    ended(trace, at, EndStatus::Completed, result, None, None)
}

pub(super) fn failed(trace: &Trace, at: ContextIndex, kind: FailureKind, message: String) -> Event {
    with_error(trace, at, EndStatus::Failed, Failure { kind, message, retryable: false }, None)
}

pub(super) fn with_error(
    trace: &Trace,
    at: ContextIndex,
    status: EndStatus,
    error: Failure,
    reason: Option<String>,
) -> Event {
    ended(trace, at, status, None, Some(error), reason)
}

/// Its budget ended; its last report is the result (B7).
pub(super) fn last_report(trace: &Trace, at: ContextIndex, report: Payload) -> Event {
    let reason = "its budget is too small for the work left; its last report is the result".into();
    ended(trace, at, EndStatus::Aborted, Some(report), None, Some(reason))
}

/// Stopped from outside: cancelled, timed out or aborted.
pub(super) fn stopped(trace: &Trace, at: ContextIndex, status: EndStatus, reason: String) -> Event {
    ended(trace, at, status, None, None, Some(reason))
}

/// Ends as the context it handed over to ended.
pub(super) fn same_as(trace: &Trace, at: ContextIndex, end: End) -> Event {
    ended(trace, at, end.status, end.result, end.error, end.reason)
}

fn ended(
    trace: &Trace,
    at: ContextIndex,
    status: EndStatus,
    result: Option<Payload>,
    error: Option<Failure>,
    reason: Option<String>,
) -> Event {
    let child_id = trace.node(at).id.clone();
    Event::Ended(Box::new(Ended { child_id, status, result, error, reason }))
}

/// G8: a cancel is stored before it is published. A cancel of a context that does not exist yet is
/// remembered, and ends the context when it comes. A second cancel finds an ended context or the remembered
/// one, and changes nothing.
pub(super) fn cancel(
    trace: &Trace,
    child_id: Option<&ChildId>,
    reason: Option<&str>,
) -> Result<Vec<Event>, Refusal> {
    let reason = reason.unwrap_or("cancelled on request").to_owned();
    let target = match child_id {
        None => trace.root().map(|_| ContextIndex(0)),
        Some(child_id) => trace.find(child_id),
    };
    if let Some(at) = target {
        let live = trace.node(at).is_live();
        return Ok(live.then(|| stopped(trace, at, EndStatus::Cancelled, reason)).into_iter().collect());
    }
    let over = trace.root().is_some_and(|root| !root.is_live());
    let known = child_id.is_some_and(|id| trace.tombstones.contains_key(id))
        || (child_id.is_none() && trace.cancelled_before.is_some());
    if over || known {
        return Ok(Vec::new());
    }
    if trace.tombstones.len() >= MAX_TOMBSTONES {
        return Err(Refusal::TooManyTombstones(MAX_TOMBSTONES));
    }
    Ok(vec![Event::Tombstoned { child_id: child_id.cloned(), reason }])
}

/// B20: the contexts, from `at` up to the root, that have ended and of which nothing is held any more.
pub(super) fn closable(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let final_now = trace.chain(at).filter(|(_, node)| node.outcome_due && node.budget.held.is_zero());
    final_now.map(|(_, node)| Event::Closed { child_id: node.id.clone() }).collect()
}

/// Ends everything beneath a context that has ended.
pub(super) fn descendants(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let node = trace.node(at);
    if node.live_children == 0 {
        return Vec::new();
    }
    let end = node.end().expect("asked when it has ended");
    let (status, reason) = match end.status {
        EndStatus::Cancelled | EndStatus::TimedOut | EndStatus::Aborted => {
            let why = end.reason.as_deref().unwrap_or("stopped");
            (end.status, format!("ended with `{}`: {why}", node.id))
        }
        EndStatus::Completed | EndStatus::Failed | EndStatus::Rejected => {
            (EndStatus::Cancelled, format!("`{}` has ended", node.id))
        }
    };
    let below = trace.subtree(at).into_iter().skip(1);
    below.filter(|i| trace.node(*i).is_live()).map(|i| stopped(trace, i, status, reason.clone())).collect()
}
