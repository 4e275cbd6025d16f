//! Restoring (W5): a live agent goes back to an earlier step of its journal. The coordinator does not read
//! the journal: it fences the running attempt, and tells the next one which step to go back to. Money that
//! was spent stays spent. An open question is withdrawn, and keeps its number. What the agent wrote to its output itself is
//! deleted, because the entry that wrote it may be one of those that no longer count.
//!
//! A call in flight is paid for, so it is finished and booked at its cost: its attempt keeps its lease, begins nothing
//! else, and is fenced when the call has ended. If its worker dies, the lease ends the wait.
//!
//! Restores are numbered within their context: a second delivery names one that is already done.

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

/// A queued context stays in the queue: its next claim is told. A running attempt without a call in flight is fenced as if
/// it had handed its work back, and learns of it at its next tick or ask.
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

/// Whether the attempt that runs has a call in flight. Holds of earlier ones are not waited for: it has resumed them.
fn is_calling(node: &ContextNode) -> bool {
    node.calls.open().any(|(_, call)| call.attempt == node.attempt())
}

/// A call has ended: an attempt whose context was restored meanwhile had only that to do.
pub(super) fn fenced(trace: &Trace, at: ContextIndex, now: Timestamp) -> Option<Event> {
    let node = trace.node(at);
    let restored = matches!(node.status, Status::Working(Phase::Running { restored: true, .. }));
    (restored && !is_calling(node)).then(|| queue_again(trace, at, Requeue::Restored, now))
}
