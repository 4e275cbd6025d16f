//! The line of holds that wait for calls in flight: first come, first served in a trace. A hold that the budgets
//! allow, once the calls of others have ended, is not denied: it waits. What those ahead of it need is kept for
//! them, so that a large hold is not overtaken by small ones for ever.
//!
//! A hold waits while its attempt runs, and is decided again whenever it is asked again. An attempt that has waited
//! for long parks instead, and keeps its place without a worker; when its turn comes the context is queued, and the
//! place is kept for one lease more. A place ends with a hold, or with the attempt.
//!
//! A hold that the budgets do not allow, whatever the calls in flight cost, keeps no place from others.

use std::collections::BTreeMap;

use domain::{Amount, CallId, Timestamp, wire::HoldDenied};

use super::{
    ContextIndex, ContextNode, Event, Phase, Refusal, Requeue, Status, Trace, WaitingHold,
    attempt::queue_again,
};

/// What those ahead in the line need, by context.
#[derive(Debug, Default)]
pub(super) struct ReservedAhead(BTreeMap<ContextIndex, Amount>);

impl ReservedAhead {
    pub(super) fn at(&self, index: ContextIndex) -> Amount {
        self.0.get(&index).copied().unwrap_or(Amount::ZERO)
    }

    fn add(&mut self, index: ContextIndex, need: Amount) {
        let reserved = self.0.entry(index).or_insert(Amount::ZERO);
        *reserved = reserved.checked_add(need).unwrap_or(*reserved);
    }
}

/// Whether a hold fits.
pub(super) enum Fit {
    Now,
    /// Once calls in flight have ended, or those ahead in the line.
    Later(Box<HoldDenied>),
    Never(Refusal),
}

impl Trace {
    /// Whether a hold of `amount` fits behind those ahead of `ticket` in the line; at the end of it if it has none. Looks
    /// no further than to the first that leaves too little: where the budget is short, that is near the front.
    pub(super) fn fit(&self, at: ContextIndex, amount: Amount, closing: bool, ticket: Option<u64>) -> Fit {
        let mut ahead = ReservedAhead::default();
        for (_, other, hold) in self.line_before(ticket.unwrap_or(u64::MAX)) {
            let fit = self.fit_behind(at, amount, closing, &ahead);
            if !matches!(fit, Fit::Now) {
                return fit;
            }
            self.reserve(&mut ahead, other, hold);
        }
        self.fit_behind(at, amount, closing, &ahead)
    }

    fn fit_behind(&self, at: ContextIndex, amount: Amount, closing: bool, ahead: &ReservedAhead) -> Fit {
        // The closing reserve is for the last report only: neither its own calls nor its descendants' may use
        // it (B7).
        match self.check_hold_behind(at, amount, !closing, ahead) {
            Ok(()) => Fit::Now,
            Err(denied) => match self.check_hold_apart_from_calls(at, amount, !closing) {
                Ok(()) => Fit::Later(denied),
                Err(denied) => Fit::Never(Refusal::Denied(denied)),
            },
        }
    }

    /// Keeps what a waiting hold needs, on all its ancestors; nothing if it can't be had.
    fn reserve(&self, reserved: &mut ReservedAhead, at: ContextIndex, hold: &WaitingHold) {
        if self.check_hold_apart_from_calls(at, hold.amount, !hold.closing).is_err() {
            return;
        }
        let mut need = hold.amount;
        for (index, node) in self.chain(at) {
            reserved.add(index, need);
            need = node.parent_hold_growth(need);
            if need.is_zero() {
                return;
            }
        }
    }

    fn line_before(&self, ticket: u64) -> impl Iterator<Item = (u64, ContextIndex, &WaitingHold)> {
        let places = self.line.iter().take_while(move |(place, _)| *place < ticket);
        places.filter_map(|(place, at)| {
            let hold = self.node(*at).lifecycle.waiting.iter().find(|hold| hold.ticket == *place)?;
            Some((*place, *at, hold))
        })
    }

    /// Every hold that waits, in order, with its context.
    pub fn line(&self) -> impl Iterator<Item = (&ContextNode, &WaitingHold)> {
        self.line_before(u64::MAX).map(|(_, at, hold)| (self.node(at), hold))
    }

