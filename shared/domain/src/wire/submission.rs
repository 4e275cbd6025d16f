//! The messages with which a client starts work and an agent spawns a child.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Checkpoint, Lease, OutputFile};
use crate::{
    graph::TaskGraph,
    id::{AgentId, ChildId, ContextKey, ModelName, ThreadId, ToolName, TraceId},
    json::Json,
    labels::Labels,
    ladder::Rung,
    limits::LimitOverrides,
    money::{Tokens, Usd},
    secrets::Secrets,
    terms::{Funding, Hitl, OnExhausted, Text},
};

/// The parts of the parent's window that a spawn may copy (W3). DIALOG and TOOLS can't be listed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ShareCategory {
    System,
    Context,
}

/// One message of the parent's window, as it was when the spawn was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedMessage {
    pub category: ShareCategory,
    pub content: String,
}

/// One agent to run: `{"goal": "…"}` is enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spawn {
    pub goal: Text,
    /// The profile to run. Absent: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// Keys and values for finding the run (G17). For submissions only: a child has none.
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
    /// Values that are sent with the request. The agent sees them as its inputs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<ContextKey, Json>,
    /// Keys of the shared store that it may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_from: Vec<ContextKey>,
    /// The key its result is written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<std::collections::BTreeSet<ToolName>>,
    /// The names of the secrets that it may use (S8). A child's secrets must be its caller's.
    #[serde(default, skip_serializing_if = "crate::secrets::is_none")]
    pub secrets: Secrets,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    #[serde(default)]
    pub funding: Funding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing_reserve_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
    /// Actions at fractions of its ceiling (B21). Absent: those of its profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_budget: Option<Vec<Rung>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<Hitl>,
    /// For a submission: real time from now on. For a spawned child: time from the start of its
    /// first attempt, so waiting for a worker is not included (`max_queue_ms` in `limits` bounds
    /// that wait). 0: no timeout of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub limits: LimitOverrides,
    /// An upper limit of its context window (W1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    /// The parts of the parent's window to copy once (W3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<ShareCategory>,
    /// A JSON Schema that the result must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// The agent begins with the work of another context up to that step, without paying for it
    /// again (W5). For submissions only: a child gets only its goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<Checkpoint>,
    /// The subject that gets the acceptance or the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}

impl Spawn {
    /// Makes a spawn with only a goal.
    pub fn new(goal: Text) -> Self {
        Spawn {
            goal,
            agent_id: None,
            trace_id: None,
            child_id: None,
            thread_id: None,
            labels: Default::default(),
            inputs: Default::default(),
            input_from: Vec::new(),
            output_to: None,
            tools: None,
            secrets: Secrets::default(),
            model: None,
            max_cost_usd: None,
            max_tokens: None,
            funding: Default::default(),
            closing_reserve_usd: None,
            on_exhausted: None,
            on_budget: None,
            hitl: None,
            timeout_ms: None,
            limits: Default::default(),
            window_tokens: None,
            share: Vec::new(),
            output_schema: None,
            branch_from: None,
            reply_to: None,
        }
    }
}

/// A child that a running agent requests: one agent (`spawn`) or a graph (`run_pipeline`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildSpawn {
    pub lease: Lease,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn: Option<Spawn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<TaskGraph>,
    /// The current messages of the categories in `share`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_messages: Vec<SharedMessage>,
    /// Files that the caller hands over to a `spawn`, as its objects. The child begins with copies
    /// of them in its `outputs/` (G10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OutputFile>,
}
