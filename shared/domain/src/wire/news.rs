//! News for an agent before its next call: messages to it (G13), and rungs that its budget has
//! reached (B21). The coordinator numbers both; a worker reports the numbers that its journal has.

use serde::{Deserialize, Serialize};

use super::Text;
use crate::{
    id::{CallId, ChildId},
    ladder::{Fraction, RungAction},
    money::{Tokens, Usd, booked},
};

/// A message to an agent: it sees it before its next model call, once, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tell {
    /// The context; absent: the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// The sender's own name for the message: the same id and text again changes nothing.
    pub id: CallId,
    pub text: Text,
    /// Who sends it; the agent sees that too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// The latest numbers that the journal of a context has. What is absent is not wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenNumbers {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rungs: Option<u32>,
}

/// What came behind the numbers of a [`SeenNumbers`], in order; there may be more than fit into a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct News {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<PersonMessage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<ReachedRung>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PersonMessage {
    /// Its number within its context, from 1; absent in a branch, for what another context was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    pub text: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// A rung that the budget of a context has reached, with what is left now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReachedRung {
    /// Its place in the ladder, from 1.
    pub number: u32,
    pub at: Fraction,
    pub action: RungAction,
    #[serde(deserialize_with = "booked::usd")]
    pub left_usd: Usd,
    #[serde(deserialize_with = "booked::tokens")]
    pub left_tokens: Tokens,
}
