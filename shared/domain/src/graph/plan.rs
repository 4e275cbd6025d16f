//! A compiled task graph: groups of steps with their dependencies resolved. It is made once from a
//! definition and never changes. It is stored as that definition and compiled again when read.

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
    /// The definition, as compact JSON: what is stored, compared and sent.
    pub(super) source: Arc<str>,
    pub(super) groups: Vec<Group>,
    pub(super) step_count: u32,
    /// It is a condition of the submission, and no part of what is stored, compared and sent.
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
    /// The step that is this group; none for the graph itself.
    pub owner: Option<(GroupIndex, StepIndex)>,
    /// If every run of it has keys of its own, as an item of `for_each` has: those keys. Others are those around it.
    pub own_keys: Option<BTreeSet<ContextKey>>,
    /// If it is a whole graph that is run as a step.
    pub used: Option<Box<UsedGraph>>,
    /// What its result is, if it says so.
    pub output: Option<OutputDef>,
}

/// A whole graph that is run as a step: what it is given, and what only a graph has.
#[derive(Debug, Clone)]
pub struct UsedGraph {
    /// What it is kept as, if it was used by name: `facts@2` (G18).
    pub name: Option<Text>,
    pub with: BTreeMap<ContextKey, WithDef>,
    /// The inputs that it has itself; those of `with` come before them.
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
    /// Its id, with those of the steps around it that use graphs: no other step of the plan has it.
    pub path: StepPath,
    pub body: Body,
    pub inputs: Vec<Input>,
    pub output_to: Option<ContextKey>,
    pub required: bool,
    /// Siblings that must have ended before this one is decided.
    pub waits_for: Vec<StepIndex>,
    /// Siblings that wait for this one.
    pub dependents: Vec<StepIndex>,
    /// Steps that must have succeeded: this many groups up, that step.
    pub requires: Vec<(u32, StepIndex)>,
    pub when: Option<Condition>,
    /// The values that its `when` reads.
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
    /// None: those of the group around it.
    pub secrets: Option<Secrets>,
    pub model: Option<ModelName>,
    pub on_budget: Option<Vec<Rung>>,
    pub hitl: Option<Hitl>,
}

/// A step of a plan: its group, and its place there.
pub type Place = (GroupIndex, StepIndex);

/// What a definition names an agent for.
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
    /// A human decides whether the graph goes on.
    Approve(Box<Approve>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Approve {
    pub question: Option<Text>,
    pub form: Form,
}

/// A key that a step reads, and where its value comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub key: ContextKey,
    pub source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A sibling writes it, and must have succeeded in this run of the group.
    Sibling(StepIndex),
    /// The context of a sibling wrote it under its own id, and must have succeeded in this run of the group.
    UnderSibling(StepIndex),
    /// It is in the store before this group starts, or never.
    Outside,
    /// The previous round of an enclosing loop wrote it; null in the first.
    PreviousRound,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ForEach {
    pub key: ContextKey,
    pub max_parallel: Option<u32>,
    /// `input_from` names the list too: every item gets it besides its element (W8).
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

/// What undoes a run of a step that succeeded (G14).
#[derive(Debug, Clone, PartialEq)]
pub struct Undo {
    pub agent_id: AgentId,
    pub goal: Text,
    pub max_cost_usd: Option<Usd>,
    pub max_tokens: Option<Tokens>,
    pub timeout_ms: Option<u64>,
    pub retries: Option<u32>,
}

/// How a group's findings are gathered and who synthesises them.
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

    /// The name that its author gave it.
    pub fn name(&self) -> Option<&StepId> {
        self.name.as_ref()
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The number of steps in all groups: the graph runs at least as many contexts.
    pub fn step_count(&self) -> u32 {
        self.step_count
    }

    /// Whether it is to be refused unless its worst case fits (G11).
    pub fn must_fit(&self) -> bool {
        self.must_fit
    }

    /// The keys written within a group that none of its steps reads from the previous round.
    pub fn written_and_not_read_back(&self, group: GroupIndex) -> Vec<&ContextKey> {
        let steps: Vec<&Step> = self.steps_with_keys_of(group);
        let read_back = |key: &ContextKey| {
            let of_inputs = |input: &Input| input.key == *key && input.source == Source::PreviousRound;
            steps.iter().any(|step| step.inputs.iter().chain(&step.when_reads).any(of_inputs))
        };
        steps.iter().filter_map(|step| step.output_to.as_ref()).filter(|key| !read_back(key)).collect()
    }

    /// The steps of a group and of the groups in it that have its keys: not those of a graph that is run as a step.
    pub fn steps_with_keys_of(&self, group: GroupIndex) -> Vec<&Step> {
        if self.group(group).used.is_some() {
            return Vec::new();
        }
        self.steps_where(group, |inner| inner.used.is_none())
    }

    /// The steps of a group and of the groups in it.
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

    /// The contexts that one run of a step starts at least.
    pub fn contexts_of(&self, step: &Step) -> usize {
        match step.body {
            Body::Agent { .. } | Body::Approve(_) => 1,
            Body::Group(inner) => 1 + self.steps_within(inner).len(),
        }
    }

    /// The definition it was compiled from.
    pub fn definition(&self) -> TaskGraph {
        serde_json::from_str(&self.source).expect("it was written from a definition")
    }

    /// Every step with its place.
    pub fn places(&self) -> impl Iterator<Item = (Place, &Step)> {
        let groups = (0u32..).zip(&self.groups);
        groups.flat_map(|(number, group)| {
            (0u32..).zip(&group.steps).map(move |(step, is)| ((number, step), is))
        })
    }

    /// Every agent the graph names, and where.
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

    /// Every `undo`, with the place of its step.
    pub fn undos(&self) -> impl Iterator<Item = (Place, &Undo)> {
        self.places().filter_map(|(place, step)| Some((place, step.undo.as_ref()?)))
    }

    /// Where the definition has a step: `steps[2].graph.steps[0]`.
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

    /// Where the definition names an agent.
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

    /// Whether a group, or one around it, has a ceiling of tokens; that of the whole graph is not asked.
    pub fn bounds_tokens(&self, mut group: GroupIndex) -> bool {
        while let Some((outer, step)) = self.group(group).owner {
            if self.group(outer).steps[step as usize].max_tokens.is_some() {
                return true;
            }
            group = outer;
        }
        false
    }

    /// The tools that steps name, with the place of the step.
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
