//! Disputed charges (B18): costs without a hold that exceed the rest of the budget. They are not
//! booked until an administrator accepts them.

use serde::{Deserialize, Serialize};

use crate::{
    id::{CallId, ChildId, WorkerId},
    money::Amount,
    time::Timestamp,
};

/// The part of a cost that is not booked, because the budget has no room for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Dispute {
    /// The number of the dispute within its context, from 1.
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
    /// The cost of a call, or of an action of a program itself.
    Call(CallId),
    /// A charge, by its key.
    Charge(CallId),
}

/// The sender of a cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sender {
    Worker {
        worker_id: WorkerId,
        attempt: u32,
    },
    /// The sender of the charge on `agent.admin.charge`, with the name it gave.
    Control {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The amount is booked, beyond the ceiling if necessary.
    Accepted,
    /// The amount is not a cost of this run.
    Dropped,
}

/// An administrator's decision about a disputed charge. The first one is final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideDispute {
    pub child_id: ChildId,
    pub number: u32,
    pub decision: Decision,
}
