//! Decisions about money (section B): hold, settle, release, forfeit, resume, charge, raise.
//!
//! A second delivery is harmless because a call is known by its id: a hold that is already open, a
//! cost that is already booked and a charge that is already made give no event. Costs are accepted
//! from every attempt that was ever issued, and for ended contexts too, because spent money must be
//! booked.

use std::collections::BTreeSet;

use domain::{
    Amount, CallId, Problems, Timestamp,
    id::ModelName,
    wire::{Charge, DisputedCost, Hold, Lease, OnExhausted, Raise, Resume, Sender},
};

use super::{
    CallState, ContextIndex, ContextNode, Event, KnownCall, Refusal, Trace,
    budget::{Budget, Call, Ceilings},
    dispute::{Unheld, disputed, within_books},
    hold_queue::{self, Fit},
    pending_messages,
};

pub(super) fn hold(trace: &Trace, hold: &Hold) -> Result<Vec<Event>, Refusal> {
    let at = trace.running(&hold.lease)?;
    let node = trace.node(at);
    let is_asked_again = |call: &Call| {
        call.state == CallState::Held && call.held == hold.amount && call.attempt == hold.lease.attempt
    };
    match node.calls.find(&hold.call_id) {
        Some(KnownCall::Kept(call)) if is_asked_again(call) => return Ok(Vec::new()),
        Some(KnownCall::Kept(_) | KnownCall::Folded) => {
            return Err(Refusal::CallConflict(hold.call_id.clone()));
        }
        None => {}
    }
    if let Some((context, dimension)) = trace.blocked(at) {
        let pause = context.terms.on_exhausted == OnExhausted::Pause;
        return Err(Refusal::Halted { context: context.id.clone(), dimension, pause });
    }
    let waits = node.lifecycle.waiting.iter().find(|waits| waits.is_of(hold));
    if waits.is_some_and(|waits| waits.amount != hold.amount || waits.closing != hold.closing) {
        return Err(Refusal::CallConflict(hold.call_id.clone()));
    }
    let (child_id, call_id, amount) = (node.id.clone(), hold.call_id.clone(), hold.amount);
    if let Some(mut events) = pending_messages::before(trace, at, hold) {
        // The agent has to see new messages or rungs first. Its next call includes them, under
        // another call id.
        events.extend(waits.map(|_| Event::PlaceLost { child_id, call_id }));
        return Ok(events);
    }
    let with_seen = |event| pending_messages::seen(node, hold).into_iter().chain([event]).collect();
    let (attempt, closing) = (hold.lease.attempt, hold.closing);
    let ticket = waits.map(|waits| waits.ticket).or_else(|| node.kept_ticket(attempt));
    match (trace.fit(at, amount, closing, ticket), waits) {
        (Fit::Now, _) => Ok(with_seen(Event::Held { child_id, call_id, attempt, amount })),
        (Fit::Later(_), Some(_)) => Ok(Vec::new()),
        (Fit::Later(_), None) => Ok(vec![Event::HoldQueued { child_id, call_id, attempt, amount, closing }]),
        // A hold that can never fit keeps no place in the line; `answer_hold` gives the reason.
        (Fit::Never(_), Some(_)) => Ok(vec![Event::PlaceLost { child_id, call_id }]),
        (Fit::Never(refusal), None) => Err(refusal),
    }
}

pub(super) fn release(trace: &Trace, lease: &Lease, call_id: &CallId) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(trace.issued(lease)?);
    match node.calls.find(call_id) {
        // Only the attempt that took the hold can report that the call was not made. If the
        // coordinator had no news of the call for too long, it booked the call at its hold; the
        // release corrects that.
        Some(KnownCall::Kept(Call { state: CallState::Held | CallState::Forfeited, attempt, .. }))
            if *attempt == lease.attempt =>
        {
            Ok(vec![Event::Released { child_id: node.id.clone(), call_id: call_id.clone() }])
        }
        Some(KnownCall::Kept(Call { state: CallState::Released, .. })) => Ok(Vec::new()),
        Some(_) | None => Err(Refusal::NoHold(call_id.clone())),
    }
}

