//! How a change of one budget moves up the tree (section B).
//!
//! A context keeps an amount held on its parent, its *hold on the parent*. For shared funding this
//! is the sum that its own calls and its descendants hold; for a live granted context it is the
//! whole unspent ceiling. A change at one context therefore reaches each ancestor as the change of
//! the hold on it. Holds, settlements, grants, raises and ends all use this one walk. Its
//! invariants:
//!
//! - b1 `spent + held <= limit + uncovered`. `uncovered` is the sum of the costs beyond their holds
//!   and of the disputed charges that were accepted (B11)
//! - b2 `held` = own open holds + the children's holds on this parent + the reserves for the undos
//!   of its steps
//! - b3 `spent` = own + the children's

use domain::{
    Amount, CallId, ChildId, Dimension, Tokens, Usd,
    id::ModelName,
    wire::{Decision, Dispute, HoldDenied, Spender},
};

use super::{
    ContextIndex, ContextNode, Refusal, Trace,
    budget::{CallState, GrantedDimensions},
    hold_queue::ReservedAhead,
};

/// An amount to add and an amount to subtract; a hold that becomes a cost needs both at once.
#[derive(Debug, Clone, Copy, Default)]
struct Move {
    more: Amount,
    less: Amount,
}

impl Move {
    fn more(more: Amount) -> Self {
        Move { more, less: Amount::ZERO }
    }

    fn less(less: Amount) -> Self {
        Move { more: Amount::ZERO, less }
    }

    fn between(before: Amount, after: Amount) -> Self {
        Move { more: after.saturating_sub(before), less: before.saturating_sub(after) }
    }

    fn on(self, amount: Amount) -> Amount {
        amount
            .checked_add(self.more)
            .and_then(|sum| sum.checked_sub(self.less))
            .expect("decide checked the sum, and no more is taken than was added")
    }

    fn is_nothing(self) -> bool {
        self.more.is_zero() && self.less.is_zero()
    }
}

/// A change of the sums at one context.
#[derive(Debug, Clone, Copy, Default)]
struct Posting {
    held: Move,
    carved: Move,
    spent: Move,
    estimated: Move,
    disputed: Move,
    uncovered: Amount,
}

impl Trace {
    /// The spending per agent and model, without the costs of descendants. The rows add up to the
    /// total.
    pub fn spent_by(&self) -> Vec<Spender> {
        self.spent_by.told()
    }

    /// Books a change at `at`, and at every ancestor the resulting change of the hold on it (B1).
    fn post(&mut self, at: ContextIndex, posting: Posting) {
        self.post_of(at, posting, None);
    }

    /// Like `post`, for a call of a model.
    fn post_of(&mut self, at: ContextIndex, posting: Posting, model: Option<&ModelName>) {
        let node = self.node_mut(at);
        node.budget.own = posting.spent.on(node.budget.own);
        let agent = node.spec.agent_id.clone();
        let Move { more, less } = posting.spent;
        if less.cost_usd > Usd::ZERO {
            self.spent_by.take_back(agent.as_ref(), less.cost_usd);
        }
        if more.cost_usd > Usd::ZERO {
            self.spent_by.book(agent.as_ref(), model, more.cost_usd);
        }
        self.unsaved.spent_by |= less.cost_usd.max(more.cost_usd) > Usd::ZERO;
        self.post_from(Some(at), posting);
    }

    /// Takes a hold.
    pub(super) fn open_call(&mut self, child_id: &ChildId, call_id: &CallId, attempt: u32, held: Amount) {
        let at = self.expect(child_id);
        let node = self.node_mut(at);
        node.calls.hold(call_id, attempt, held);
        self.leave_line(at, |hold| hold.call_id == *call_id || hold.attempt < attempt);
        self.post(at, Posting { held: Move::more(held), ..Posting::default() });
    }

