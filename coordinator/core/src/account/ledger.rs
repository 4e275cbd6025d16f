//! The ledger of a trace: every change of the amount that a context itself has spent, with the
//! event that made it. The sum of a context's postings is its own cost. The sum of all postings is
//! the amount that the root has spent (B1, B19).

use std::collections::HashMap;

use domain::{
    Amount, CallId, ChildId,
    wire::{Decision, DisputedCost},
};
use serde::Serialize;

use super::log::{Place, ReadLog};
use crate::{CallState, Event, Trace};

/// Why an amount was booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BookingReason {
    /// The amount that the context had spent before the log begins.
    Carried,
    Settled,
    /// The end of the call is unknown: it is booked at its hold (B10).
    Estimated,
    /// The call was booked at another amount before.
    Corrected,
    /// An external charge (B11).
    Charged,
    /// A disputed charge that was accepted (B18).
    Accepted,
}

/// A change of the amount that a context itself has spent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Posting {
    #[serde(flatten)]
    pub place: Place,
    pub child_id: ChildId,
    pub why: BookingReason,
    /// The call, or the key of the charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The amount held for the call.
    pub held: Amount,
    /// The amount booked from here on; `before` is the amount that it replaces.
    pub booked: Amount,
    #[serde(skip_serializing_if = "Amount::is_nothing")]
    pub before: Amount,
}

/// A call, as its events describe it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CallSheet {
    pub(super) attempt: u32,
    pub(super) held: Amount,
    pub(super) booked: Amount,
    pub(super) is_open: bool,
    /// The call is booked at its hold.
    pub(super) is_estimated: bool,
    /// Another amount was booked for the call before.
    pub(super) is_corrected: bool,
    /// The part of its cost that is not booked, because too little was left for it (B18).
    pub(super) disputed: Amount,
}

/// The costs of one context, from its events.
#[derive(Debug, Clone, Default)]
pub(super) struct Sheet {
    pub(super) own: Amount,
    pub(super) calls: HashMap<CallId, CallSheet>,
    disputes: Vec<Amount>,
    /// The log of the context begins with a copy, which contains only the sum of its oldest calls.
    pub(super) is_carried: bool,
}

#[derive(Debug, Default)]
pub struct Ledger {
    pub postings: Vec<Posting>,
    pub(super) sheets: HashMap<ChildId, Sheet>,
    /// Events that contradict the ledger: a call that is settled twice, or an amount above the
    /// largest sum.
    pub(super) wrong: Vec<(Place, String)>,
}

impl Ledger {
    pub fn of(log: &ReadLog) -> Self {
        let mut ledger = Ledger::default();
        ledger.open(log);
        for (place, event) in log.events() {
            ledger.add(place, event);
        }
        ledger
    }

    /// The amount that a context itself has spent.
    pub fn own(&self, child_id: &ChildId) -> Amount {
        self.sheets.get(child_id).map_or(Amount::ZERO, |sheet| sheet.own)
    }

    /// Starts with the contexts of a copy, if the log begins with one.
    fn open(&mut self, log: &ReadLog) {
        let Some(place) = log.opening_place() else { return };
        let opening: Trace = log.opening();
        for node in opening.contexts() {
            let call = |(id, call): (&CallId, &crate::Call)| {
                let (booked, is_open, is_estimated) = match call.state {
                    CallState::Settled(amount) => (amount, false, false),
                    CallState::Forfeited => (call.held, false, true),
                    CallState::Released => (Amount::ZERO, false, false),
                    CallState::Held => (Amount::ZERO, true, false),
                };
                let sheet = CallSheet {
                    attempt: call.attempt,
                    held: call.held,
                    booked,
                    is_open,
                    is_estimated,
                    ..CallSheet::default()
                };
                (id.clone(), sheet)
            };
            let mut calls: HashMap<CallId, CallSheet> = node.calls.kept().iter().map(call).collect();
            for dispute in node.disputes.iter() {
                if let DisputedCost::Call(id) = &dispute.of {
                    calls.entry(id.clone()).or_default().disputed = dispute.amount;
                }
            }
            let sheet = Sheet {
                own: node.budget.own,
                calls,
                disputes: node.disputes.iter().map(|dispute| dispute.amount).collect(),
                is_carried: true,
            };
            self.sheets.insert(node.id.clone(), sheet);
            if !node.budget.own.is_zero() {
                self.postings.push(Posting {
                    place: place.clone(),
                    child_id: node.id.clone(),
                    why: BookingReason::Carried,
                    call_id: None,
                    held: Amount::ZERO,
                    booked: node.budget.own,
                    before: Amount::ZERO,
                });
            }
        }
    }

