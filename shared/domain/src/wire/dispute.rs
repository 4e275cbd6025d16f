//! Disputed charges (B18): costs without a hold that exceed the rest of the budget. They are not
//! booked until an administrator accepts them.

use serde::{Deserialize, Serialize};

use crate::{
    id::{CallId, ChildId, WorkerId},
    money::Amount,
    time::Timestamp,
};

/// The part of a cost that is not booked, because nothing was left for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Dispute {
    /// Its number within its context, from 1.
    pub number: u32,
    pub amount: Amount,
    pub of: DisputedCost,
    pub sent_by: Sender,
    pub at: Timestamp,
    /// Absent until an administrator has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// The cost that a disputed amount is a part of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DisputedCost {
    /// Of a call, or of something a program did itself.
    Call(CallId),
    /// Of a charge, by its key.
    Charge(CallId),
}

/// Who sent a cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sender {
    Worker {
        worker_id: WorkerId,
        attempt: u32,
    },
    /// Whoever sent the charge on `agent.admin.charge`, as they named themselves.
    Control {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Booked, past the ceiling if need be.
    Accepted,
    /// Not a cost of this run.
    Dropped,
}

/// An administrator's decision about a disputed charge. The first one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideDispute {
    pub child_id: ChildId,
    pub number: u32,
    pub decision: Decision,
}