    /// Ends a hold, or books a cost that had none. The budgets change by the difference.
    pub(super) fn close_call(
        &mut self,
        child_id: &ChildId,
        call_id: &CallId,
        state: CallState,
        model: Option<&ModelName>,
    ) {
        let at = self.expect(child_id);
        let calls = &mut self.node_mut(at).calls;
        calls.fold();
        let (was, held) = calls.close(call_id, state);
        self.leave_line(at, |hold| hold.call_id == *call_id);
        let booked = |state: CallState| match state {
            CallState::Settled(amount) => amount,
            CallState::Forfeited => held,
            CallState::Held | CallState::Released => Amount::ZERO,
        };
        let estimated = |state: CallState| if state == CallState::Forfeited { held } else { Amount::ZERO };
        // A cost up to its hold is covered. A cost whose hold is missing or has ended was booked
        // within the amount left.
        let uncovered = match was {
            CallState::Held | CallState::Forfeited => booked(state).saturating_sub(held),
            CallState::Settled(_) | CallState::Released => Amount::ZERO,
        };
        let posting = Posting {
            held: if was == CallState::Held { Move::less(held) } else { Move::default() },
            spent: Move { more: booked(state), less: booked(was) },
            estimated: Move { more: estimated(state), less: estimated(was) },
            uncovered,
            ..Posting::default()
        };
        self.post_of(at, posting, model);
        self.retime(at);
    }

    /// Holds an amount for the undo of a step (G14).
    pub(super) fn reserve_for_undo(&mut self, at: ContextIndex, amount: Amount) {
        self.reserved(at, Move::more(amount));
    }

    /// Returns the amount held for the undo of a step.
    pub(super) fn return_reserve(&mut self, at: ContextIndex, amount: Amount) {
        self.reserved(at, Move::less(amount));
    }

    fn reserved(&mut self, at: ContextIndex, reserved: Move) {
        let budget = &mut self.node_mut(at).budget;
        budget.reserved = reserved.on(budget.reserved);
        self.post(at, Posting { held: reserved, carved: reserved, ..Posting::default() });
    }

    /// Books an external charge.
    pub(super) fn book_charge(&mut self, child_id: &ChildId, key: &CallId, amount: Amount) {
        let at = self.expect(child_id);
        self.node_mut(at).charges.insert(key.clone(), amount);
        self.post(at, Posting { spent: Move::more(amount), ..Posting::default() });
    }

    /// Stores a disputed charge (B18).
    pub(super) fn keep_dispute(&mut self, child_id: &ChildId, dispute: Dispute) {
        let at = self.expect(child_id);
        let disputed = Move::more(dispute.amount);
        let node = self.node_mut(at);
        node.calls.keep(&dispute.of);
        node.disputes.push(dispute);
        self.post(at, Posting { disputed, ..Posting::default() });
    }

    /// Books a disputed charge if it is accepted, and drops it otherwise (B18).
    pub(super) fn end_dispute(&mut self, child_id: &ChildId, number: u32, decision: Decision) {
        let at = self.expect(child_id);
        // Disputes are numbered from 1.
        let dispute = self.node_mut(at).disputes.row_mut(number - 1);
        dispute.decision = Some(decision);
        let amount = dispute.amount;
        let booked = if decision == Decision::Accepted { amount } else { Amount::ZERO };
        let disputed = Move::less(amount);
        let spent = Move::more(booked);
        self.post(at, Posting { disputed, spent, uncovered: booked, ..Posting::default() });
    }

    /// Changes a budget, or ends its context, and passes the change of its hold on to the parent.
    pub(super) fn change_budget(&mut self, at: ContextIndex, change: impl FnOnce(&mut ContextNode)) {
        let node = self.node_mut(at);
        let (before, carved_before) = node.parent_holds();
        change(node);
        let (after, carved_after) = node.parent_holds();
        let parent = node.parent;
        let posting = Posting {
            held: Move::between(before, after),
            carved: Move::between(carved_before, carved_after),
            ..Posting::default()
        };
        self.post_from(parent, posting);
    }

    /// Raises a ceiling, and the ceilings of descendants that are inherited from it (B8).
    pub(super) fn raise(&mut self, at: ContextIndex, limit: Amount) {
        let more = limit.saturating_sub(self.node(at).budget.ceilings.limit);
        self.change_budget(at, |node| node.budget.ceilings.limit = limit);
        let node = self.node_mut(at);
        node.replenish();
        node.lifecycle.growths += 1;
        let children = self.node(at).children.clone();
        for child in children {
            if !self.node(child).is_live() {
                continue;
            }
            let budget = &self.node(child).budget;
            let follows = budget
                .ceilings
                .limit
                .checked_add(budget.ceilings.inherited.of(more))
                .map_or(budget.ceilings.limit, |l| l.min(limit));
            if follows != budget.ceilings.limit {
                self.raise(child, follows);
            }
        }
    }

