//! A compiled task graph: groups of steps with their dependencies resolved. It is compiled once
//! from a definition and never changes. It is stored as that definition and compiled again when it
//! is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Serialize, Serializer};

use super::{Condition, Form, Mode, OutputDef, OutputSchema, Policy, TaskGraph, WithDef};
use crate::{
    id::{AgentId, ContextKey, ModelName, StepId, StepPath, ToolName},
    json::Json,
    ladder::Rung,
    limits::LimitOverrides,
    money::{Tokens, Usd},
    secrets::Secrets,
    terms::{Funding, Hitl, OnExhausted, Text},
};

pub type GroupIndex = u32;
pub type StepIndex = u32;

/// A validated graph. Group 0 is the graph itself; nested groups follow.
#[derive(Clone)]
pub struct Plan {
    /// The definition as compact JSON. This form is stored, compared and sent.
    pub(super) source: Arc<str>,
    pub(super) groups: Vec<Group>,
    pub(super) step_count: u32,
    /// A condition of the submission. It is not part of the form that is stored, compared and sent.
    pub(super) must_fit: bool,
    pub(super) input_schema: Option<OutputSchema>,
    pub(super) name: Option<StepId>,
}

#[derive(Debug, Clone)]
pub struct Group {
    pub mode: Mode,
    pub policy: Policy,
    pub race: bool,
    pub aggregate: Option<Aggregate>,
    pub steps: Vec<Step>,
    /// The step that is this group; `None` for the graph itself.
    pub owner: Option<(GroupIndex, StepIndex)>,
    /// The keys of the group's own, if every run of it has its own values, such as an item of
    /// `for_each`. All other keys belong to the graph around it.
    pub own_keys: Option<BTreeSet<ContextKey>>,
    /// Set for a whole graph that runs as a step.
    pub used: Option<Box<UsedGraph>>,
    /// The keys of the result, if the definition sets them.
    pub output: Option<OutputDef>,
}

/// A whole graph that runs as a step: its inputs, and the fields that only a graph has.
#[derive(Debug, Clone)]
pub struct UsedGraph {
    /// The stored name and version, if it was used by name: `facts@2` (G18).
    pub name: Option<Text>,
    pub with: BTreeMap<ContextKey, WithDef>,
    /// The graph's own inputs. Inputs of `with` take precedence.
    pub inputs: BTreeMap<ContextKey, Json>,
    pub input_schema: Option<OutputSchema>,
    pub output_schema: Option<OutputSchema>,
    pub closing_reserve_usd: Option<Usd>,
    pub on_exhausted: Option<OnExhausted>,
    pub limits: LimitOverrides,
}

#[derive(Debug, Clone)]
pub struct Step {
    pub id: StepId,
    /// The step's id, after the ids of the steps around it that use graphs. It is unique in the
    /// plan.
    pub path: StepPath,
    pub body: Body,
    pub inputs: Vec<Input>,
    pub output_to: Option<ContextKey>,
    pub required: bool,
    /// Siblings that must have ended before this step is decided.
    pub waits_for: Vec<StepIndex>,
    /// Siblings that wait for this step.
    pub dependents: Vec<StepIndex>,
    /// Steps that must have succeeded: the number of groups to go up, and the step there.
    pub requires: Vec<(u32, StepIndex)>,
    pub when: Option<Condition>,
    /// The values that `when` reads.
    pub when_reads: Vec<Input>,
    pub for_each: Option<ForEach>,
    pub repeat: Option<Repeat>,
    pub fallback: Option<Fallback>,
    pub undo: Option<Undo>,
    pub output_schema: Option<OutputSchema>,
    pub max_cost_usd: Option<Usd>,
    pub max_tokens: Option<Tokens>,
    pub funding: Funding,
    pub timeout_ms: Option<u64>,
    pub retries: Option<u32>,
    pub tools: Option<Arc<BTreeSet<ToolName>>>,
    /// `None`: the secrets of the group around it.
    pub secrets: Option<Secrets>,
    pub model: Option<ModelName>,
    pub on_budget: Option<Vec<Rung>>,
    pub hitl: Option<Hitl>,
}

