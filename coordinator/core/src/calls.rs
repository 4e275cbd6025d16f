//! The paid calls of one context. Every id is known for the trace's life: money is booked once (B9). But a call is
//! kept in full only while that may matter. The oldest settled ones are *folded*: of them remain their ids, as ranges
//! of numbers, and the sum of their costs. So what is stored, read and searched does not grow with the calls made.
//!
//! A folded call is a settled one whose cost is not remembered. Told again with another cost, it is not refused as a
//! conflict; the first booking stays, as ever. Never folded are: open, released and forfeited calls, which may still
//! be settled or corrected; those with a disputed part; those whose id is not `<attempt>-<number>`.

use std::collections::{BTreeSet, HashMap};

use domain::{
    Amount, CallId,
    wire::{Dispute, DisputedCost},
};

use super::{
    Call, CallState, KeyedRows,
    folded::{CallNumber, FoldedCalls},
};

/// Calls are folded when there are so many that can be. Most contexts never have that many, and never fold.
const FOLD_FROM: usize = 128;
/// So many are folded at once, the lowest numbers first: each time deletes their fields and writes the ranges, in one
/// commit. The later half stays, as those are the ones that are told twice.
const FOLD_AT_ONCE: usize = 64;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    kept: KeyedRows<CallId, Call>,
    /// By the attempt in their ids.
    folded: KeyedRows<u32, FoldedCalls>,
    /// Of `kept`: those that are held.
    open: BTreeSet<CallId>,
    /// Of `kept`: those that may be folded.
    foldable: BTreeSet<CallNumber>,
}

/// What is known of a call.
#[derive(Debug, Clone, Copy)]
pub enum KnownCall<'a> {
    Kept(&'a Call),
    /// It is settled.
    Folded,
}

impl Calls {
    /// Calls that are stored already, and the disputes of their context.
    pub(super) fn stored(
        kept: HashMap<CallId, Call>,
        folded: HashMap<u32, FoldedCalls>,
        disputes: &[Dispute],
    ) -> Self {
        let open = kept.iter().filter(|(_, call)| call.state == CallState::Held);
        let settled = kept.iter().filter(|(_, call)| matches!(call.state, CallState::Settled(_)));
        let mut calls = Calls {
            open: open.map(|(id, _)| id.clone()).collect(),
            foldable: settled.filter_map(|(id, _)| CallNumber::of(id)).collect(),
            kept: KeyedRows::stored(kept),
            folded: KeyedRows::stored(folded),
        };
        disputes.iter().for_each(|dispute| calls.keep(&dispute.of));
        calls
    }

    /// What is known of a call; none if nobody ever told of it.
    pub fn find(&self, id: &CallId) -> Option<KnownCall<'_>> {
        let folded = || {
            let CallNumber { attempt, number } = CallNumber::of(id).filter(|_| self.has_folded())?;
            self.folded.get(&attempt)?.contains(number).then_some(KnownCall::Folded)
        };
        self.kept.get(id).map(KnownCall::Kept).or_else(folded)
    }

    pub fn knows(&self, id: &CallId) -> bool {
        self.find(id).is_some()
    }

    /// The calls that are kept in full.
    pub fn kept(&self) -> &HashMap<CallId, Call> {
        &self.kept
    }

    /// The open holds, in the order of their ids.
    pub fn open(&self) -> impl Iterator<Item = (&CallId, &Call)> {
        self.open.iter().map(|id| (id, &self.kept[id]))
    }

    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// What the folded calls cost.
    pub fn folded_amount(&self) -> Amount {
        let add = |sum: Amount, folded: &FoldedCalls| sum.checked_add(folded.amount());
        let sum = self.folded.values().try_fold(Amount::ZERO, add);
        sum.expect("a part of what is booked")
    }

    pub(super) fn has_folded(&self) -> bool {
        !self.folded.is_empty()
    }

    pub(super) fn hold(&mut self, id: &CallId, attempt: u32, held: Amount) {
        self.open.insert(id.clone());
        self.kept.insert(id.clone(), Call { attempt, held, state: CallState::Held });
    }

    /// Ends a call, or adds one that nobody held. Returns its state before, and its hold.
    pub(super) fn close(&mut self, id: &CallId, state: CallState) -> (CallState, Amount) {
        let unheld = || Call { attempt: 0, held: Amount::ZERO, state: CallState::Released };
        let call = self.kept.entry_mut(id, unheld);
        let before = (call.state, call.held);
        call.state = state;
        self.open.remove(id);
        if let (CallState::Settled(_), Some(numbered)) = (state, CallNumber::of(id)) {
            self.foldable.insert(numbered);
        }
        before
    }

    /// A part of this cost is disputed: if it is of a call, that is kept, because its cost is that part and what was
    /// booked.
    pub(super) fn keep(&mut self, disputed: &DisputedCost) {
        if let DisputedCost::Call(id) = disputed
            && let Some(numbered) = CallNumber::of(id)
        {
            self.foldable.remove(&numbered);
        }
    }

    /// Folds the oldest settled calls, if there are many. It comes before a call is closed, not behind it: only the
    /// event after that one tells whether a part of its cost is disputed.
    pub(super) fn fold(&mut self) {
        if self.foldable.len() < FOLD_FROM {
            return;
        }
        for _ in 0..FOLD_AT_ONCE {
            let Some(numbered) = self.foldable.pop_first() else { return };
            if let Some(Call { state: CallState::Settled(cost), .. }) = self.kept.remove(&numbered.id()) {
                self.folded.entry_mut(&numbered.attempt, FoldedCalls::default).insert(numbered.number, cost);
            }
        }
    }

    pub(super) fn mark_all(&mut self) {
        self.kept.mark_all();
        self.folded.mark_all();
    }

    /// What is stored of them.
    pub(super) fn stored_mut(&mut self) -> (&mut KeyedRows<CallId, Call>, &mut KeyedRows<u32, FoldedCalls>) {
        (&mut self.kept, &mut self.folded)
    }
}
