//! Disputed charges (B18). A cost without a hold is booked up to the amount that is left for it, in
//! its context and in all ancestors that pay for it. The part of a call's cost beyond twice its
//! hold is treated the same way. The rest is disputed: it is stored and shown with its sender,
//! until an administrator accepts it (it is then booked, even beyond a ceiling) or drops it.

use domain::{
    Amount, Timestamp, Tokens, Usd,
    wire::{DecideDispute, Decision, Dispute, DisputedCost, Sender},
};

use super::{ContextIndex, ContextNode, Event, Refusal, Trace};

/// Divides costs that had no hold into the part that is left for them and the rest.
pub(super) struct Unheld {
    left: Amount,
    /// The largest overdraft of a ceiling so far.
    overdrawn: Amount,
}

impl Unheld {
    pub(super) fn new(trace: &Trace, at: ContextIndex) -> Self {
        Unheld { left: trace.left_for_unheld(at), overdrawn: trace.overdrawn(at) }
    }

    /// Returns the part of the cost that is booked. Less is left for the next cost.
    pub(super) fn book(&mut self, cost: Amount) -> Amount {
        let booked = cost.min(self.left);
        self.left = self.left.saturating_sub(booked);
        booked
    }

    /// Returns the part of a call's cost that is booked. A provider may charge more than the hold.
    /// The excess is booked up to the amount that is left. If less is left than the hold, up to the
    /// amount of the hold again is booked, above a ceiling if need be. This allowance is shared by
    /// all such calls: the existing overdraft is deducted from it. The rest is treated like a cost
    /// without a hold, because a lying worker could report any excess (S6).
    pub(super) fn book_held(&mut self, held: Amount, cost: Amount) -> Amount {
        let beyond = cost.saturating_sub(held).min(self.left.max(held.saturating_sub(self.overdrawn)));
        let passes = beyond.saturating_sub(self.left);
        self.overdrawn = self.overdrawn.checked_add(passes).unwrap_or(Amount::new(Usd::MAX, Tokens::MAX));
        self.left = self.left.saturating_sub(beyond);
        let booked = cost.min(held).checked_add(beyond);
        booked.expect("no more than the cost, which is within bounds")
    }
}

/// The event for the part of a cost that could not be booked.
pub(super) fn disputed(
    node: &ContextNode,
    cost: Amount,
    booked: Amount,
    of: DisputedCost,
    sent_by: impl FnOnce() -> Sender,
) -> Option<Event> {
    let amount = cost.saturating_sub(booked);
    let child_id = node.id.clone();
    (!amount.is_zero()).then(|| Event::Disputed { child_id, amount, of, sent_by: sent_by() })
}

/// Returns the events if the sums of the trace have room for all their costs.
pub(super) fn within_books(trace: &Trace, events: Vec<Event>) -> Result<Vec<Event>, Refusal> {
    let (mut booked, mut disputed) = (Amount::ZERO, Amount::ZERO);
    for event in &events {
        if let Event::Settled { amount, .. }
        | Event::Corrected { amount, .. }
        | Event::Charged { amount, .. } = event
        {
            booked = booked.checked_add(*amount).ok_or(Refusal::BooksFull)?;
        } else if let Event::Disputed { amount, .. } = event {
            disputed = disputed.checked_add(*amount).ok_or(Refusal::BooksFull)?;
        }
    }
    trace.check_books(booked, disputed).map(|()| events)
}

/// The first decision is final. The same decision again changes nothing.
pub(super) fn decide(trace: &Trace, decided: &DecideDispute) -> Result<Vec<Event>, Refusal> {
    let DecideDispute { child_id, number, decision } = decided;
    let node = trace.node(trace.known(child_id)?);
    let place = (*number as usize).checked_sub(1);
    let dispute = place.and_then(|place| node.disputes.get(place));
    let dispute = dispute.ok_or(Refusal::NoDispute { child_id: child_id.clone(), number: *number })?;
    match dispute.decision {
        Some(first) if first == *decision => return Ok(Vec::new()),
        Some(_) => {
            return Err(Refusal::DisputeDecided { child_id: child_id.clone(), number: *number });
        }
        None => {}
    }
    if *decision == Decision::Accepted {
        trace.check_books(dispute.amount, Amount::ZERO)?;
    }
    let (child_id, number, decision) = (child_id.clone(), *number, *decision);
    Ok(vec![Event::DisputeDecided { child_id, number, decision, by: None }])
}

impl ContextNode {
    /// The cost as it was reported: the booked part and the disputed part.
    pub(super) fn said(&self, booked: Amount, of: &DisputedCost) -> Amount {
        let disputed = self.disputes.iter().find(|dispute| dispute.of == *of);
        let disputed = disputed.map_or(Amount::ZERO, |dispute| dispute.amount);
        booked.checked_add(disputed).expect("the two parts of one reported cost")
    }

    pub(super) fn new_dispute(
        &self,
        amount: Amount,
        of: &DisputedCost,
        sent_by: &Sender,
        at: Timestamp,
    ) -> Dispute {
        let number = u32::try_from(self.disputes.len()).unwrap_or(u32::MAX).saturating_add(1);
        Dispute { number, amount, of: of.clone(), sent_by: sent_by.clone(), at, decision: None }
    }

    /// The worker of an issued attempt.
    pub(super) fn sender(&self, attempt: u32) -> Sender {
        let worker = &self.attempts[attempt as usize - 1];
        Sender::Worker { worker_id: worker.worker_id.clone(), attempt }
    }
}