/// B10: the call was made, and its attempt does not know its cost.
pub(super) fn forfeit(trace: &Trace, lease: &Lease, call_id: &CallId) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(trace.issued(lease)?);
    match node.calls.find(call_id) {
        Some(KnownCall::Kept(Call { state: CallState::Held, attempt, .. })) if *attempt == lease.attempt => {
            Ok(vec![Event::Forfeited { child_id: node.id.clone(), call_id: call_id.clone() }])
        }
        // The cost is already booked, as an estimate or exactly.
        Some(
            KnownCall::Kept(Call { state: CallState::Forfeited | CallState::Settled(_), .. })
            | KnownCall::Folded,
        ) => Ok(Vec::new()),
        Some(KnownCall::Kept(_)) | None => Err(Refusal::NoHold(call_id.clone())),
    }
}

pub(super) fn settle(
    trace: &Trace,
    lease: &Lease,
    call_id: &CallId,
    amount: Amount,
    model: Option<ModelName>,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let at = trace.issued(lease)?;
    let sender = || trace.node(at).sender(lease.attempt);
    let cost = (amount, model);
    let events = settlement(trace, at, call_id, cost, &mut Unheld::new(trace, at), sender)?;
    let called_off = if events.is_empty() { None } else { hold_queue::called_off(trace, at, call_id, now) };
    Ok(called_off.into_iter().chain(within_books(trace, events)?).collect())
}

/// Books the cost of a call whose worker no longer reports it.
pub(super) fn settle_late(
    trace: &Trace,
    at: ContextIndex,
    call_id: &CallId,
    cost: (Amount, Option<ModelName>),
    sent_by: impl FnOnce() -> Sender,
) -> Result<Vec<Event>, Refusal> {
    let events = settlement(trace, at, call_id, cost, &mut Unheld::new(trace, at), sent_by)?;
    within_books(trace, events)
}

/// Returns the events that book the cost of a call, if it is not booked yet. A released or
/// forfeited call is corrected. The cost of a call that had no hold, or the part far above its
/// hold, is booked only up to the amount that is left; the rest is disputed (B9, B10, B18).
fn settlement(
    trace: &Trace,
    at: ContextIndex,
    call_id: &CallId,
    (amount, model): (Amount, Option<ModelName>),
    unheld: &mut Unheld,
    sent_by: impl FnOnce() -> Sender,
) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(at);
    let of = DisputedCost::Call(call_id.clone());
    let (state, held) = match node.calls.find(call_id) {
        // The call is booked, but its cost is no longer stored: the first booking stays.
        Some(KnownCall::Folded) => return Ok(Vec::new()),
        Some(KnownCall::Kept(call)) => (Some(call.state), call.held),
        None => (None, Amount::ZERO),
    };
    let booked = match state {
        Some(CallState::Settled(booked)) if node.said(booked, &of) == amount => return Ok(Vec::new()),
        Some(CallState::Settled(_)) => return Err(Refusal::CallConflict(call_id.clone())),
        Some(CallState::Held | CallState::Forfeited) => unheld.book_held(held, amount),
        Some(CallState::Released) | None => unheld.book(amount),
    };
    let (child_id, call_id) = (node.id.clone(), call_id.clone());
    let event = match state {
        Some(CallState::Released | CallState::Forfeited) => {
            Event::Corrected { child_id, call_id, amount: booked, model }
        }
        Some(CallState::Held | CallState::Settled(_)) | None => {
            Event::Settled { child_id, call_id, amount: booked, model }
        }
    };
    Ok(std::iter::once(event).chain(disputed(node, amount, booked, of, sent_by)).collect())
}

/// B10: the journal of the next attempt shows how earlier calls ended. Calls that are missing from
/// it are forfeited. A resume may name only calls that were held; otherwise one message could book
/// any number of costs (S6).
pub(super) fn resume(trace: &Trace, resume: &Resume) -> Result<Vec<Event>, Refusal> {
    let at = trace.running(&resume.lease)?;
    let node = trace.node(at);
    let mut events = Vec::new();
    let mut seen = BTreeSet::new();
    let mut unheld = Unheld::new(trace, at);
    for call in &resume.settled {
        // All calls of the message are decided on the same budgets, so a call that is named twice
        // would be booked twice.
        if !seen.insert(&call.call_id) {
            return Err(Refusal::CallConflict(call.call_id.clone()));
        }
        if !node.calls.knows(&call.call_id) {
            return Err(Refusal::NoHold(call.call_id.clone()));
        }
        let sender = || node.sender(resume.lease.attempt);
        events.extend(settlement(
            trace,
            at,
            &call.call_id,
            (call.amount, call.model.clone()),
            &mut unheld,
            sender,
        )?);
    }
    let mut events = within_books(trace, events)?;
    let is_orphan = |id: &CallId, call: &Call| call.attempt < resume.lease.attempt && !seen.contains(id);
    events.extend(forfeited(node, is_orphan));
    Ok(events)
}

