//! Ends and cancels contexts. A graph with steps to undo first undoes them, and ends later (G14).
//! The first end is final: an ended context never ends again. An end reaches every live, queued and
//! parked descendant (B12).

use domain::{
    ChildId,
    wire::{EndStatus, Failure, FailureKind, Payload},
    wording,
};

use super::{ContextEnded, ContextIndex, ContextNode, End, Event, Refusal, Trace, content};

/// The most cancels that a trace stores for contexts that do not exist yet.
const MAX_TOMBSTONES: usize = 10_000;
/// The longest reason of an end. Contexts that end together share the reason, and so do their
/// steps.
const MAX_REASON_BYTES: usize = 2_000;

/// Cuts a reason, because it may be stored with every context of a trace.
pub(super) fn short(reason: String) -> String {
    wording::cut(reason, MAX_REASON_BYTES)
}

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

/// Ends a context whose budget is too small. Its last report is the result (B7), if the trace has
/// room for it.
pub(super) fn last_report(trace: &Trace, at: ContextIndex, report: Payload) -> Event {
    let report = Some(report).filter(|report| has_room(trace, at, EndStatus::Aborted, report));
    let of_report = match report {
        Some(_) => "its last report is the result",
        None => "its last report is left out, because max_trace_bytes leaves no room for it",
    };
    let reason = format!("its budget is too small for the work left; {of_report}");
    ended(trace, at, EndStatus::Aborted, report, None, Some(reason))
}

fn has_room(trace: &Trace, at: ContextIndex, status: EndStatus, result: &Payload) -> bool {
    content::check_end(trace, at, status, Some(result)).is_ok()
}

/// Ends a context from outside: cancelled, timed out or aborted.
pub(super) fn stopped(trace: &Trace, at: ContextIndex, status: EndStatus, reason: String) -> Event {
    ended(trace, at, status, None, None, Some(reason))
}

/// Ends a context like the one to which it handed over. The result of a context that did not
/// complete is left out if the trace has no room for it.
pub(super) fn same_as(trace: &Trace, at: ContextIndex, end: End) -> Event {
    ended(trace, at, end.status, end.details.result, end.details.error, end.details.reason)
}

fn ended(
    trace: &Trace,
    at: ContextIndex,
    status: EndStatus,
    result: Option<Payload>,
    error: Option<Failure>,
    reason: Option<String>,
) -> Event {
    if status == EndStatus::Completed
        && let Err(message) = content::check_end(trace, at, status, result.as_ref())
    {
        return failed(trace, at, FailureKind::LimitExceeded, message);
    }
    // Without room for a partial result, the status of the stop stays, and the result is left out.
    let result =
        result.filter(|result| status == EndStatus::Completed || has_room(trace, at, status, result));
    let child_id = trace.node(at).id.clone();
    let error = error.map(|error| Failure { message: short(error.message), ..error });
    let reason = reason.map(short);
    let ended = Box::new(ContextEnded { child_id, status, result, error, reason, without_undo: false });
    match status != EndStatus::Completed && trace.has_to_undo(at) {
        true => Event::UndoingBegun(ended),
        false => Event::Ended(ended),
    }
}

/// Stops a context together with its graph, which undoes the succeeded steps in it.
pub(super) fn stopped_within(trace: &Trace, at: ContextIndex, status: EndStatus, reason: String) -> Event {
    let (child_id, reason) = (trace.node(at).id.clone(), Some(short(reason)));
    let (result, error) = (None, None);
    Event::Ended(Box::new(ContextEnded { child_id, status, result, error, reason, without_undo: false }))
}

/// Ends a context, or the undoing graphs below an ended one, without undoing anything. An undoing
/// graph ends as it would have ended after its undos.
pub(super) fn without_undo(trace: &Trace, at: ContextIndex, reason: &str) -> Vec<Event> {
    let node = trace.node(at);
    if node.undoing == 0 && !node.is_live() {
        return Vec::new();
    }
    let alone = if node.is_live() { vec![at] } else { trace.subtree(at) };
    let ends = alone.into_iter().filter(|at| trace.node(*at).is_live());
    let top = |index: &ContextIndex| {
        let above = trace.node(*index).parent.filter(|_| *index != at);
        above.is_none_or(|above| !trace.node(above).is_live())
    };
    ends.filter(top).map(|index| dropped(trace, index, EndStatus::Cancelled, reason.to_owned())).collect()
}