    /// Adds the next event. Only events that move money, or announce an amount, change the ledger.
    fn add(&mut self, place: Place, event: &Event) {
        if let Event::Held { child_id, call_id, attempt, amount } = event {
            let call = self.call(child_id, call_id);
            *call = CallSheet { attempt: *attempt, held: *amount, is_open: true, ..*call };
        } else if let Event::Released { child_id, call_id } = event {
            self.end(place, child_id, call_id, Amount::ZERO, BookingReason::Corrected);
        } else if let Event::Settled { child_id, call_id, amount, .. }
        | Event::Corrected { child_id, call_id, amount, .. } = event
        {
            let call = *self.call(child_id, call_id);
            if matches!(event, Event::Settled { .. })
                && !call.is_open
                && !call.booked.is_zero()
                && !call.is_estimated
            {
                let what = format!("call {call_id} of `{child_id}` is settled, and was settled before");
                self.wrong.push((place.clone(), what));
            }
            let why = if matches!(event, Event::Settled { .. }) {
                BookingReason::Settled
            } else {
                BookingReason::Corrected
            };
            self.end(place, child_id, call_id, *amount, why);
        } else if let Event::Forfeited { child_id, call_id } = event {
            let held = self.call(child_id, call_id).held;
            self.end(place, child_id, call_id, held, BookingReason::Estimated);
        } else if let Event::Estimated { child_id, call_id, attempt, amount } = event {
            let call = self.call(child_id, call_id);
            *call = CallSheet { attempt: *attempt, held: *amount, ..*call };
            self.end(place, child_id, call_id, *amount, BookingReason::Estimated);
        } else if let Event::Charged { child_id, key, amount, .. } = event {
            self.post(Posting {
                place,
                child_id: child_id.clone(),
                why: BookingReason::Charged,
                call_id: Some(key.clone()),
                held: Amount::ZERO,
                booked: *amount,
                before: Amount::ZERO,
            });
        } else if let Event::Disputed { child_id, amount, of, .. } = event {
            if let DisputedCost::Call(id) = of {
                self.call(child_id, id).disputed = *amount;
            }
            self.sheets.entry(child_id.clone()).or_default().disputes.push(*amount);
        } else if let Event::DisputeDecided { child_id, number, decision: Decision::Accepted, .. } = event {
            let disputes = &self.sheets.entry(child_id.clone()).or_default().disputes;
            let amount =
                usize::try_from(*number).ok().and_then(|number| disputes.get(number.checked_sub(1)?));
            let Some(amount) = amount.copied() else {
                let what =
                    format!("disputed charge {number} of `{child_id}` is accepted, but no event records it");
                return self.wrong.push((place, what));
            };
            self.post(Posting {
                place,
                child_id: child_id.clone(),
                why: BookingReason::Accepted,
                call_id: None,
                held: Amount::ZERO,
                booked: amount,
                before: Amount::ZERO,
            });
        }
    }

    fn call(&mut self, child_id: &ChildId, call_id: &CallId) -> &mut CallSheet {
        self.sheets.entry(child_id.clone()).or_default().calls.entry(call_id.clone()).or_default()
    }

    /// Books a call at an amount from here on.
    fn end(
        &mut self,
        place: Place,
        child_id: &ChildId,
        call_id: &CallId,
        booked: Amount,
        why: BookingReason,
    ) {
        let call = self.call(child_id, call_id);
        let (before, held) = (call.booked, call.held);
        call.is_corrected |= why == BookingReason::Corrected || !before.is_zero() && before != booked;
        (call.booked, call.is_open, call.is_estimated) = (booked, false, why == BookingReason::Estimated);
        if before != booked {
            let (child_id, call_id) = (child_id.clone(), Some(call_id.clone()));
            self.post(Posting { place, child_id, why, call_id, held, booked, before });
        }
    }

    fn post(&mut self, posting: Posting) {
        let sheet = self.sheets.entry(posting.child_id.clone()).or_default();
        let own = sheet.own.checked_add(posting.booked).and_then(|own| own.checked_sub(posting.before));
        match own {
            Some(own) => sheet.own = own,
            None => {
                self.wrong.push((posting.place.clone(), "a correction returns more than was booked".into()))
            }
        }
        self.postings.push(posting);
    }
}
