//! The work that a coordinator hands out. An offer in the queue has only the ids; the answer to the
//! claim has everything else. So a worker in any language needs no other configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{BudgetSnapshot, Checkpoint, EndStatus, OutputFile, Payload, SharedMessage, Text};
use crate::{
    agent::AgentProfile,
    id::{ChildId, ContextKey, ModelName, ThreadId, ToolName, TraceId},
    json::Json,
    ladder::Rung,
    limits::Limits,
    money::Tokens,
    secrets::Secrets,
    time::Timestamp,
};

/// Offers a context to the workers of a pool. A worker must claim the context before it runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Offer {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The attempt that a claim would begin.
    pub attempt: u32,
    pub report_to: ClaimAt,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClaimAt {
    /// The full subject for the claim.
    pub ask: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Execute {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The attempt that was claimed.
    pub attempt: u32,
    pub depth: u32,
    pub goal: Text,
    pub agent: AgentProfile,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The tools that the agent may call, narrowed by its ancestors. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<ToolName>>,
    /// The names of the secrets that the agent may use (S8). A worker without their values refuses
    /// to run it.
    #[serde(default, skip_serializing_if = "crate::secrets::is_none")]
    pub secrets: Secrets,
    pub inputs: BTreeMap<ContextKey, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    pub limits: Limits,
    /// By the coordinators' clock. The answers to the claim and to ticks have the time that is
    /// left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_messages: Vec<SharedMessage>,
    /// The files that the caller handed over. The agent begins with copies of them in its
    /// `outputs/` (G10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OutputFile>,
    pub budget: BudgetSnapshot,
    /// The ladder of the context's budget (B21).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_budget: Vec<Rung>,
    pub report_to: ReportTo,
    /// The results of children that have ended. If they are large or many, only the newest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildResult>,
    /// The answers of humans to its questions, in order. If they are large, only the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<GivenAnswer>,
    /// The journal begins with a copy of another context's journal up to this place (W5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<Checkpoint>,
    /// The latest restore, if there is one. Later journal entries are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestorePoint>,
    /// The number of journal entries that earlier attempts reported. A journal with fewer entries
    /// is incomplete, and continuing from it would repeat work.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub journaled: u32,
    /// The parts that are missing because this message would be too large. They can be requested
    /// (`part`).
    #[serde(default, skip_serializing_if = "LeftOut::is_nothing")]
    pub left_out: LeftOut,
}

/// The parts that are missing because a message would be too large.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LeftOut {
    /// Results of children may be missing: a child that is not listed may have ended.
    #[serde(skip_serializing_if = "is_false")]
    pub children: bool,
    /// The missing inputs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub inputs: BTreeSet<ContextKey>,
    /// The number of missing answers, from the first on.
    #[serde(skip_serializing_if = "super::report::is_zero")]
    pub answers: u32,
}

impl LeftOut {
    pub fn is_nothing(&self) -> bool {
        *self == LeftOut::default()
    }
}

/// The name of a part of a context's work that its message may lack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartName {
    /// The result of a child.
    Child(ChildId),
    Input(ContextKey),
    /// The answer to a question, by its number, from 1.
    Answer(u32),
}

/// A part that was requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// `None` if the child has not ended.
    Child(Option<ChildResult>),
    Input(Json),
    Answer(GivenAnswer),
}

/// A restore to an earlier step (W5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestorePoint {
    /// The number of this restore within its context, from 1.
    pub number: u32,
    /// The last journal entry that still applies; 0: no entry.
    pub to: u32,
    /// The number of `answers` before this restore. Answers to later questions follow them.
    #[serde(default)]
    pub answers: u32,
}

/// The full subjects for asks and reports. A worker in any language needs no other configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportTo {
    /// Request and reply: claim, tick, hold, shared store.
    pub ask: String,
    pub result: String,
    pub cost: String,
    /// The journal of the context.
    pub history: String,
    /// The agent's output while it works; not stored.
    pub stream: String,
    /// Broadcast: stop one context of this trace.
    pub stop: String,
}

/// The result of a child for its parent. The parent gets no steps, no memory and no files (I2).
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
    /// The name of the person who answered, if the answer has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
    /// No answer came in time, so this is the question's default.
    #[serde(default, skip_serializing_if = "is_false")]
    pub default: bool,
    /// Not an answer: a restore withdrew the question. The question's number is not used again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub withdrawn: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(truth: &bool) -> bool {
    !truth
}
