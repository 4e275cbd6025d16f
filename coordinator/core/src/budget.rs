//! The budget of one context: its ceilings, the amounts spent and held, and its hold on the parent.
//! These are plain values; `budget_walk` moves a change up the tree.

use domain::{
    Amount, CallId, Timestamp, Usd,
    money::booked,
    wire::{BudgetSnapshot, Funding, Hold},
};
use serde::{Deserialize, Serialize};

use super::event::is_default;

/// A choice of the two dimensions. For a grant: the ceilings that it names, which are carved out of
/// the parent; the other dimension is shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GrantedDimensions {
    pub cost: bool,
    pub tokens: bool,
}

impl GrantedDimensions {
    /// The part of `amount` in the granted dimensions.
    pub fn of(self, amount: Amount) -> Amount {
        self.choose(amount, Amount::ZERO)
    }

    pub(super) fn choose(self, granted: Amount, shared: Amount) -> Amount {
        Amount {
            cost_usd: if self.cost { granted.cost_usd } else { shared.cost_usd },
            tokens: if self.tokens { granted.tokens } else { shared.tokens },
        }
    }
}

/// The ceilings of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    pub limit: Amount,
    /// Only the context itself may hold this part, not its descendants (B7).
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserve_usd: Usd,
    #[serde(default, skip_serializing_if = "is_default")]
    pub granted: GrantedDimensions,
    /// The dimensions in which the ceiling is the parent's ceiling: a raise of the parent raises it
    /// too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherited: GrantedDimensions,
}

/// A budget. Every booking changes its sums on all ancestors, so the sums are stored without the
/// ceilings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    #[serde(skip)]
    pub ceilings: Ceilings,
    /// By this context and all its descendants.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub spent: Amount,
    /// By this context only.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub own: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub held: Amount,
    /// The part of `held` that is grants to descendants and reserves for undos, not calls in
    /// flight.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub carved: Amount,
    /// The part of `held` and `carved` that is reserved for the undos of the context's own steps
    /// (G14).
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub reserved: Amount,
    /// Amounts that were booked beyond a hold, and disputed charges that were accepted.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub uncovered: Amount,
    /// The part of `spent` that was booked for calls whose end is unknown.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub estimated: Amount,
    /// Costs of this context and its descendants that are not booked because too little was left
    /// (B18).
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub disputed: Amount,
}

/// One paid call that is stored in full (see `calls`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The attempt that took the hold; 0 for a cost without a hold.
    pub attempt: u32,
    pub held: Amount,
    pub state: CallState,
}

/// A hold ends once: settled, released or forfeited. The real cost may still correct a released or
/// a forfeited call; a settled call never changes again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    Held,
    Settled(Amount),
    Released,
    Forfeited,
}

/// A hold that waits until calls in flight end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingHold {
    /// The place in the line: the version of the trace when the hold arrived.
    pub ticket: u64,
    pub call_id: CallId,
    pub attempt: u32,
    pub amount: Amount,
    /// The hold is for the last report, which may use the closing reserve (B7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// Set when the turn of a parked context comes: the place is kept until this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
}

impl WaitingHold {
    /// Returns true if `hold` is another request for this waiting hold.
    pub(super) fn is_of(&self, hold: &Hold) -> bool {
        self.call_id == hold.call_id && self.attempt == hold.lease.attempt
    }
}

impl Budget {
    pub fn new(
        limit: Amount,
        reserve_usd: Usd,
        granted: GrantedDimensions,
        inherited: GrantedDimensions,
    ) -> Self {
        Budget { ceilings: Ceilings { limit, reserve_usd, granted, inherited }, ..Budget::default() }
    }

    /// The amount that a new hold of the context itself, or of a descendant, may take.
    pub fn room(&self, for_descendant: bool) -> Amount {
        let limit = if for_descendant { self.open_to_descendants() } else { self.ceilings.limit };
        limit.saturating_sub(self.spent).saturating_sub(self.held)
    }

    /// The ceiling of a child that requests none. Calls in flight are left out, because most of
    /// each hold returns: a ceiling must not depend on the calls that happen to be in flight.
    pub fn left_for_children(&self) -> Amount {
        self.left_apart_from_calls(true)
    }

    /// The amount that a new hold of the context itself, or of a descendant, could take if all
    /// calls in flight were free.
    pub fn left_apart_from_calls(&self, for_descendant: bool) -> Amount {
        let limit = if for_descendant { self.open_to_descendants() } else { self.ceilings.limit };
        limit.saturating_sub(self.spent).saturating_sub(self.carved)
    }

    fn open_to_descendants(&self) -> Amount {
        self.ceilings.limit.saturating_sub(Amount::cost(self.ceilings.reserve_usd))
    }

    /// The hold on the parent.
    pub fn parent_hold(&self, live: bool) -> Amount {
        if !live {
            return self.held;
        }
        self.ceilings.granted.choose(self.ceilings.limit.saturating_sub(self.spent).max(self.held), self.held)
    }

    /// The part of the hold on the parent that is grants: the context's own, or those of its
    /// descendants.
    pub fn granted_parent_hold(&self, live: bool) -> Amount {
        if !live {
            return self.carved;
        }
        self.ceilings.granted.choose(self.parent_hold(live), self.carved)
    }

    pub fn snapshot(&self) -> BudgetSnapshot {
        BudgetSnapshot {
            limit: self.ceilings.limit,
            spent: self.spent,
            held: self.held,
            remaining: self.room(false),
            own: self.own,
            estimated: self.estimated,
            disputed: self.disputed,
            overspent: self.spent.saturating_sub(self.ceilings.limit),
            closing_reserve_usd: self.ceilings.reserve_usd,
            funding: if self.ceilings.granted == GrantedDimensions::default() {
                Funding::Shared
            } else {
                Funding::Granted
            },
        }
    }
}