    /// A hold takes its place. A context whose turn came while it was parked keeps the place it had.
    pub(super) fn queue_hold(&mut self, at: ContextIndex, hold: WaitingHold) {
        let kept = self.node(at).kept_ticket(hold.attempt);
        self.leave_line(at, |waiting| waiting.attempt < hold.attempt);
        let ticket = kept.unwrap_or(hold.ticket);
        self.line.insert((ticket, at));
        self.node_mut(at).lifecycle.waiting.push(WaitingHold { ticket, ..hold });
    }

    /// Removes the places of a context that `leaves` picks.
    pub(super) fn leave_line(&mut self, at: ContextIndex, leaves: impl Fn(&WaitingHold) -> bool) {
        if !self.node(at).lifecycle.waiting.iter().any(&leaves) {
            return;
        }
        let node = self.node_mut(at);
        let (gone, stay) = std::mem::take(&mut node.lifecycle.waiting).into_iter().partition(leaves);
        node.lifecycle.waiting = stay;
        for hold in Vec::from_iter::<Vec<WaitingHold>>(gone) {
            self.line.remove(&(hold.ticket, at));
        }
    }

    /// Its turn has come: the place is kept until then.
    pub(super) fn keep_place(&mut self, at: ContextIndex, until: Timestamp) {
        for hold in &mut self.node_mut(at).lifecycle.waiting {
            hold.kept_until = Some(until);
        }
    }

    /// Ends the places of a context that neither runs, nor is parked in the line, nor was called up from it.
    pub(super) fn check_places(&mut self, at: ContextIndex) {
        match &self.node(at).status {
            Status::Working(Phase::Running { .. }) | Status::Paused { .. } => {}
            Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => {
                self.leave_line(at, |hold| hold.kept_until.is_none());
            }
            Status::Working(Phase::Waiting { .. } | Phase::Steps)
            | Status::InputRequired { .. }
            | Status::Ended(_) => self.leave_line(at, |_| true),
        }
    }
}

impl ContextNode {
    /// The place of an earlier attempt, which the attempt of this number goes on with.
    pub(super) fn kept_ticket(&self, attempt: u32) -> Option<u64> {
        self.lifecycle.waiting.iter().filter(|hold| hold.attempt < attempt).map(|hold| hold.ticket).min()
    }

    /// Until when its place is kept, if it was called up and no worker has taken it yet.
    pub(super) fn place_kept_until(&self) -> Option<Timestamp> {
        match &self.status {
            Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => {
                self.lifecycle.waiting.iter().filter_map(|hold| hold.kept_until).min()
            }
            Status::Working(_) | Status::InputRequired { .. } | Status::Paused { .. } | Status::Ended(_) => {
                None
            }
        }
    }
}

/// The turn of this context had come, and no worker took it: those behind it go first.
pub(super) fn places_lost(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let node = trace.node(at);
    let lost =
        |hold: &WaitingHold| Event::PlaceLost { child_id: node.id.clone(), call_id: hold.call_id.clone() };
    node.lifecycle.waiting.iter().map(lost).collect()
}

/// A context parked in the line for this call alone, and the cost of the call has come: it has nothing to wait for.
pub(super) fn called_off(trace: &Trace, at: ContextIndex, call_id: &CallId, now: Timestamp) -> Option<Event> {
    let node = trace.node(at);
    let parked = matches!(node.status, Status::Paused { .. }) && !node.lifecycle.waiting.is_empty();
    let alone = node.lifecycle.waiting.iter().all(|hold| hold.call_id == *call_id);
    (parked && alone).then(|| queue_again(trace, at, Requeue::Room, now))
}

/// The parked contexts whose turn has come: their hold fits, or can't be had any more and they have to be told.
pub(super) fn called_up(trace: &Trace, now: Timestamp) -> Vec<Event> {
    let mut ahead = ReservedAhead::default();
    let mut events = Vec::new();
    for (_, at, hold) in trace.line_before(u64::MAX) {
        let parked = matches!(trace.node(at).status, Status::Paused { .. }) && trace.blocked(at).is_none();
        match trace.fit_behind(at, hold.amount, hold.closing, &ahead) {
            Fit::Now | Fit::Never(_) if parked => events.push(queue_again(trace, at, Requeue::Room, now)),
            Fit::Now | Fit::Never(_) => {}
            // The root keeps all it has for those ahead: nobody behind them fits either.
            Fit::Later(denied) if trace.root().is_some_and(|root| root.id == denied.context) => break,
            Fit::Later(_) => {}
        }
        trace.reserve(&mut ahead, at, hold);
    }
    events
}
