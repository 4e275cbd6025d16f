//! Messages of people and tools about running work: cancel, answer, raise, charge, delete, restore,
//! and decisions about disputed charges.

use serde::{Deserialize, Deserializer, Serialize};

use super::{DecideDispute, Tell, Text};
use crate::{
    id::{CallId, ChildId, TraceId},
    money::{Amount, Tokens, Usd},
};

/// Stops a whole trace, or one context and its descendants. It also counts if it comes before the context
/// (G8). What had succeeded in a graph, and has an `undo`, is undone (G14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub trace_id: TraceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// Nothing is undone, also if that has begun.
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
    /// The number of the question, from 1; an answer to an earlier question changes nothing.
    pub question: u32,
    /// It must be as the question asks for (`choices`, `schema`), or is refused.
    pub answer: Text,
    /// Who answers, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// What an administrator asks for about a run: on `agent.admin.raise` only `raise`, and so on.
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

/// Takes a live agent back to an earlier step of its journal: later steps no longer count, but stay paid
/// for (W5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    pub child_id: ChildId,
    /// The number of this restore within its context, from 1; one that is already done changes nothing.
    pub number: u32,
    /// The last journal entry that counts; 0: none.
    pub to: u32,
}

/// New, higher ceilings: at least one. Raising a ceiling to its present value changes nothing.
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

/// An external cost without a hold; booked once by its key (B11), as far as something is left for it (B18).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    pub child_id: ChildId,
    pub key: CallId,
    pub amount: Amount,
    /// Who sends it, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// Deletes the journal, outputs, inputs and result of a context, or of a whole trace (W6). Its costs stay
/// booked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// Also ends and deletes what is live.
    #[serde(default)]
    pub force: bool,
    /// Who uses it from outside the trace, as far as the caller knows.
    pub outside: Referrers,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Referrers {
    Known(Vec<String>),
    /// Unknown: without force, the delete is refused.
    Unknown,
}
