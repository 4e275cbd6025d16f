//! What a graph may cost before it runs (G11): the worst case, from the ceilings of its steps. Nothing is run here, and
//! nothing is asked of anybody.
//!
//! A step costs at most its ceiling for each context that it may run: its items, its rounds, its fallback. Retries stay
//! within a ceiling. What is held to undo them counts too (G14). A group costs at most what its steps do, and at most its own ceiling. All of it is bounded by the
//! ceiling of the graph, whatever the sum is.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Aggregate, Body, Group, GroupIndex, Plan, Step, WithDef, definition::ITEM_KEYS};
use crate::{
    id::{AgentId, ContextKey, StepId, StepPath},
    json::Json,
    money::Usd,
    wording::count,
};

/// What is known besides the graph.
#[derive(Debug, Clone, Copy)]
pub struct EstimateInputs<'a> {
    /// The values that the graph begins with: the length of a list in it is the number of items.
    pub inputs: &'a BTreeMap<ContextKey, Json>,
    /// The ceilings that the profiles of agents have.
    pub profiles: &'a BTreeMap<AgentId, Usd>,
    /// How many items a list has of which nothing is known; none: that many steps have no worst case of their own.
    pub items: Option<u32>,
}

/// What a graph may cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    pub steps: Vec<StepEstimate>,
    /// The graph's own agent, if it synthesises what the steps found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthesis: Option<Synthesis>,
    /// The sum of all worst cases; none if one of them is not bounded but by the budget of the graph.
    pub worst: Option<Usd>,
}

/// The agent that synthesises what the steps of a group found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Synthesis {
    pub agent_id: AgentId,
    pub worst: Option<Usd>,
}

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    Agent,
    Group,
    /// A graph that is run as a step.
    Graph,
    Approve,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepEstimate {
    pub id: StepId,
    /// Its id among all steps of the graph and of those that it uses.
    #[serde(skip)]
    pub path: StepPath,
    pub kind: StepKind,
    /// Only of an agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// How often it runs at most, its fallback apart; none if that is not known before the run.
    pub runs: Option<u32>,
    /// Why it runs more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<String>,
    pub has_fallback: bool,
    /// What is held to undo one run of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<Usd>,
    /// The most that one run costs; none: as much as is left.
    pub each: Option<Usd>,
    /// The most that all of them cost.
    pub worst: Option<Usd>,
    pub waits_for: Vec<StepId>,
    /// Of a group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepEstimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthesis: Option<Synthesis>,
}

impl Estimate {
    pub fn of(plan: &Plan, known: &EstimateInputs<'_>) -> Self {
        let (steps, synthesis, worst) = group(plan, 0, known, false);
        Estimate { steps, synthesis, worst }
    }

    /// What a budget must have so that the worst case fits, with a part of it that only the graph's own agent may use (B7).
    pub fn needs(&self, closing_reserve: Usd) -> Option<Usd> {
        let mut steps = self.steps.iter().map(|step| step.worst);
        let steps = steps.try_fold(Usd::ZERO, |sum, worst| Some(plus(sum, worst?)))?;
        Some(self.worst?.max(plus(steps, closing_reserve)))
    }

    /// The steps that are bounded only by the budget of the graph, and why.
    pub fn unbounded(&self) -> Vec<String> {
        let mut found = Vec::new();
        of_group(&self.steps, self.synthesis.as_ref(), &mut found);
        found
    }
}

fn of_group(steps: &[StepEstimate], synthesis: Option<&Synthesis>, found: &mut Vec<String>) {
    for step in steps.iter().filter(|step| step.worst.is_none()) {
        match (step.runs, step.each) {
            (None, _) => {
                let why = step.repeats.as_deref().unwrap_or_default();
                found.push(format!("`{}` runs {why}, and nobody knows how many there will be", step.path));
            }
            (Some(_), None) if !step.steps.is_empty() => {
                of_group(&step.steps, step.synthesis.as_ref(), found)
            }
            (Some(_), _) => found.push(format!("`{}` has no max_cost_usd", step.path)),
        }
    }
    if let Some(Synthesis { agent_id, worst: None }) = synthesis {
        found.push(format!("the profile of `{agent_id}`, which synthesises, has no max_cost_usd"));
    }
}

type GroupEstimate = (Vec<StepEstimate>, Option<Synthesis>, Option<Usd>);

/// `in_items`: it is in a group that runs for each element of a list.
fn group(plan: &Plan, index: GroupIndex, known: &EstimateInputs<'_>, in_items: bool) -> GroupEstimate {
    let Group { steps, aggregate, .. } = plan.group(index);
    let all: Vec<StepEstimate> = steps.iter().map(|of| step(plan, steps, of, known, in_items)).collect();
    let synthesis = aggregate.as_ref().map(|Aggregate { agent_id, .. }| Synthesis {
        agent_id: agent_id.clone(),
        worst: known.profiles.get(agent_id).copied(),
    });
    let mut worsts =
        all.iter().map(|step| step.worst).chain(synthesis.iter().map(|synthesis| synthesis.worst));
    // In a race all steps may have spent all when the first succeeds.
    let worst = worsts.try_fold(Usd::ZERO, |sum, worst| Some(plus(sum, worst?)));
    (all, synthesis, worst)
}