    /// Returns the contexts, from `at` up to the root, that have nothing left for a new child: they
    /// are exhausted, have granted everything, or have only the closing reserve left. A granted
    /// amount belongs to its holder, so above a grant a context is returned only if it is
    /// exhausted.
    pub(super) fn nothing_left(&self, at: ContextIndex) -> impl Iterator<Item = (&ContextNode, Dimension)> {
        let mut guaranteed = GrantedDimensions::default();
        self.chain_of_undo(at).filter_map(move |(_, node)| {
            let budget = &node.budget;
            let left = budget.left_for_children();
            let used_up = [
                (!guaranteed.cost && left.cost_usd == Usd::ZERO, Dimension::Cost),
                (!guaranteed.tokens && left.tokens == Tokens::ZERO, Dimension::Tokens),
            ];
            guaranteed.cost |= budget.ceilings.granted.cost;
            guaranteed.tokens |= budget.ceilings.granted.tokens;
            let used_up = used_up.into_iter().find(|(used_up, _)| *used_up).map(|(_, dimension)| dimension);
            Some((node, node.lifecycle.exhausted.or(used_up)?))
        })
    }

    /// Adds the hold of a new context to its ancestors.
    pub(super) fn hold_on_parent_for_new(&mut self, at: ContextIndex) {
        let (held, carved) = self.node(at).parent_holds();
        let posting = Posting { held: Move::more(held), carved: Move::more(carved), ..Posting::default() };
        self.post_from(self.node(at).parent, posting);
    }

    fn post_from(&mut self, start: Option<ContextIndex>, mut posting: Posting) {
        let mut next = start;
        while let Some(at) = next {
            let moves = [posting.spent, posting.held, posting.carved, posting.disputed];
            if moves.into_iter().all(Move::is_nothing) {
                return;
            }
            let node = self.node_mut(at);
            let (before, carved_before) = node.parent_holds();
            let budget = &mut node.budget;
            let left_before = budget.left_apart_from_calls(false);
            budget.held = posting.held.on(budget.held);
            budget.carved = posting.carved.on(budget.carved);
            budget.spent = posting.spent.on(budget.spent);
            budget.estimated = posting.estimated.on(budget.estimated);
            budget.disputed = posting.disputed.on(budget.disputed);
            budget.uncovered = Move::more(posting.uncovered).on(budget.uncovered);
            // A cost that a grant pays moves from `carved` to `spent`: nothing more is left for the
            // other contexts.
            if budget.left_apart_from_calls(false).exceeds(left_before).is_some() {
                node.lifecycle.growths += 1;
            }
            let (after, carved_after) = node.parent_holds();
            posting.held = Move::between(before, after);
            posting.carved = Move::between(carved_before, carved_after);
            next = node.parent;
        }
    }

    /// Checks that the sums can still grow by these amounts without exceeding the largest amount.
    /// No context has larger sums than the root, so an amount that fits there fits everywhere. Open
    /// holds may become costs and are included. Disputes are summed separately, so that they can't
    /// crowd out real costs.
    pub(super) fn check_books(&self, booked: Amount, disputed: Amount) -> Result<(), Refusal> {
        let root = &self.root().expect("a known context has a root").budget;
        let spent = booked.checked_add(root.spent).and_then(|sum| sum.checked_add(root.held));
        let sums = [spent, booked.checked_add(root.uncovered), disputed.checked_add(root.disputed)];
        if sums.iter().all(Option::is_some) { Ok(()) } else { Err(Refusal::BooksFull) }
    }

    /// Checks that `amount` can be held at `at` and on all its ancestors (B3). The error names the
    /// context that denies it (B5). A hold that fits exactly is admitted (B4).
    pub(super) fn check_hold(&self, at: ContextIndex, amount: Amount, by_child: bool) -> Result<(), Refusal> {
        self.check_hold_behind(at, amount, by_child, &ReservedAhead::default()).map_err(Refusal::Denied)
    }

    /// Like `check_hold`, without the amounts that are kept for holds further ahead in the line.
    pub(super) fn check_hold_behind(
        &self,
        at: ContextIndex,
        amount: Amount,
        by_child: bool,
        ahead: &ReservedAhead,
    ) -> Result<(), Box<HoldDenied>> {
        self.walk_hold(at, amount, by_child, |index, node, for_descendant| {
            let room = node.budget.room(for_descendant).saturating_sub(ahead.at(index));
            if index == at { room.min(self.own_left(node, true, for_descendant)) } else { room }
        })
    }

