//! The timer of each context, set to the earliest of these times: a lease expires, a deadline
//! passes, a wait for a worker becomes too long, a retry is due, a question is asked again or gets
//! its default, the open holds of an ended context are booked.

use domain::{Timestamp, wire::EndStatus};

use super::{
    ContextIndex, Event, Phase, Status, Trace, attempt, end, graph, hold_queue, limit_text, money, question,
};

impl Trace {
    /// The time at which the trace next needs a wake.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns true if time can't change the trace any more: it has ended, or never began.
    pub fn is_over(&self) -> bool {
        self.root().is_none_or(|root| !root.is_live() && root.undoing == 0) && self.next_timer().is_none()
    }

    /// The contexts whose timer is due.
    pub(super) fn due(&self, now: Timestamp) -> Vec<ContextIndex> {
        self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, index)| *index).collect()
    }

    /// Sets a context's timer again, and records whether it is paused. Called whenever its status,
    /// or the reason of its wait, may have changed.
    pub(super) fn retime(&mut self, index: ContextIndex) {
        if matches!(self.node(index).status, Status::Paused { .. }) {
            self.paused.insert(index);
        } else {
            self.paused.remove(&index);
        }
        self.check_places(index);
        let due = self.due_with(index, self.node(index).lease_until());
        // Not `node_mut`: timers are not stored.
        let was = std::mem::replace(&mut self.contexts[index.0 as usize].timer, due);
        if was != due {
            was.map(|was| self.timers.remove(&(was, index)));
            due.map(|due| self.timers.insert((due, index)));
        }
    }

    /// The next due time of a context. `lease` is the lease of its running attempt, if it has one.
    pub(super) fn due_with(&self, index: ContextIndex, lease: Option<Timestamp>) -> Option<Timestamp> {
        let node = self.node(index);
        let settings = self.settings();
        // A long queue is not a sign of loss. Each resend waits as long as the context had been
        // queued when it was last sent.
        let again = |queued_at: Timestamp, sent_at: Timestamp| {
            sent_at.plus_millis(settings.redispatch_ms.max(sent_at.millis_since(queued_at)))
        };
        let waits = match &node.status {
            Status::Ended(end) => {
                return node.calls.has_open().then(|| end.at.plus_millis(settings.hold_grace_ms));
            }
            Status::Submitted { sent_at } => Some(again(node.identity.started_at, *sent_at)),
            Status::Working(Phase::Queued { sent_at: Some(sent_at), not_before }) => {
                Some(again(*not_before, *sent_at))
            }
            Status::Working(Phase::Queued { not_before, sent_at: None }) => Some(*not_before),
            Status::Working(Phase::Running { .. }) => lease,
            Status::Working(Phase::Steps) if node.lifecycle.waiting_for_humans > 0 => None,
            Status::Working(Phase::Steps) => node.graph.as_ref().and_then(|run| run.progress.gather_by),
            Status::InputRequired { asked, .. } => asked.as_ref().and_then(|asked| asked.due()),
            Status::Working(Phase::Waiting { .. }) | Status::Paused { .. } => None,
        };
        [waits, node.running_deadline(), node.place_kept_until(), node.queue_until()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Handles the due timer of a context. Always gives an event, so that the timer moves on.
pub(super) fn due(trace: &Trace, at: ContextIndex, now: Timestamp) -> Vec<Event> {
    let node = trace.node(at);
    if node.timer.is_none_or(|due| due > now) {
        // An earlier event of this wake already handled it.
        return Vec::new();
    }
    if !node.is_live() {
        // B10: no attempt is left that could report how these calls ended.
        return money::forfeited(node, |_, _| true).collect();
    }
    if node.running_deadline().is_some_and(|deadline| deadline <= now) {
        return vec![attempt::timed_out(trace, at)];
    }
    if node.queue_until().is_some_and(|until| until <= now) {
        let reason = limit_text::queued_too_long(trace, at);
        return vec![end::stopped(trace, at, EndStatus::TimedOut, reason)];
    }
    match &node.status {
        Status::Working(Phase::Running { .. }) => attempt::lost(trace, at, now),
        Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => {
            if node.place_kept_until().is_some_and(|until| until <= now) {
                return hold_queue::places_lost(trace, at);
            }
            vec![Event::Redispatched { child_id: node.id.clone() }]
        }
        Status::Working(Phase::Steps) => graph::gathering_is_over(trace, at),
        Status::InputRequired { .. } => question::due(trace, at, now),
        Status::Working(Phase::Waiting { .. }) | Status::Paused { .. } | Status::Ended(_) => Vec::new(),
    }
}
