//! The line of holds that wait for calls in flight, first come, first served within a trace. A hold
//! that would fit if all calls in flight were free waits instead of being denied. The amounts that
//! the holds ahead of it need are kept for them, so that small holds can't overtake a large one
//! forever.
//!
//! A hold waits while its attempt runs; each repeated request decides it again. An attempt that has
//! waited long parks, and keeps its place without a worker. When its turn comes, its context is
//! queued, and the place is kept for one more lease. A place ends with a hold, or with the attempt.
//!
//! A hold that would not fit even if all calls in flight were free keeps nothing from other holds.

use std::collections::BTreeMap;

use domain::{Amount, CallId, Timestamp, wire::HoldDenied};

use super::{
    ContextIndex, ContextNode, Event, GrantedDimensions, Phase, Refusal, Requeue, Status, Trace, WaitingHold,
    attempt::queue_again,
};

/// The amounts that the holds further ahead in the line need, by context.
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

/// The answer to a hold: whether it fits, and when.
pub(super) enum Fit {
    Now,
    /// It fits once calls in flight, or holds ahead of it in the line, have ended.
    Later(Box<HoldDenied>),
    Never(Refusal),
}

impl Trace {
    /// Decides whether a hold of `amount` fits behind the holds before `ticket`; without a ticket,
    /// at the end of the line. The loop stops at the first hold that leaves too little. In a short
    /// budget that hold is near the front.
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
        // Only the last report may use the closing reserve: it is closed to the context's other
        // calls and to its descendants (B7).
        match self.check_hold_behind(at, amount, !closing, ahead) {
            Ok(()) => Fit::Now,
            Err(denied) => match self.check_hold_apart_from_calls(at, amount, !closing) {
                Ok(()) => Fit::Later(denied),
                Err(denied) => Fit::Never(Refusal::Denied(denied)),
            },
        }
    }

    /// Reserves the amount of a waiting hold on all its ancestors; nothing, if the hold can never
    /// fit.
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

    fn is_beneath_grant(&self, at: ContextIndex) -> bool {
        self.chain(at).any(|(_, node)| node.budget.ceilings.granted != GrantedDimensions::default())
    }

    fn line_before(&self, ticket: u64) -> impl Iterator<Item = (u64, ContextIndex, &WaitingHold)> {
        let places = self.line.iter().take_while(move |(place, _)| *place < ticket);
        places.filter_map(|(place, at)| {
            let hold = self.node(*at).lifecycle.waiting.iter().find(|hold| hold.ticket == *place)?;
            Some((*place, *at, hold))
        })
    }

    /// All waiting holds in order, each with its context.
    pub fn line(&self) -> impl Iterator<Item = (&ContextNode, &WaitingHold)> {
        self.line_before(u64::MAX).map(|(_, at, hold)| (self.node(at), hold))
    }

    /// Adds a hold to the line. A context whose turn came while it was parked keeps its earlier
    /// place.
    pub(super) fn queue_hold(&mut self, at: ContextIndex, hold: WaitingHold) {
        let kept = self.node(at).kept_ticket(hold.attempt);
        self.leave_line(at, |waiting| waiting.attempt < hold.attempt);
        let ticket = kept.unwrap_or(hold.ticket);
        self.line.insert((ticket, at));
        self.node_mut(at).lifecycle.waiting.push(WaitingHold { ticket, ..hold });
    }

    /// Removes the places of a context that match `leaves`.
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

    /// The turn of a parked context has come: its place is kept until `until`.
    pub(super) fn keep_place(&mut self, at: ContextIndex, until: Timestamp) {
        for hold in &mut self.node_mut(at).lifecycle.waiting {
            hold.kept_until = Some(until);
        }
    }

    /// Ends the places of a context, unless it runs, is paused, or is queued with a place that is
    /// kept for it.
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
    /// The place of an earlier attempt, which attempt number `attempt` takes over.
    pub(super) fn kept_ticket(&self, attempt: u32) -> Option<u64> {
        self.lifecycle.waiting.iter().filter(|hold| hold.attempt < attempt).map(|hold| hold.ticket).min()
    }

    /// The time until which the place is kept for a queued context that no worker has claimed yet.
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

/// No worker claimed the context in time, after its turn had come: the holds behind it go first.
pub(super) fn places_lost(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let node = trace.node(at);
    let lost =
        |hold: &WaitingHold| Event::PlaceLost { child_id: node.id.clone(), call_id: hold.call_id.clone() };
    node.lifecycle.waiting.iter().map(lost).collect()
}

/// A context is parked in the line for this one call, and the cost of the call has arrived: the
/// context need not wait any longer, and is queued.
pub(super) fn called_off(trace: &Trace, at: ContextIndex, call_id: &CallId, now: Timestamp) -> Option<Event> {
    let node = trace.node(at);
    let parked = matches!(node.status, Status::Paused { .. }) && !node.lifecycle.waiting.is_empty();
    let alone = node.lifecycle.waiting.iter().all(|hold| hold.call_id == *call_id);
    (parked && alone).then(|| queue_again(trace, at, Requeue::Room, now))
}

/// Queues the parked contexts whose turn has come: their hold fits, or can never fit and their
/// agent must learn that.
pub(super) fn called_up(trace: &Trace, now: Timestamp) -> Vec<Event> {
    let mut ahead = ReservedAhead::default();
    let mut events = Vec::new();
    let mut root_is_short = false;
    for (_, at, hold) in trace.line_before(u64::MAX) {
        // The root keeps all that it has for holds ahead. Only a hold that needs nothing of the root
        // can fit behind them: one beneath a grant.
        if root_is_short && !trace.is_beneath_grant(at) {
            continue;
        }
        let parked = matches!(trace.node(at).status, Status::Paused { .. }) && trace.blocked(at).is_none();
        match trace.fit_behind(at, hold.amount, hold.closing, &ahead) {
            Fit::Now | Fit::Never(_) if parked => events.push(queue_again(trace, at, Requeue::Room, now)),
            Fit::Now | Fit::Never(_) => {}
            Fit::Later(denied) => {
                root_is_short |= trace.root().is_some_and(|root| root.id == denied.context);
            }
        }
        trace.reserve(&mut ahead, at, hold);
    }
    events
}
