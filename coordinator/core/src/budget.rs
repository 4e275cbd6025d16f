//! The budget of one context: its ceilings, what was spent and what is held, and what the context itself
//! keeps held on its parent. Plain values; how a change moves up the tree is in `books`.

use domain::{
    Amount, CallId, Timestamp, Usd,
    money::booked,
    wire::{BudgetSnapshot, Funding, Hold},
};
use serde::{Deserialize, Serialize};

use super::event::is_default;

/// Some of the two dimensions. For a grant: the ceilings it names, which are carved out of the parent; the
/// others are shared.
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
    /// Descendants can't hold this part (B7).
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserve_usd: Usd,
    #[serde(default, skip_serializing_if = "is_default")]
    pub granted: GrantedDimensions,
    /// Dimensions in which its ceiling is its parent's: raised when the parent's is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherited: GrantedDimensions,
}

/// A budget. Its sums, which every booking changes on all ancestors too, are stored without the ceilings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    #[serde(skip)]
    pub ceilings: Ceilings,
    /// Of this context and all its descendants.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub spent: Amount,
    /// Of this context alone.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub own: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub held: Amount,
    /// The part of `held` that is grants to descendants, or for undos, not calls in flight.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub carved: Amount,
    /// The part of both that is held for the undos of its own steps (G14).
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub reserved: Amount,
    /// Booked past what was held or left: costs beyond a hold, and disputed charges that were accepted.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub uncovered: Amount,
    /// The part of `spent` that stands for calls with an unknown end.
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub estimated: Amount,
    /// Costs of this context and its descendants that are not booked, because nothing was left for them (B18).
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub disputed: Amount,
}

/// One paid call, as far as it is kept in full (`calls`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The attempt that held it; 0 for a cost that came without a hold.
    pub attempt: u32,
    pub held: Amount,
    pub state: CallState,
}

/// A hold ends once: settled, released or forfeited. The last two may still be corrected by the
/// real cost; a settled call never changes again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    Held,
    Settled(Amount),
    Released,
    Forfeited,
}

/// A hold that waits for calls in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingHold {
    /// Its place in the line: the version of the trace when it came.
    pub ticket: u64,
    pub call_id: CallId,
    pub attempt: u32,
    pub amount: Amount,
    /// For the last report: may use the closing reserve (B7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// Its turn has come while it was parked: until then its place is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
}

impl WaitingHold {
    /// Whether this is the hold that is asked for again.
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

    /// What a new hold of the context itself, or of a descendant, may take.
    pub fn room(&self, for_descendant: bool) -> Amount {
        let limit = if for_descendant { self.open_to_descendants() } else { self.ceilings.limit };
        limit.saturating_sub(self.spent).saturating_sub(self.held)
    }

    /// What a child without a ceiling of its own gets. Calls in flight don't count: most of their hold
    /// returns, and a ceiling should not depend on who is calling at the moment.
    pub fn left_for_children(&self) -> Amount {
        self.left_apart_from_calls(true)
    }

    /// What a new hold of the context itself, or of a descendant, could take if all calls in flight were free.
    pub fn left_apart_from_calls(&self, for_descendant: bool) -> Amount {
        let limit = if for_descendant { self.open_to_descendants() } else { self.ceilings.limit };
        limit.saturating_sub(self.spent).saturating_sub(self.carved)
    }

    fn open_to_descendants(&self) -> Amount {
        self.ceilings.limit.saturating_sub(Amount::cost(self.ceilings.reserve_usd))
    }

    /// Its hold on the parent.
    pub fn parent_hold(&self, live: bool) -> Amount {
        if !live {
            return self.held;
        }
        self.ceilings.granted.choose(self.ceilings.limit.saturating_sub(self.spent).max(self.held), self.held)
    }

    /// The part of its hold on the parent that is grants: its own, or those beneath it.
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
