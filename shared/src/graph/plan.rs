//! A compiled task graph: groups of steps with their dependencies resolved. It is made once from a
//! definition and never changes. It is stored as that definition and compiled again when read.

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde::{Serialize, Serializer};

use super::{Condition, Form, Mode, OutputSchema, Policy, TaskGraph};
use crate::{
    id::{AgentId, ContextKey, ModelName, StepId, ToolName},
    ladder::Rung,
    money::{Tokens, Usd},
    terms::{Funding, Hitl, Text},
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
}

#[derive(Debug, Clone)]
pub struct Step {
    pub id: StepId,
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
    pub output_schema: Option<OutputSchema>,
    pub max_cost_usd: Option<Usd>,
    pub max_tokens: Option<Tokens>,
    pub funding: Funding,
    pub timeout_ms: Option<u64>,
    pub retries: Option<u32>,
    pub tools: Option<Arc<BTreeSet<ToolName>>>,
    pub model: Option<ModelName>,
    pub on_budget: Option<Vec<Rung>>,
    pub hitl: Option<Hitl>,
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
        let steps: Vec<&Step> = self.steps_within(group);
        let read_back = |key: &ContextKey| {
            let of_inputs = |input: &Input| input.key == *key && input.source == Source::PreviousRound;
            steps.iter().any(|step| step.inputs.iter().chain(&step.when_reads).any(of_inputs))
        };
        steps.iter().filter_map(|step| step.output_to.as_ref()).filter(|key| !read_back(key)).collect()
    }

    /// The steps of a group and of the groups in it.
    pub fn steps_within(&self, group: GroupIndex) -> Vec<&Step> {
        let mut found = Vec::new();
        let mut open = vec![group];
        while let Some(group) = open.pop() {
            for step in &self.group(group).steps {
                found.push(step);
                if let Body::Group(inner) = step.body {
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

    /// Every agent the graph names, with the step that names it.
    pub fn agents(&self) -> impl Iterator<Item = (&AgentId, Option<&StepId>)> {
        self.groups.iter().flat_map(|group| {
            let synthesis = group.aggregate.iter().map(|a| (&a.agent_id, None));
            let steps = group.steps.iter().flat_map(|step| {
                let body = match &step.body {
                    Body::Agent { agent_id, .. } => Some(agent_id),
                    Body::Group(_) | Body::Approve(_) => None,
                };
                let fallback = step.fallback.as_ref().map(|f| &f.agent_id);
                body.into_iter().chain(fallback).map(|agent| (agent, Some(&step.id)))
            });
            synthesis.chain(steps)
        })
    }

    /// The tools that steps name, with the step.
    pub fn tools(&self) -> impl Iterator<Item = (&StepId, &BTreeSet<ToolName>)> {
        let steps = self.groups.iter().flat_map(|group| &group.steps);
        steps.filter_map(|step| Some((&step.id, step.tools.as_deref()?)))
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
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        TaskGraph::json_schema(generator)
    }
}
