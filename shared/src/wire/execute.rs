//! The work a coordinator hands out. It carries all a worker needs, so that a worker in any language
//! needs no other configuration. A delivery is only a hint: claim before running.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{BudgetSnapshot, Checkpoint, EndStatus, Payload, SharedMessage, Text};
use crate::{
    agent::AgentProfile,
    id::{ChildId, ContextKey, ModelName, ThreadId, ToolName, TraceId},
    json::Json,
    limits::Limits,
    money::Tokens,
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Execute {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The attempt this delivery would begin.
    pub attempt: u32,
    pub depth: u32,
    pub goal: Text,
    pub agent: AgentProfile,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The tools it may call, narrowed by its ancestors; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<ToolName>>,
    pub inputs: BTreeMap<ContextKey, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_messages: Vec<SharedMessage>,
    pub budget: BudgetSnapshot,
    pub report_to: ReportTo,
    /// How the children it has spawned ended, those that have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildResult>,
    /// The answers of humans to its questions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<GivenAnswer>,
    /// Its journal begins with a copy of another's, up to here (W5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<Checkpoint>,
    /// The last restore that was asked for, if any: what its journal has after it no longer counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestorePoint>,
    /// As many entries its journal had, as earlier attempts told: with fewer it is not whole, and to go
    /// on from it would be to do things twice.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub journaled: u32,
}

/// Back to a step (W5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestorePoint {
    /// Which restore of this context, counted from 1.
    pub number: u32,
    /// The last entry of the journal that counts; 0 is none.
    pub to: u32,
    /// How many of `answers` were there by then: those to its questions from here on come after them.
    #[serde(default)]
    pub answers: u32,
}

/// The subjects to ask and report on, whole: a worker in any language needs no other configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportTo {
    /// Request and reply: claim, tick, hold, shared context.
    pub ask: String,
    pub result: String,
    pub cost: String,
    /// The journal.
    pub history: String,
    /// What it says while it works, for whoever listens; not stored.
    pub stream: String,
    /// Broadcast: stop what you run of this trace.
    pub stop: String,
}

/// Only a child's result crosses to its parent: no steps, no memory, no files (I2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildResult {
    pub child_id: ChildId,
    pub status: EndStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenAnswer {
    pub question: Text,
    pub answer: Text,
    /// Nobody answered: a restore took the question back. It keeps its number.
    #[serde(default, skip_serializing_if = "is_false")]
    pub withdrawn: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(truth: &bool) -> bool {
    !truth
}
