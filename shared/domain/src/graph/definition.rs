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
    /// The steps run one after another, in the order written.
    #[default]
    Sequential,
    /// All steps run at once, except where `input_from` or `depends_on` make a step wait.
    Parallel,
}

/// The effect of a failed step on its graph (G4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The first failure of a required step ends the graph.
    #[default]
    Fail,
    /// Every step whose inputs exist still runs.
    Continue,
    /// Like `continue`, with null for missing inputs. One success is enough.
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
    /// The first success wins, and the other steps are cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub race: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateDef>,
    /// The graph's own agent. It synthesises the findings that `aggregate` gathers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_description: Option<Text>,
    /// Values that are written to the shared store before the first step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<ContextKey, Json>,
    /// A JSON Schema that `inputs`, as one object, must match. The `default` of a property is the
    /// value of a missing input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Json>,
    /// The result: the value of a key, or an object of such values. Without `output`, the result is
    /// the synthesis of `aggregate`, the result of a race's winner, or the results of the steps by
    /// their ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputDef>,
    /// A JSON Schema that the result must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// For the graph of an agent, not for a submission: keys that the agent may read. The graph's
    /// steps may then read them too. A step reads the values as they are when it starts or asks for
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_from: Vec<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// Keys and values for finding the run (G17). For submissions only: a child has none.
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
    /// The names of the secrets that its steps and its own agent may use (S8). If an agent runs the
    /// graph, its caller must have them.
    #[serde(default, skip_serializing_if = "crate::secrets::is_none")]
    pub secrets: Secrets,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    /// Rejects the graph unless its worst case fits its budget (G11).
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

/// The result of a graph: `"output": "key"`, or an object of keys by their names in the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum OutputDef {
    Key(ContextKey),
    Named(BTreeMap<ContextKey, ContextKey>),
}

/// The inputs of an item of `for_each`: its element, and its place in the list. The steps of a
/// group read them with `input_from`.
pub(super) const ITEM_KEYS: [&str; 2] = ["item", "index"];

/// A step: one agent's task, or a group (a step with `steps`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDef {
    /// Absent: derived from the agent's name.
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
    /// If false, a failure of the step does not make its graph fail.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub required: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// A CEL expression over `outputs`, `steps` and `budget`. If it is false, the step is skipped.
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
    /// The names of the secrets that the step may use (S8), out of those of the group or graph
    /// around it. Absent: all of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Secrets>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// Actions at fractions of its ceiling (B21). Absent: those of its agent's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_budget: Option<Vec<Rung>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<Hitl>,
    /// A human decides if the graph continues; no agent runs (G7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<ApproveDef>,
    /// The step runs once for each element of a list in the shared store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEachDef>,
    /// The step is repeated until a condition is true, for at most a fixed number of rounds.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub repeat: Option<LoopDef>,
    /// The agent that runs after all attempts of this step have failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackDef>,
    /// The agent that undoes the work of this step if its graph does not succeed (G14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoDef>,
    /// A JSON Schema that the result must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// A graph that runs as this step. It is a file, or `NAME` or `NAME@VERSION` of a stored graph
    /// (G18). The command line replaces a file by its content, and the cluster replaces a name by
    /// the graph stored under it, both as `graph`.
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub uses: Option<Text>,
    /// Written by the cluster: `use` had no version, and this version was the latest.
    #[serde(default, skip_serializing_if = "is_false")]
    pub latest: bool,
    /// A whole graph that runs as this step. Its keys and the ids of its steps are separate from
    /// the outer graph's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Box<TaskGraph>>,
    /// The inputs of `graph`: the keys that they are read from, or values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub with: BTreeMap<ContextKey, WithDef>,
    /// The steps of a group, and the way they run.
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

/// An input of a graph that runs as a step: `"name": "key"`, or `"name": {"value": …}`.
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

/// A human decides if the graph continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveDef {
    /// The people who should decide; shown with the question.
    pub who: Text,
    /// The question; the values of `input_from` follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Text>,
    /// The longest wait for an answer. Absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The result if there is no answer within `timeout_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Otherwise>,
    /// The answers that approve, instead of `approve`. The chosen one is the step's result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_every_ms: Option<u64>,
}

/// The result of an `approve` step without an answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// The step is approved, with the first of its choices.
    Approve,
    /// The step is denied.
    Deny,
    /// The step fails, because it has no answer.
    Fail,
}

/// `"for_each": "key"`, or the key with a limit on the items that run at once.
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
    /// A CEL expression that is evaluated after each round. If it is true, the loop ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// `"fallback": "agent"`, or an agent with its own task.
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

/// `"undo": "agent"`, or an agent with its own task and terms.
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
    /// The most that it may cost. The amount is held from the start of the step. Absent: the
    /// ceiling of its agent's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

/// Gathers the findings of the steps, and makes an agent synthesise them (G6).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateDef {
    /// The longest wait for the steps. Unfinished steps are then cancelled and listed as missing.
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
