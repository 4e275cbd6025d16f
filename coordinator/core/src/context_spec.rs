//! The spec of one context, from a submission, an agent's spawn or a step of a graph. It never
//! changes: a second spawn under the same id is compared with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{
    AgentId, ChildId, ContextKey, Json, Labels, Problems, Secrets, ThreadId, Tokens, Usd,
    graph::{OutputSchema, Plan, TaskGraph},
    id::{ModelName, ToolName},
    ladder::Rung,
    limits::LimitOverrides,
    wire::{Checkpoint, Funding, Hitl, OnExhausted, OutputFile, SharedMessage, Spawn, Text},
};
use serde::{Deserialize, Serialize};

use super::RerunOrder;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ContextSpec {
    pub child_id: ChildId,
    /// Absent for a graph or group without an agent of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// Labels of the run; only a root has them (G17).
    #[serde(default, skip_serializing_if = "domain::labels::is_none")]
    pub labels: Labels,
    /// Values for this context only; those of a graph are written to the shared store.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<ContextKey, Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_from: Vec<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<BTreeSet<ToolName>>>,
    /// Absent: a step has the secrets of its graph or group; other contexts have none (S8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Box<Secrets>>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_budget: Option<Vec<Rung>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<Hitl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<LimitOverrides>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_messages: Vec<SharedMessage>,
    /// The files that its caller handed over, as objects of the caller (G10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OutputFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<OutputSchema>,
    /// The checkpoint with whose steps it begins (W5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<Checkpoint>,
    /// The run whose results it takes over (G15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<RerunOrder>,
}

impl ContextSpec {
    /// A spec for `child_id` with everything else at its default.
    pub fn new(child_id: ChildId) -> Self {
        ContextSpec {
            child_id,
            agent_id: None,
            goal: None,
            thread_id: None,
            labels: Labels::default(),
            inputs: BTreeMap::new(),
            input_from: Vec::new(),
            output_to: None,
            tools: None,
            secrets: None,
            model: None,
            max_cost_usd: None,
            max_tokens: None,
            funding: Funding::default(),
            closing_reserve_usd: None,
            on_exhausted: None,
            on_budget: None,
            hitl: None,
            timeout_ms: None,
            limits: None,
            window_tokens: None,
            shared_messages: Vec::new(),
            files: Vec::new(),
            output_schema: None,
            branch_from: None,
            rerun: None,
        }
    }

    /// The spec of one agent. `shared` are messages of the parent's window; only the categories
    /// that the spawn lists are kept (W3). `fresh` is the id of a spawn that names none.
    pub fn from_spawn(spawn: &Spawn, shared: &[SharedMessage], fresh: &ChildId) -> Result<Self, Problems> {
        let output_schema = spawn.output_schema.as_ref().map(OutputSchema::compile).transpose();
        Ok(ContextSpec {
            agent_id: Some(spawn.agent_id.clone().unwrap_or_else(AgentId::default_agent)),
            goal: Some(spawn.goal.clone()),
            thread_id: spawn.thread_id.clone(),
            labels: spawn.labels.clone(),
            inputs: spawn.inputs.clone(),
            input_from: spawn.input_from.clone(),
            output_to: spawn.output_to.clone(),
            tools: spawn.tools.clone().map(Arc::new),
            secrets: named(&spawn.secrets),
            model: spawn.model.clone(),
            max_cost_usd: spawn.max_cost_usd,
            max_tokens: spawn.max_tokens,
            funding: spawn.funding,
            closing_reserve_usd: spawn.closing_reserve_usd,
            on_exhausted: spawn.on_exhausted,
            on_budget: spawn.on_budget.clone(),
            hitl: spawn.hitl,
            timeout_ms: spawn.timeout_ms,
            limits: boxed(&spawn.limits),
            window_tokens: spawn.window_tokens,
            shared_messages: shared.iter().filter(|m| spawn.share.contains(&m.category)).cloned().collect(),
            output_schema: output_schema.map_err(|message| Problems::one("output_schema", message, None))?,
            branch_from: spawn.branch_from.clone(),
            ..ContextSpec::new(spawn.child_id.clone().unwrap_or_else(|| fresh.clone()))
        })
    }

    /// The spec of a graph, with the plan into which its definition compiles.
    pub fn from_graph(graph: &TaskGraph, fresh: &ChildId) -> Result<(Self, Arc<Plan>), Problems> {
        let plan = Plan::compile(graph)?;
        Ok((Self::of_graph(graph, fresh), Arc::new(plan)))
    }

    /// The spec of a graph whose definition is already compiled.
    pub fn of_graph(graph: &TaskGraph, fresh: &ChildId) -> Self {
        ContextSpec {
            agent_id: graph.aggregate.as_ref().and(graph.agent_id.clone()),
            goal: graph.task_description.clone(),
            thread_id: graph.thread_id.clone(),
            labels: graph.labels.clone(),
            inputs: graph.filled_inputs(),
            input_from: graph.input_from.clone(),
            secrets: named(&graph.secrets),
            max_cost_usd: graph.max_cost_usd,
            max_tokens: graph.max_tokens,
            funding: graph.funding,
            closing_reserve_usd: graph.closing_reserve_usd,
            on_exhausted: graph.on_exhausted,
            hitl: graph.hitl,
            timeout_ms: graph.timeout_ms,
            limits: boxed(&graph.limits),
            // A schema that does not compile is reported as a problem of the plan.
            output_schema: graph.output_schema.as_ref().and_then(|schema| OutputSchema::compile(schema).ok()),
            ..ContextSpec::new(graph.child_id.clone().unwrap_or_else(|| fresh.clone()))
        }
    }
}

fn named(secrets: &Secrets) -> Option<Box<Secrets>> {
    (!secrets.is_empty()).then(|| Box::new(secrets.clone()))
}

fn boxed(limits: &LimitOverrides) -> Option<Box<LimitOverrides>> {
    (*limits != LimitOverrides::default()).then(|| Box::new(limits.clone()))
}
