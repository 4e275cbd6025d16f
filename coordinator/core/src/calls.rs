//! The paid calls of one context. Every call id is kept for the life of the trace, because money is
//! booked once (B9). But a call is kept in full only while its details may be needed. The oldest
//! settled calls are *folded*: only their ids, as ranges of numbers, and the sum of their costs are
//! kept. The cost of storing, reading and searching calls therefore does not grow with their
//! number.
//!
//! A folded call is a settled one whose own cost is no longer stored. If its cost is reported again
//! with another amount, that is not refused as a conflict; the first booking stays. These calls are
//! never folded: open, released and forfeited calls, because they may still be settled or
//! corrected; calls with a disputed part; and calls whose id is not `<attempt>-<number>`.

use std::collections::{BTreeSet, HashMap};

use domain::{
    Amount, CallId,
    wire::{Dispute, DisputedCost},
};

use super::{
    Call, CallState, KeyedRows,
    folded::{CallNumber, FoldedCalls},
};

/// Folding begins at this number of foldable calls. Most contexts make fewer calls and never fold.
const FOLD_FROM: usize = 128;
/// How many calls are folded at once, the lowest numbers first. Each fold deletes their fields and
/// writes the ranges, in one commit. The later half stays in full, because the calls reported twice
/// are recent ones.
const FOLD_AT_ONCE: usize = 64;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    kept: KeyedRows<CallId, Call>,
    /// By the attempt in their ids.
    folded: KeyedRows<u32, FoldedCalls>,
    /// The calls in `kept` that are held.
    open: BTreeSet<CallId>,
    /// The calls in `kept` that may be folded.
    foldable: BTreeSet<CallNumber>,
}

/// A call as it is stored.
#[derive(Debug, Clone, Copy)]
pub enum KnownCall<'a> {
    Kept(&'a Call),
    /// The call is settled.
    Folded,
}

impl Calls {
    /// Builds the calls from their stored form and the disputes of their context.
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

    /// A call by its id; `None` if the call is unknown.
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

    /// The sum of the costs of the folded calls.
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

    /// Ends a call, or adds one that had no hold. Returns its earlier state, and its hold.
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

    /// Keeps a call in full because a part of its cost is disputed: its cost is the sum of that
    /// part and the booked part.
    pub(super) fn keep(&mut self, disputed: &DisputedCost) {
        if let DisputedCost::Call(id) = disputed
            && let Some(numbered) = CallNumber::of(id)
        {
            self.foldable.remove(&numbered);
        }
    }

    /// Folds the oldest settled calls, if there are many. This runs before a call is closed, not
    /// after it: only the event after the settlement shows whether a part of the call's cost is
    /// disputed.
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

    /// The parts that are stored.
    pub(super) fn stored_mut(&mut self) -> (&mut KeyedRows<CallId, Call>, &mut KeyedRows<u32, FoldedCalls>) {
        (&mut self.kept, &mut self.folded)
    }
}
