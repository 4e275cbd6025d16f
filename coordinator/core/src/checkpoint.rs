//! Restoring (W5): a live agent continues from an earlier step of its journal. The coordinator does
//! not read the journal: it fences the running attempt, and sends the step to the next one. Spent
//! money stays spent. An open question is withdrawn, and keeps its number. The value that the agent
//! wrote to its output is deleted, because the journal entry that wrote it may be among the revoked
//! ones.
//!
//! A call in flight is paid for, so it is finished and booked at its cost. Its attempt keeps its
//! lease and must not begin anything else; it is fenced when the call has ended. If its worker
//! dies, the wait ends with the lease.
//!
//! Restores are numbered within their context: a second delivery has a number that is already used.

use domain::{Timestamp, wire::Restore};

use super::{
    ContextIndex, ContextNode, Event, Phase, Refusal, Requeue, Status, Trace, attempt::queue_again,
    context_store,
};

pub(super) fn restore(trace: &Trace, restore: &Restore, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let at = trace.known(&restore.child_id)?;
    let node = trace.node(at);
    let refused = |reason: &'static str| Err(Refusal::NotRestorable { child_id: node.id.clone(), reason });
    let place = (restore.number as usize).checked_sub(1);
    match place.map(|place| node.restores.get(place)) {
        Some(Some(point)) if point.to == restore.to => return Ok(Vec::new()),
        Some(None) if place == Some(node.restores.len()) => {}
        Some(_) | None => return refused("restores are numbered from 1, and `number` is not the next one"),
    }
    if !node.is_live() {
        return refused("it has ended; submit a new run that branches from that step instead");
    }
    if node.graph.is_some() {
        return refused("it is a graph, and graphs have no journal");
    }
    if node.is_approval() {
        return refused("it is an `approve` step, and has no journal");
    }
    if node.live_children > 0 {
        return refused("it has live children; cancel them first, or wait for their end");
    }
    let (child_id, number, to) = (node.id.clone(), restore.number, restore.to);
    let mut events = vec![Event::Restored { child_id, number, to, by: None }];
    events.extend(context_store::own_value_deleted(trace, at));
    events.extend(back_into_the_queue(trace, at, now));
    Ok(events)
}

/// A queued context stays in the queue: the answer to its next claim has the step. A running
/// attempt without a call in flight is fenced as if it had handed back its work, and learns that
/// from its next tick or ask.
fn back_into_the_queue(trace: &Trace, at: ContextIndex, now: Timestamp) -> Option<Event> {
    match &trace.node(at).status {
        Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => None,
        Status::Working(Phase::Running { .. }) if is_calling(trace.node(at)) => None,
        Status::Working(Phase::Running { .. } | Phase::Waiting { .. } | Phase::Steps)
        | Status::InputRequired { .. }
        | Status::Paused { .. }
        | Status::Ended(_) => Some(queue_again(trace, at, Requeue::Restored, now)),
    }
}

/// Returns true if the running attempt has a call in flight. Holds of earlier attempts are not
/// waited for, because the attempt has resumed their calls.
fn is_calling(node: &ContextNode) -> bool {
    node.calls.open().any(|(_, call)| call.attempt == node.attempt())
}

/// A call has ended: fences its attempt if the context was restored during the call.
pub(super) fn fenced(trace: &Trace, at: ContextIndex, now: Timestamp) -> Option<Event> {
    let node = trace.node(at);
    let restored = matches!(node.status, Status::Working(Phase::Running { restored: true, .. }));
    (restored && !is_calling(node)).then(|| queue_again(trace, at, Requeue::Restored, now))
}
