//! A task graph as people write it, in JSON or YAML (G1). This module has only its shape; the
//! compiler checks its meaning.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{AgentId, ChildId, ContextKey, ModelName, StepId, ThreadId, ToolName, TraceId},
    json::Json,
    labels::Labels,
    ladder::Rung,
    limits::LimitOverrides,
    money::{Tokens, Usd},
    secrets::Secrets,
    terms::{Funding, Hitl, OnExhausted, Text},
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One after another, in the order written.
    #[default]
    Sequential,
    /// All at once, except where `input_from` or `depends_on` make a step wait.
    Parallel,
}

/// What the failure of a step means for its graph (G4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The first failure of a required step ends the graph.
    #[default]
    Fail,
    /// Every step whose inputs exist still runs.
    Continue,
    /// As `continue`, with null for missing inputs; one success is enough.
    BestEffort,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskGraph {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<StepId>,
    #[serde(default)]
    pub mode: Mode,
    pub steps: Vec<StepDef>,
    #[serde(default)]
    pub on_partial_success: Policy,
    /// The first success wins; the other steps are cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub race: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateDef>,
    /// The graph's own agent, which synthesises the findings that `aggregate` gathers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_description: Option<Text>,
    /// Values written to the shared store before the first step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<ContextKey, Json>,
    /// A JSON Schema that `inputs`, as one object, must fit. The `default` of a property is the value of an input that is not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Json>,
    /// The result: the value of a key, or an object of them. Without it, the synthesis of `aggregate`, the result of the
    /// winner of a race, or the results of the steps by their ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputDef>,
    /// A JSON Schema that the result must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// Keys that the agent that runs this graph may read, and its steps then too; not for a submission. Values of the
    /// shared store are read as they are when a step starts, or asks for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_from: Vec<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// Keys and values to find the run by (G17). For submissions only: a child has none.
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
    /// The names of secrets that its steps and its own agent may use (S8): of its caller's, if an agent runs it.
    #[serde(default, skip_serializing_if = "crate::secrets::is_none")]
    pub secrets: Secrets,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    /// Refuses the graph unless its worst case fits its budget (G11).
    #[serde(default, skip_serializing_if = "is_false")]
    pub must_fit: bool,
    #[serde(default)]
    pub funding: Funding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing_reserve_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<Hitl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub limits: LimitOverrides,
    /// The subject that gets the acceptance or the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}

impl TaskGraph {
    /// Returns the keys that steps read although the graph neither writes nor receives them.
    pub fn undeclared_keys(&self) -> BTreeSet<ContextKey> {
        // The flag is true in a group with `for_each`, whose items get the keys in [`ITEM_KEYS`].
        let mut all: Vec<(&StepDef, bool)> = self.steps.iter().map(|step| (step, false)).collect();
        let mut done = 0;
        while let Some((step, in_items)) = all.get(done).copied() {
            all.extend(step.steps.iter().map(|inner| (inner, in_items || step.for_each.is_some())));
            done += 1;
        }
        let steps: Vec<&StepDef> = all.iter().map(|(step, _)| *step).collect();
        let outputs: BTreeSet<&ContextKey> =
            steps.iter().filter_map(|step| step.output_to.as_ref()).collect();
        let ids: BTreeSet<&str> = steps.iter().filter_map(|step| Some(step.id.as_ref()?.as_str())).collect();
        let is_under_a_step =
            |key: &ContextKey| key.as_str().split_once('.').is_some_and(|(id, _)| ids.contains(id));
        let declared = self.declared_inputs();
        let is_known = |key: &ContextKey| {
            let given = self.inputs.contains_key(key) || self.input_from.contains(key);
            given || declared.contains(key) || outputs.contains(key) || is_under_a_step(key)
        };
        let read = all.iter().flat_map(|(step, in_items)| {
            let list = step.for_each.as_ref().map(ForEachDef::key);
            let own_item = |key: &&ContextKey| step.for_each.is_some() && ITEM_KEYS.contains(&key.as_str());
            let with = step.with.values().filter_map(WithDef::key).filter(move |key| !own_item(key));
            let keys = list.into_iter().chain(&step.input_from).chain(with);
            keys.filter(|key| !(*in_items && ITEM_KEYS.contains(&key.as_str())))
        });
        read.filter(|key| !is_known(key)).cloned().collect()
    }

    /// Returns the inputs that `input_schema` names, with or without a value in `inputs`.
    pub fn declared_inputs(&self) -> BTreeSet<ContextKey> {
        self.properties().filter_map(|(name, _)| ContextKey::new(name).ok()).collect()
    }

    /// Returns `inputs` with the defaults of missing ones added.
    pub fn filled_inputs(&self) -> BTreeMap<ContextKey, Json> {
        let lent = |key: &ContextKey| self.input_from.contains(key);
        let defaults = self.properties().filter_map(|(name, schema)| {
            let key = ContextKey::new(name).ok().filter(|key| !lent(key))?;
            Some((key, Json::from(schema.get("default")?.clone())))
        });
        let mut filled: BTreeMap<ContextKey, Json> = defaults.collect();
        filled.extend(self.inputs.clone());
        filled
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        let schema = self.input_schema.as_ref().map(Json::value);
        schema.and_then(|schema| schema.get("properties")?.as_object()).into_iter().flatten()
    }
}

/// The result of a graph: `"output": "key"`, or an object of keys by the names that the result has for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum OutputDef {
    Key(ContextKey),
    Named(BTreeMap<ContextKey, ContextKey>),
}