/// The place of a step in a plan: its group, and its index there.
pub type Place = (GroupIndex, StepIndex);

/// The role for which a definition names an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    Synthesis(GroupIndex),
    Step(Place),
    Fallback(Place),
    Undo(Place),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Agent {
        agent_id: AgentId,
        goal: Text,
    },
    Group(GroupIndex),
    /// A human decides if the graph continues.
    Approve(Box<Approve>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Approve {
    pub question: Option<Text>,
    pub form: Form,
}

/// A key that a step reads, and the source of its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub key: ContextKey,
    pub source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A sibling writes it, and must have succeeded in this run of the group.
    Sibling(StepIndex),
    /// The context of a sibling wrote it under its own id, and must have succeeded in this run of
    /// the group.
    UnderSibling(StepIndex),
    /// The value is in the store before this group starts, or never.
    Outside,
    /// The previous round of an enclosing loop wrote it; null in the first round.
    PreviousRound,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ForEach {
    pub key: ContextKey,
    pub max_parallel: Option<u32>,
    /// True if `input_from` names the list too. Then every item gets the list besides its element
    /// (W8).
    pub shows_list: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    pub max_rounds: u32,
    pub until: Option<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Fallback {
    pub agent_id: AgentId,
    pub goal: Text,
}

/// The agent and terms that undo a successful run of a step (G14).
#[derive(Debug, Clone, PartialEq)]
pub struct Undo {
    pub agent_id: AgentId,
    pub goal: Text,
    pub max_cost_usd: Option<Usd>,
    pub max_tokens: Option<Tokens>,
    pub timeout_ms: Option<u64>,
    pub retries: Option<u32>,
}

/// The agent that synthesises a group's findings, and its task.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    pub agent_id: AgentId,
    pub task: Option<Text>,
    pub timeout_ms: Option<u64>,
}

impl Plan {
    pub fn group(&self, index: GroupIndex) -> &Group {
        &self.groups[index as usize]
    }

    /// Returns the name that the author gave the graph.
    pub fn name(&self) -> Option<&StepId> {
        self.name.as_ref()
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the number of steps in all groups. The graph runs at least as many contexts.
    pub fn step_count(&self) -> u32 {
        self.step_count
    }

    /// Returns true if the graph is rejected unless its worst case fits (G11).
    pub fn must_fit(&self) -> bool {
        self.must_fit
    }

    /// Returns the keys that steps within a group write, except those that one of them reads from
    /// the previous round.
    pub fn written_and_not_read_back(&self, group: GroupIndex) -> Vec<&ContextKey> {
        let steps: Vec<&Step> = self.steps_with_keys_of(group);
        let read_back = |key: &ContextKey| {
            let of_inputs = |input: &Input| input.key == *key && input.source == Source::PreviousRound;
            steps.iter().any(|step| step.inputs.iter().chain(&step.when_reads).any(of_inputs))
        };
        steps.iter().filter_map(|step| step.output_to.as_ref()).filter(|key| !read_back(key)).collect()
    }

    /// Returns the steps of a group and of its inner groups that share its keys. The steps of a
    /// graph that runs as a step have keys of their own.
    pub fn steps_with_keys_of(&self, group: GroupIndex) -> Vec<&Step> {
        if self.group(group).used.is_some() {
            return Vec::new();
        }
        self.steps_where(group, |inner| inner.used.is_none())
    }

    /// Returns the steps of a group and of its inner groups.
    pub fn steps_within(&self, group: GroupIndex) -> Vec<&Step> {
        self.steps_where(group, |_| true)
    }

    fn steps_where(&self, group: GroupIndex, enter: fn(&Group) -> bool) -> Vec<&Step> {
        let mut found = Vec::new();
        let mut open = vec![group];
        while let Some(group) = open.pop() {
            for step in &self.group(group).steps {
                found.push(step);
                if let Body::Group(inner) = step.body
                    && enter(self.group(inner))
                {
                    open.push(inner);
                }
            }
        }
        found
    }

    /// Returns the least number of contexts that one run of a step starts.
    pub fn contexts_of(&self, step: &Step) -> usize {
        match step.body {
            Body::Agent { .. } | Body::Approve(_) => 1,
            Body::Group(inner) => 1 + self.steps_within(inner).len(),
        }
    }

    /// Returns the definition that it was compiled from.
    pub fn definition(&self) -> TaskGraph {
        serde_json::from_str(&self.source).expect("the source was written from a definition")
    }

    /// Returns every step with its place.
    pub fn places(&self) -> impl Iterator<Item = (Place, &Step)> {
        let groups = (0u32..).zip(&self.groups);
        groups.flat_map(|(number, group)| {
            (0u32..).zip(&group.steps).map(move |(step, is)| ((number, step), is))
        })
    }

    /// Returns every agent that the graph names, with its role.
    pub fn agents(&self) -> impl Iterator<Item = (&AgentId, Naming)> {
        let groups = (0u32..).zip(&self.groups);
        let synthesis = groups.filter_map(|(number, group)| {
            Some((&group.aggregate.as_ref()?.agent_id, Naming::Synthesis(number)))
        });
        let steps = self.places().flat_map(|(place, step)| {
            let body = match &step.body {
                Body::Agent { agent_id, .. } => Some((agent_id, Naming::Step(place))),
                Body::Group(_) | Body::Approve(_) => None,
            };
            let fallback = step.fallback.as_ref().map(|of| (&of.agent_id, Naming::Fallback(place)));
            let undo = step.undo.as_ref().map(|of| (&of.agent_id, Naming::Undo(place)));
            [body, fallback, undo].into_iter().flatten()
        });
        synthesis.chain(steps)
    }

    /// Returns every `undo`, with the place of its step.
    pub fn undos(&self) -> impl Iterator<Item = (Place, &Undo)> {
        self.places().filter_map(|(place, step)| Some((place, step.undo.as_ref()?)))
    }

    /// Returns the path of a step in the definition: `steps[2].graph.steps[0]`.
    pub fn path_of(&self, (group, step): Place) -> String {
        let within = self.path_of_group(group);
        let dot = if within.is_empty() { "" } else { "." };
        format!("{within}{dot}steps[{step}]")
    }

    fn path_of_group(&self, group: GroupIndex) -> String {
        let Group { owner, used, .. } = self.group(group);
        match (owner, used) {
            (None, _) => String::new(),
            (Some(place), None) => self.path_of(*place),
            (Some(place), Some(_)) => format!("{}.graph", self.path_of(*place)),
        }
    }

    /// Returns the path at which the definition names an agent.
    pub fn path_of_agent(&self, naming: Naming) -> String {
        match naming {
            Naming::Synthesis(group) => match self.path_of_group(group).as_str() {
                "" => "agent_id".into(),
                within => format!("{within}.agent_id"),
            },
            Naming::Step(place) => format!("{}.agent_id", self.path_of(place)),
            Naming::Fallback(place) => format!("{}.fallback.agent_id", self.path_of(place)),
            Naming::Undo(place) => format!("{}.undo.agent_id", self.path_of(place)),
        }
    }

    /// Returns true if a group, or a group around it, has a ceiling of tokens. The ceiling of the
    /// whole graph is not included.
    pub fn bounds_tokens(&self, mut group: GroupIndex) -> bool {
        while let Some((outer, step)) = self.group(group).owner {
            if self.group(outer).steps[step as usize].max_tokens.is_some() {
                return true;
            }
            group = outer;
        }
        false
    }

    /// Returns the tools that steps name, with the place of the step.
    pub fn tools(&self) -> impl Iterator<Item = (Place, &BTreeSet<ToolName>)> {
        self.places().filter_map(|(place, step)| Some((place, step.tools.as_deref()?)))
    }
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({} steps in {} groups)", self.step_count, self.groups.len())
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.definition().serialize(s)
    }
}

impl schemars::JsonSchema for Plan {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        TaskGraph::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        TaskGraph::schema_id()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        TaskGraph::json_schema(generator)
    }
}