/// Books the open holds that match `test` as estimated, in the order of their ids.
pub(super) fn forfeited(
    node: &ContextNode,
    test: impl Fn(&CallId, &Call) -> bool,
) -> impl Iterator<Item = Event> {
    let open = node.calls.open().filter(move |(id, call)| test(id, call));
    open.map(|(id, _)| Event::Forfeited { child_id: node.id.clone(), call_id: id.clone() })
}

pub(super) fn charge(trace: &Trace, charge: &Charge) -> Result<Vec<Event>, Refusal> {
    let at = trace.known(&charge.child_id)?;
    let node = trace.node(at);
    let of = DisputedCost::Charge(charge.key.clone());
    match node.charges.get(&charge.key) {
        Some(booked) if node.said(*booked, &of) == charge.amount => return Ok(Vec::new()),
        Some(_) => return Err(Refusal::CallConflict(charge.key.clone())),
        None => {}
    }
    let booked = Unheld::new(trace, at).book(charge.amount);
    let (child_id, key) = (charge.child_id.clone(), charge.key.clone());
    let sent_by = || Sender::Control { by: charge.by.as_ref().map(ToString::to_string) };
    let disputed = disputed(node, charge.amount, booked, of, sent_by);
    let events =
        std::iter::once(Event::Charged { child_id, key, amount: booked, by: None }).chain(disputed).collect();
    within_books(trace, events)
}

/// B8: raising a limit to its current value changes nothing, so a second delivery is harmless.
pub(super) fn raise(trace: &Trace, raise: &Raise) -> Result<Vec<Event>, Refusal> {
    if raise.max_cost_usd.is_none() && raise.max_tokens.is_none() {
        let hint = "give `max_cost_usd`, `max_tokens` or both, each with the new ceiling".to_owned();
        return Err(Refusal::Malformed(Problems::one("max_cost_usd", "nothing is raised", Some(hint))));
    }
    let at = trace.known_live(&raise.child_id)?;
    let node = trace.node(at);
    let old = node.budget.ceilings.limit;
    let new = Amount::new(raise.max_cost_usd.unwrap_or(old.cost_usd), raise.max_tokens.unwrap_or(old.tokens));
    if old.exceeds(new).is_some() {
        return Err(Refusal::NotARaise { child_id: node.id.clone(), limit: old });
    }
    if new == old {
        return Ok(Vec::new());
    }
    let maximum = trace.settings().maximum.ceiling();
    if new.exceeds(maximum).is_some() {
        return Err(Refusal::AboveMaximum { maximum });
    }
    if let Some(parent) = node.parent {
        let above = trace.node(parent);
        if new.exceeds(above.budget.ceilings.limit).is_some() {
            return Err(Refusal::RaiseParentFirst { child_id: node.id.clone(), parent: above.id.clone() });
        }
        let raised =
            Budget { ceilings: Ceilings { limit: new, ..node.budget.ceilings }, ..node.budget.clone() };
        let growth = raised.parent_hold(true).saturating_sub(node.budget.parent_hold(true));
        trace.check_hold(parent, growth, true).map_err(Refusal::of_grant)?;
    }
    Ok(vec![Event::Raised { child_id: node.id.clone(), limit: new, by: None }])
}

/// Returns an event for each live context from `at` to the root whose budget a booking has used up,
/// and for each exhausted context with `on_exhausted: pause` that has something left again after a
/// correction.
pub(super) fn newly_exhausted(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let changed = |node: &ContextNode| -> Option<Event> {
        let child_id = node.id.clone();
        let reached = node.budget.spent.reaches(node.budget.ceilings.limit);
        match (node.lifecycle.exhausted, reached) {
            _ if !node.is_live() => None,
            (None, Some(dimension)) => Some(Event::Exhausted { child_id, dimension }),
            (Some(_), None) if node.terms.on_exhausted == OnExhausted::Pause => {
                Some(Event::Replenished { child_id })
            }
            (Some(_), _) | (None, None) => None,
        }
    };
    trace.chain(at).filter_map(|(_, node)| changed(node)).collect()
}
