//! Compares a context's own cost with its journal (B19). The journal has the costs that its
//! attempts knew when they wrote: answers at their cost, and lost calls at their holds. The books
//! have the decided costs, and also those that no attempt could write: calls that the end of the
//! context cut off, costs that arrived later, and charges. A statement lists the differences, so
//! that the journal's costs and the listed lines always add up to the own cost.

use std::collections::BTreeSet;

use domain::{
    Amount, CallId,
    wire::{Copies, Decision, HistoryEntry},
};
use serde::Serialize;

use super::{CallState, ContextNode, KnownCall, budget::Call};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// The cost of the entries in the journal, including revoked ones. Entries that a branch copied
    /// were paid elsewhere and are left out.
    pub journal: Amount,
    /// The differences between the books and the journal.
    pub differences: Vec<Difference>,
    /// The own cost of the context: the journal and the differences.
    pub own: Amount,
}

/// A cost that is missing in the journal, or that was booked at another amount.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    pub why: Why,
    pub journaled: Amount,
    pub booked: Amount,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The end of the call is unknown, and no attempt followed that could have written so: it is
    /// booked at its hold (B10).
    Estimated,
    /// The call cost another amount than in the journal: its real cost arrived later, the call was
    /// not made after all, or a part of its cost is disputed (B10, B18).
    Corrected,
    /// The cost arrived, and the answer did not: by then another attempt wrote the journal.
    NotJournaled,
    /// The call is in the journal, and its cost has not arrived yet.
    NotBookedYet,
    /// The program reported its own cost.
    OfProgram,
    /// An external charge (B11).
    Charge,
    /// A disputed charge that was accepted (B18).
    Dispute,
    /// Calls so old that only the sum of their costs is stored.
    Older,
}

impl Why {
    /// The reason in words, for people.
    pub fn describe(self) -> &'static str {
        match self {
            Why::Estimated => "the end of this call is unknown; booked at its hold",
            Why::Corrected => "booked at an amount that differs from the journal",
            Why::NotJournaled => "a call whose answer came too late for the journal",
            Why::NotBookedYet => "in the journal, and not booked yet",
            Why::OfProgram => "reported by the program",
            Why::Charge => "an external charge",
            Why::Dispute => "a disputed charge that was accepted",
            Why::Older => "calls of which only the sum is stored",
        }
    }
}

impl ContextNode {
    /// Compares the books with the journal. Without a journal, every cost is a difference.
    pub fn statement(&self, journal: &[HistoryEntry]) -> Statement {
        let (mut sum, mut seen, mut differences) = (Amount::ZERO, BTreeSet::new(), Vec::new());
        for (call_id, journaled) in paid_entries(journal) {
            sum = plus(sum, journaled);
            // A call that was written twice is booked once.
            let (booked, is_open) = match self.calls.find(call_id) {
                _ if !seen.insert(call_id) => (Amount::ZERO, false),
                Some(KnownCall::Kept(call)) => (booked(call), call.state == CallState::Held),
                Some(KnownCall::Folded) => (journaled, false),
                None => (Amount::ZERO, true),
            };
            if booked != journaled {
                let why = if is_open { Why::NotBookedYet } else { Why::Corrected };
                differences.push(Difference { call_id: Some(call_id.clone()), why, journaled, booked });
            }
        }
        let mut unseen: Vec<_> = self.calls.kept().iter().filter(|(id, _)| !seen.contains(id)).collect();
        unseen.sort_by_key(|(id, _)| *id);
        for (id, call) in unseen {
            let why = match call.state {
                _ if id.as_str().starts_with("external-") => Why::OfProgram,
                CallState::Forfeited => Why::Estimated,
                CallState::Settled(_) | CallState::Released | CallState::Held => Why::NotJournaled,
            };
            differences.extend(added(Some(id.clone()), why, booked(call)));
        }
        let mut charges: Vec<_> = self.charges.iter().collect();
        charges.sort_by_key(|(key, _)| *key);
        differences.extend(
            charges.into_iter().filter_map(|(key, amount)| added(Some(key.clone()), Why::Charge, *amount)),
        );
        let accepted = self.disputes.iter().filter(|dispute| dispute.decision == Some(Decision::Accepted));
        differences.extend(accepted.filter_map(|dispute| added(None, Why::Dispute, dispute.amount)));
        differences.extend(rest(sum, &differences, self.budget.own));
        Statement { journal: sum, differences, own: self.budget.own }
    }

    /// The calls that are booked at their hold because their end is unknown (B10).
    pub fn estimates(&self) -> Vec<(&CallId, Amount)> {
        let forfeited = self.calls.kept().iter().filter(|(_, call)| call.state == CallState::Forfeited);
        let mut estimates: Vec<_> = forfeited.map(|(id, call)| (id, call.held)).collect();
        estimates.sort_by_key(|(id, _)| *id);
        estimates
    }
}

/// The costs of the entries of a journal, each with its call.
fn paid_entries(journal: &[HistoryEntry]) -> impl Iterator<Item = (&CallId, Amount)> {
    let mut copies = Copies::default();
    let own = journal.iter().filter(move |entry| !copies.is_copy(&entry.step));
    own.filter_map(|entry| entry.step.paid_call())
}

fn booked(call: &Call) -> Amount {
    match call.state {
        CallState::Settled(amount) => amount,
        CallState::Forfeited => call.held,
        CallState::Held | CallState::Released => Amount::ZERO,
    }
}

fn added(call_id: Option<CallId>, why: Why, booked: Amount) -> Option<Difference> {
    (!booked.is_zero()).then_some(Difference { call_id, why, journaled: Amount::ZERO, booked })
}

/// The difference that neither the journal nor a line explains.
fn rest(journal: Amount, lines: &[Difference], own: Amount) -> Option<Difference> {
    let (mut expected, mut taken) = (journal, Amount::ZERO);
    for line in lines {
        expected = plus(expected, line.booked);
        taken = plus(taken, line.journaled);
    }
    let own = plus(own, taken);
    let (booked, journaled) = (own.saturating_sub(expected), expected.saturating_sub(own));
    let is_even = booked.is_zero() && journaled.is_zero();
    (!is_even).then_some(Difference { call_id: None, why: Why::Older, journaled, booked })
}

fn plus(a: Amount, b: Amount) -> Amount {
    a.checked_add(b).unwrap_or(a)
}
