//! What people and tools say about work that is under way: cancel, answer, raise, charge, delete,
//! restore.

use serde::{Deserialize, Serialize};

use super::Text;
use crate::{
    id::{CallId, ChildId, TraceId},
    money::{Amount, Tokens, Usd},
};

/// Stops a whole trace, or one context and all beneath it. It holds even if it comes first (G8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub trace_id: TraceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
}

/// A human's answer, days later too (G7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub trace_id: TraceId,
    pub answered: Answered,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    pub child_id: ChildId,
    /// Which of its questions, counted from 1; an answer to an earlier one changes nothing.
    pub question: u32,
    pub answer: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Control {
    pub trace_id: TraceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise: Option<Raise>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Charge>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Delete>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
}

/// Takes a live agent back to a step of its journal: what came after no longer counts, but was paid for
/// (W5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    pub child_id: ChildId,
    /// Which restore of this context, counted from 1; one that was done already changes nothing.
    pub number: u32,
    /// The last entry of its journal that is to count; 0 is none.
    pub to: u32,
}

/// New, higher ceilings. Raising to what it is already changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raise {
    pub child_id: ChildId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
}

/// A cost from outside, with no hold; booked once by its key (B11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    pub child_id: ChildId,
    pub key: CallId,
    pub amount: Amount,
}

/// Removes the journal, workspace, inputs and result of a context, or of a whole trace (W6). The
/// books stay: money that was spent does not vanish with the paper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// Ends what is live and deletes it all the same.
    #[serde(default)]
    pub force: bool,
    /// Who refers to it from outside the trace, as far as the caller could find out.
    pub outside: Referrers,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Referrers {
    Known(Vec<String>),
    /// It could not be found out: without force, the delete is refused.
    Unknown,
}
