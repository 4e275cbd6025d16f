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

/// Offers a context to the workers of a pool: a hint, to be claimed before anything is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Offer {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The attempt that it would begin.
    pub attempt: u32,
    pub report_to: ClaimAt,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClaimAt {
    /// The full subject to send the claim to.
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
    /// The tools it may call, narrowed by its ancestors; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<ToolName>>,
    /// The names of the secrets that it may use (S8). The worker has the values, or refuses to run it.
    #[serde(default, skip_serializing_if = "crate::secrets::is_none")]
    pub secrets: Secrets,
    pub inputs: BTreeMap<ContextKey, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    pub limits: Limits,
    /// By the coordinators' clock. The answers to the claim and to ticks say how much time is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_messages: Vec<SharedMessage>,
    /// The files that its caller handed over: it begins with copies of them in its `outputs/` (G10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OutputFile>,
    pub budget: BudgetSnapshot,
    /// The ladder of its budget (B21).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_budget: Vec<Rung>,
    pub report_to: ReportTo,
    /// The results of its children that have ended. If they are large or many, only the newest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildResult>,
    /// The answers of humans to its questions, in order. If they are large, only the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<GivenAnswer>,
    /// Its journal begins with a copy of another context's, up to here (W5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<Checkpoint>,
    /// The latest restore, if any: later journal entries no longer count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestorePoint>,
    /// How many entries its journal had, as earlier attempts reported. With fewer entries the journal is
    /// incomplete, and going on from it would repeat work.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub journaled: u32,
    /// What this message lacks because it would be too large; it is asked for (`part`).
    #[serde(default, skip_serializing_if = "LeftOut::is_nothing")]
    pub left_out: LeftOut,
}

/// What a message lacks because it would be too large.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LeftOut {
    /// Children that have ended may be missing: one that is not listed may have ended.
    #[serde(skip_serializing_if = "is_false")]
    pub children: bool,
    /// These inputs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub inputs: BTreeSet<ContextKey>,
    /// So many of the first answers.
    #[serde(skip_serializing_if = "super::report::is_zero")]
    pub answers: u32,
}

impl LeftOut {
    pub fn is_nothing(&self) -> bool {
        *self == LeftOut::default()
    }
}

/// A part of a context's work that its message may lack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartName {
    /// The result of a child.
    Child(ChildId),
    Input(ContextKey),
    /// The answer to a question, by its number, from 1.
    Answer(u32),
}

/// A part that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// None if the child has not ended.
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
    /// The last journal entry that counts; 0: none.
    pub to: u32,
    /// How many of `answers` came before this restore: answers to later questions follow them.
    #[serde(default)]
    pub answers: u32,
}

/// The full subjects to ask and report on: a worker in any language needs no other configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportTo {
    /// Request and reply: claim, tick, hold, shared store.
    pub ask: String,
    pub result: String,
    pub cost: String,
    /// The journal of the context.
    pub history: String,
    /// What the agent says while it works; not stored.
    pub stream: String,
    /// Broadcast: stop running one context of this trace.
    pub stop: String,
}

/// The only thing a parent gets from its child: no steps, no memory, no files (I2).
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
    /// Who answered, if they said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
    /// Nobody answered in time: this is the question's default.
    #[serde(default, skip_serializing_if = "is_false")]
    pub default: bool,
    /// No answer: a restore withdrew the question. It keeps its number: the next question gets the next one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub withdrawn: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(truth: &bool) -> bool {
    !truth
}