/// The inputs of an item of `for_each`: its element, and its place in the list. The steps of a
/// group read them with `input_from`.
pub(super) const ITEM_KEYS: [&str; 2] = ["item", "index"];

/// A step: one agent's task, or a group (a step that has `steps`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDef {
    /// Derived from the agent's name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<StepId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_description: Option<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_from: Vec<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    /// The failure of a step that is not required does not count.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub required: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// A CEL expression over `outputs`, `steps` and `budget`; false skips the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    #[serde(default)]
    pub funding: Funding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<ToolName>>,
    /// The names of secrets that it may use (S8), of those around it; absent: all of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Secrets>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// What happens at fractions of its ceiling (B21); absent: as its agent's profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_budget: Option<Vec<Rung>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<Hitl>,
    /// A human decides whether the graph goes on; no agent runs (G7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<ApproveDef>,
    /// Runs once for each element of a list in the shared store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEachDef>,
    /// Runs again until a condition is true, at most a fixed number of rounds.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub repeat: Option<LoopDef>,
    /// The agent that tries when all attempts of this step have failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackDef>,
    /// The agent that undoes what this step did, if its graph does not succeed (G14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoDef>,
    /// A JSON Schema the result must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// A graph to run as this step: a file, for which the command line puts its graph, as `graph`; or `NAME` or
    /// `NAME@VERSION`, for which the cluster puts the graph that it keeps under this name (G18).
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub uses: Option<Text>,
    /// Written by the cluster: `use` named no version, and this one was the latest.
    #[serde(default, skip_serializing_if = "is_false")]
    pub latest: bool,
    /// A whole graph, run as this step. Its keys and the ids of its steps are its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Box<TaskGraph>>,
    /// The inputs of `graph`: the keys that they are read from, or values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub with: BTreeMap<ContextKey, WithDef>,
    /// The steps of a group, and how they run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepDef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_partial_success: Option<Policy>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub race: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateDef>,
}

/// An input of a graph that is run as a step: `"name": "key"`, or `"name": {"value": …}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum WithDef {
    Key(ContextKey),
    Value(WithValue),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WithValue {
    pub value: Json,
}

impl WithDef {
    /// Returns the key that the input is read from.
    pub fn key(&self) -> Option<&ContextKey> {
        match self {
            WithDef::Key(key) => Some(key),
            WithDef::Value(_) => None,
        }
    }
}

/// A human decides whether the graph goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveDef {
    /// Who should decide; shown with the question.
    pub who: Text,
    /// What is asked; the values of `input_from` follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Text>,
    /// How long an answer is waited for; absent: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What happens if nobody has answered by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Otherwise>,
    /// The answers that approve, instead of `approve`; the step's result is the one that was chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_every_ms: Option<u64>,
}

/// What happens to an `approve` step that nobody has answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// As if it had been approved, with the first of its choices.
    Approve,
    /// As if it had been denied.
    Deny,
    /// It fails, because nobody answered.
    Fail,
}

/// `"for_each": "key"`, or with a limit on how many items run at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum ForEachDef {
    Key(ContextKey),
    Bounded(BoundedForEach),
}

impl ForEachDef {
    fn key(&self) -> &ContextKey {
        match self {
            ForEachDef::Key(key) => key,
            ForEachDef::Bounded(bounded) => &bounded.key,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundedForEach {
    #[serde(rename = "in")]
    pub key: ContextKey,
    pub max_parallel: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopDef {
    pub max_rounds: u32,
    /// A CEL expression, evaluated after each round; true ends the loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// `"fallback": "agent"`, or with a task of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum FallbackDef {
    Agent(AgentId),
    Task(FallbackTask),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FallbackTask {
    pub agent_id: AgentId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_description: Option<Text>,
}

/// `"undo": "agent"`, or with a task and terms of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum UndoDef {
    Agent(AgentId),
    Task(UndoTask),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoTask {
    pub agent_id: AgentId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_description: Option<Text>,
    /// The most that it may cost, held from when the step starts; absent: the ceiling of its agent's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

/// Gathers the findings of the steps and has an agent synthesise them (G6).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateDef {
    /// How long to wait for the steps; those not done by then are cancelled and listed as missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if takes a reference")]
fn is_true(flag: &bool) -> bool {
    *flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if takes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}