fn step(
    plan: &Plan,
    siblings: &[Step],
    step: &Step,
    known: &EstimateInputs<'_>,
    in_items: bool,
) -> StepEstimate {
    let (kind, agent_id, inner) = match &step.body {
        Body::Agent { agent_id, .. } => (StepKind::Agent, Some(agent_id.clone()), None),
        Body::Group(inner) => {
            let kind = if plan.group(*inner).used.is_some() { StepKind::Graph } else { StepKind::Group };
            let inner = inner_group(plan, *inner, known, in_items || step.for_each.is_some());
            (kind, None, Some(inner))
        }
        Body::Approve(_) => (StepKind::Approve, None, None),
    };
    let of_profile = |agent: &AgentId| least(step.max_cost_usd, known.profiles.get(agent).copied());
    let each = match (&agent_id, &inner) {
        (Some(agent), _) => of_profile(agent),
        (None, Some((_, _, worst))) => least(step.max_cost_usd, *worst),
        // A human costs nothing.
        (None, None) => Some(Usd::ZERO),
    };
    let (runs, repeats) = runs(step, known, in_items);
    let fallback = step.fallback.as_ref().map(|fallback| of_profile(&fallback.agent_id));
    let undo =
        step.undo.as_ref().map(|undo| least(undo.max_cost_usd, known.profiles.get(&undo.agent_id).copied()));
    // Each run may have to be undone; of a step and its fallback, one.
    let with_undo = match undo {
        Some(undo) => each.zip(undo).map(|(each, undo)| plus(each, undo)),
        None => each,
    };
    let worst = runs.zip(with_undo).map(|(runs, each)| times(each, runs));
    let worst = match fallback {
        Some(fallback) => worst.zip(fallback).map(|(worst, fallback)| plus(worst, fallback)),
        None => worst,
    };
    let (steps, synthesis, _) = inner.unwrap_or_default();
    StepEstimate {
        id: step.id.clone(),
        path: step.path.clone(),
        kind,
        agent_id,
        runs,
        repeats,
        has_fallback: fallback.is_some(),
        undo: undo.flatten(),
        each,
        worst,
        waits_for: step.waits_for.iter().map(|before| siblings[*before as usize].id.clone()).collect(),
        steps,
        synthesis,
    }
}

/// Of a graph that is run as a step, only what it is given is known.
fn inner_group(plan: &Plan, index: GroupIndex, known: &EstimateInputs<'_>, in_items: bool) -> GroupEstimate {
    let Some(used) = &plan.group(index).used else { return group(plan, index, known, in_items) };
    let mut inputs = used.inputs.clone();
    for (name, with) in &used.with {
        let value = match with {
            WithDef::Value(with) => Some(&with.value),
            WithDef::Key(key) if in_items && ITEM_KEYS.contains(&key.as_str()) => None,
            WithDef::Key(key) => known.inputs.get(key),
        };
        match value {
            Some(value) => drop(inputs.insert(name.clone(), value.clone())),
            None => drop(inputs.remove(name)),
        }
    }
    group(plan, index, &EstimateInputs { inputs: &inputs, ..*known }, false)
}

/// How often a step runs at most, and why more than once.
fn runs(step: &Step, known: &EstimateInputs<'_>, in_items: bool) -> (Option<u32>, Option<String>) {
    if let Some(each) = &step.for_each {
        // An item's own element is not an input of the graph, whatever that is called.
        let given =
            known.inputs.get(&each.key).filter(|_| !in_items || !ITEM_KEYS.contains(&each.key.as_str()));
        let length = given.and_then(Json::elements).map(<[_]>::len);
        let length = length.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
        let why = match length {
            Some(length) => format!("for each of the {} of `{}`", count(length, "element"), each.key),
            None => format!("for each element of `{}`", each.key),
        };
        return (length.or(known.items), Some(why));
    }
    match &step.repeat {
        Some(repeat) => {
            (Some(repeat.max_rounds), Some(format!("up to {}", count(repeat.max_rounds, "round"))))
        }
        None => (Some(1), None),
    }
}

fn least(one: Option<Usd>, other: Option<Usd>) -> Option<Usd> {
    one.into_iter().chain(other).min()
}

fn plus(a: Usd, b: Usd) -> Usd {
    Usd::from_nanos(a.nanos().saturating_add(b.nanos()).min(Usd::MAX_BOOKED.nanos()))
}

fn times(usd: Usd, count: u32) -> Usd {
    Usd::from_nanos(usd.nanos().saturating_mul(count.into()).min(Usd::MAX_BOOKED.nanos()))
}