fn dropped(trace: &Trace, at: ContextIndex, status: EndStatus, reason: String) -> Event {
    let node = trace.node(at);
    let ending = node.graph.as_ref().and_then(|run| run.ending.clone()).filter(|_| node.is_undoing());
    let ended = ending.map_or_else(
        || {
            let (child_id, reason) = (node.id.clone(), Some(short(reason)));
            ContextEnded { child_id, status, result: None, error: None, reason, without_undo: true }
        },
        |ending| ContextEnded { without_undo: true, ..*ending },
    );
    Event::Ended(Box::new(ended))
}

/// G8: a cancel is stored before it is published. A cancel of a context that does not exist yet is
/// stored, and ends the context when it is admitted. A second cancel finds an ended context or the
/// stored cancel, and changes nothing. A cancel of an undoing graph changes nothing either, unless
/// it requests the end without undo (G14).
pub(super) fn cancel(
    trace: &Trace,
    child_id: Option<&ChildId>,
    reason: Option<&str>,
    drops_undo: bool,
) -> Result<Vec<Event>, Refusal> {
    let reason = short(reason.unwrap_or("cancelled on request").to_owned());
    let target = match child_id {
        None => trace.root().map(|_| ContextIndex(0)),
        Some(child_id) => trace.find(child_id),
    };
    if let Some(at) = target {
        if drops_undo {
            return Ok(without_undo(trace, at, &reason));
        }
        let live = trace.node(at).goes_on();
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

/// B20: the contexts, from `at` up to the root, that have ended and have no open hold.
pub(super) fn closable(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let is_final =
        |node: &ContextNode| node.lifecycle.outcome_due && node.budget.held.is_zero() && node.undoing == 0;
    let final_now = trace.chain(at).filter(|(_, node)| is_final(node));
    final_now.map(|(_, node)| Event::Closed { child_id: node.id.clone() }).collect()
}

/// Ends all descendants of a context that has ended, or undoes steps. Undoing graphs continue,
/// unless the end drops all undos. A descendant with steps to undo begins to undo them. A group
/// leaves this to its graph, unless the graph has succeeded.
pub(super) fn descendants(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let node = trace.node(at);
    if node.live_children == 0 && node.undoing == 0 {
        return Vec::new();
    }
    let ending = node.graph.as_ref().and_then(|run| run.ending.as_deref());
    let (ended, reason, drops) = match (node.end(), ending) {
        (Some(end), _) => (end.status, end.details.reason.as_deref(), end.without_undo),
        (None, Some(ending)) => (ending.status, ending.reason.as_deref(), false),
        (None, None) => return Vec::new(),
    };
    let (status, reason) = match ended {
        EndStatus::Cancelled | EndStatus::TimedOut | EndStatus::Aborted => {
            let why = reason.unwrap_or("stopped");
            (ended, format!("ended with `{}`: {why}", node.id))
        }
        EndStatus::Completed | EndStatus::Failed | EndStatus::Rejected => {
            (EndStatus::Cancelled, format!("`{}` has ended", node.id))
        }
    };
    let is_part = |of: &ContextNode| {
        let lost_a_race = of.parent == Some(at) && ended == EndStatus::Completed;
        of.identity.step.is_some() && !lost_a_race
    };
    let stop = |index: ContextIndex| {
        let reason = reason.clone();
        match (drops, is_part(trace.node(index))) {
            (true, _) => dropped(trace, index, status, reason),
            (false, true) => stopped_within(trace, index, status, reason),
            (false, false) => stopped(trace, index, status, reason),
        }
    };
    let below = if drops { trace.subtree(at) } else { outside_of_undos(trace, at) };
    below.into_iter().skip(1).filter(|i| trace.node(*i).is_live()).map(stop).collect()
}

/// A context and its descendants, without undoing graphs, undos, and their descendants.
fn outside_of_undos(trace: &Trace, top: ContextIndex) -> Vec<ContextIndex> {
    let mut found = vec![top];
    let mut next = 0;
    while let Some(at) = found.get(next).copied() {
        let children = trace.node(at).children.iter().copied();
        let undoes = |node: &ContextNode| node.is_undoing() || node.identity.undoes.is_some();
        found.extend(children.filter(|child| !undoes(trace.node(*child))));
        next += 1;
    }
    found
}
