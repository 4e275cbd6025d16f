//! News for an agent before its next call: messages to it (G13), and rungs that its budget has
//! reached (B21). The coordinator numbers both; a worker reports the numbers that its journal has.

use serde::{Deserialize, Serialize};

use super::Text;
use crate::{
    id::{CallId, ChildId},
    ladder::{Fraction, RungAction},
    money::{Tokens, Usd, booked},
};

/// A message to an agent. The agent sees messages once each, in order, before its next model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tell {
    /// The context; absent: the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// The sender's own id for the message. A second message with the same id and text changes
    /// nothing.
    pub id: CallId,
    pub text: Text,
    /// The name of the sender; the agent sees it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// The latest numbers in the journal of a context. Absent kinds of news are not requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenNumbers {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rungs: Option<u32>,
}

/// The news after the numbers of a [`SeenNumbers`], in order. There may be more than fit into one
/// message.
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
    /// The number of the message within its context, from 1. Absent in a branch for messages to the
    /// other context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    pub text: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

/// A rung that the budget of a context has reached, with the amounts that are left now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReachedRung {
    /// The place of the rung in the ladder, from 1.
    pub number: u32,
    pub at: Fraction,
    pub action: RungAction,
    #[serde(deserialize_with = "booked::usd")]
    pub left_usd: Usd,
    #[serde(deserialize_with = "booked::tokens")]
    pub left_tokens: Tokens,
}