    /// Checks that `amount` could be held if all calls in flight were free. If this fails, waiting
    /// for other calls is useless.
    pub(super) fn check_hold_apart_from_calls(
        &self,
        at: ContextIndex,
        amount: Amount,
        by_child: bool,
    ) -> Result<(), Box<HoldDenied>> {
        self.walk_hold(at, amount, by_child, |index, node, for_descendant| {
            let left = node.budget.left_apart_from_calls(for_descendant);
            if index == at { left.min(self.own_left(node, false, for_descendant)) } else { left }
        })
    }

    /// The amount left for the own calls of a context whose profile bounds them (B17). Ordinary
    /// calls leave the profile's closing reserve to the last report (B7).
    fn own_left(&self, node: &ContextNode, with_calls: bool, ordinary: bool) -> Amount {
        let left = node.own_left(with_calls);
        let profile = node.spec.agent_id.as_ref().and_then(|id| self.agent(id));
        match profile.and_then(|profile| profile.closing_reserve_usd) {
            Some(own) if ordinary && node.lifecycle.own_limit.is_some() => {
                left.saturating_sub(Amount::cost(own.min(node.budget.ceilings.reserve_usd)))
            }
            Some(_) | None => left,
        }
    }

    fn walk_hold(
        &self,
        at: ContextIndex,
        amount: Amount,
        by_child: bool,
        room: impl Fn(ContextIndex, &ContextNode, bool) -> Amount,
    ) -> Result<(), Box<HoldDenied>> {
        let mut need = amount;
        let mut for_descendant = by_child;
        for (index, node) in self.chain(at) {
            let room = room(index, node, for_descendant);
            if let Some(dimension) = need.exceeds(room) {
                let budget = &node.budget;
                return Err(Box::new(HoldDenied {
                    context: node.id.clone(),
                    dimension,
                    asked: amount,
                    limit: budget.ceilings.limit,
                    spent: budget.spent,
                    held: budget.held,
                    left_usd: room.cost_usd,
                    left_tokens: room.tokens,
                    pause: self.may_pause(at),
                }));
            }
            need = node.parent_hold_growth(need);
            if need.is_zero() {
                return Ok(());
            }
            for_descendant = true;
        }
        Ok(())
    }

    /// The amount left to a context on all its ancestors if all calls in flight were free.
    pub(super) fn left_apart_from_calls(&self, at: ContextIndex) -> Amount {
        self.least_left(at, |_, node| node.budget.left_for_children())
    }

    /// The amount left for a cost that had no hold. Amounts held for other calls are not used for
    /// it (B18).
    pub(super) fn left_for_unheld(&self, at: ContextIndex) -> Amount {
        self.least_left(at, |index, node| node.budget.room(index != at))
    }

    /// The largest overdraft of a context and its ancestors: spent plus held, above the ceiling.
    /// Ancestors above a grant are included: they grant no more than they have, so overdrafts of
    /// many grants add up in them.
    pub(super) fn overdrawn(&self, at: ContextIndex) -> Amount {
        let above = |node: &ContextNode| {
            let used = node.budget.spent.checked_add(node.budget.held);
            used.unwrap_or(Amount::new(Usd::MAX, Tokens::MAX)).saturating_sub(node.budget.ceilings.limit)
        };
        self.chain(at).map(|(_, node)| above(node)).fold(Amount::ZERO, Amount::max)
    }

    /// The smallest amount left on a context and its ancestors. Above a live grant nothing limits
    /// the context, because the granted amount belongs to its holder.
    fn least_left(&self, at: ContextIndex, left: impl Fn(ContextIndex, &ContextNode) -> Amount) -> Amount {
        let mut least = Amount::new(Usd::MAX, Tokens::MAX);
        let mut guaranteed = GrantedDimensions::default();
        for (index, node) in self.chain(at) {
            least = guaranteed.choose(least, least.min(left(index, node)));
            guaranteed.cost |= node.budget.ceilings.granted.cost && node.is_live();
            guaranteed.tokens |= node.budget.ceilings.granted.tokens && node.is_live();
        }
        least
    }
}
