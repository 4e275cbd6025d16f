//! Messages of people and tools about running work: cancel, answer, raise, charge, delete, restore,
//! and decisions about disputed charges.

use serde::{Deserialize, Deserializer, Serialize};

use super::{DecideDispute, Tell, Text};
use crate::{
    id::{CallId, ChildId, TraceId},
    money::{Amount, Tokens, Usd},
};

/// Stops a whole trace, or one context and its descendants. It also applies if it arrives before
/// the context (G8). Successful steps of a graph with an `undo` are undone (G14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub trace_id: TraceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// Nothing is undone, even if undoing has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_undo: bool,
}

/// A human's answer to a question, which may come days later (G7), or a message to an agent (G13).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub trace_id: TraceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<AnswerMessage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Tell>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerMessage {
    pub child_id: ChildId,
    /// The number of the question, from 1. An answer to an earlier question changes nothing.
    pub question: u32,
    /// An answer that does not match the question's `choices` or `schema` is refused.
    pub answer: Text,
    /// The name of the person who answers, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// A request of an administrator about a run. On `agent.admin.raise` only `raise` is accepted, and
/// so on.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispute: Option<DecideDispute>,
}

impl Control {
    /// Makes a message about a trace without any request yet.
    pub fn of(trace_id: TraceId) -> Self {
        Control { trace_id, raise: None, charge: None, delete: None, restore: None, dispute: None }
    }
}

/// Takes a live agent back to an earlier step of its journal. Later steps are ignored, but remain
/// paid (W5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    pub child_id: ChildId,
    /// The number of this restore within its context, from 1. A restore that was done already
    /// changes nothing.
    pub number: u32,
    /// The last journal entry that still applies; 0: no entry.
    pub to: u32,
}

/// New, higher ceilings; at least one is required. Raising a ceiling to its present value changes
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(extend("anyOf" = [{"required": ["max_cost_usd"]}, {"required": ["max_tokens"]}]))]
#[serde(deny_unknown_fields)]
pub struct Raise {
    pub child_id: ChildId,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Usd")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Tokens")]
    pub max_tokens: Option<Tokens>,
}

/// Reads a ceiling and rejects null. A client that sends null raises nothing, and would take the
/// answer for a raise.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An external cost without a hold. It is booked once by its key (B11), as far as the budget has
/// room (B18).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    pub child_id: ChildId,
    pub key: CallId,
    pub amount: Amount,
    /// The name of the sender, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// Deletes the journal, outputs, inputs and result of a context, or of a whole trace (W6). Its
/// costs stay booked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// Also ends live contexts and deletes them.
    #[serde(default)]
    pub force: bool,
    /// The known users of the content outside the trace.
    pub outside: Referrers,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Referrers {
    Known(Vec<String>),
    /// Unknown. Without `force`, the delete is refused.
    Unknown,
}
