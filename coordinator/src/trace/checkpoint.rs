//! Restoring (W5): a live agent is taken back to a step of its journal. The coordinator does not know the
//! journal: it fences whoever runs, and tells the next attempt how far back. Money that was spent stays
//! spent. A question that is open is taken back, and keeps its number.
//!
//! Restores are numbered within their context: a second delivery names one that was done.

use shared::{Timestamp, wire::Restore};

use super::{ContextIndex, Event, Phase, Refusal, Requeue, Status, Trace, attempt::queue_again};

pub(super) fn restore(trace: &Trace, restore: &Restore, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let at = trace.known(&restore.child_id)?;
    let node = trace.node(at);
    let refused = |reason: &'static str| Err(Refusal::NotRestorable { child_id: node.id.clone(), reason });
    let place = (restore.number as usize).checked_sub(1);
    match place.map(|place| node.restores.get(place)) {
        Some(Some(point)) if point.to == restore.to => return Ok(Vec::new()),
        Some(None) if place == Some(node.restores.len()) => {}
        Some(_) | None => return refused("its restores are counted from 1, and this is not the next"),
    }
    if !node.is_live() {
        return refused("it has ended; submit a new run that branches from that step instead");
    }
    if node.graph.is_some() {
        return refused("it is a graph, and only agents have a journal");
    }
    if node.live_children > 0 {
        return refused("it has live children; cancel them first, or wait for their end");
    }
    let (child_id, number, to) = (node.id.clone(), restore.number, restore.to);
    let mut events = vec![Event::Restored { child_id, number, to }];
    events.extend(back_into_the_queue(trace, at, now));
    Ok(events)
}

/// What is in the queue stays there: whoever claims it is told. A running attempt is fenced, as if it
/// had handed its work back, and finds that out by its next tick or ask.
fn back_into_the_queue(trace: &Trace, at: ContextIndex, now: Timestamp) -> Option<Event> {
    match &trace.node(at).status {
        Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => None,
        Status::Working(Phase::Running { .. } | Phase::Waiting { .. } | Phase::Steps)
        | Status::InputRequired { .. }
        | Status::Paused { .. }
        | Status::Ended(_) => Some(queue_again(trace, at, Requeue::Restored, now)),
    }
}
