//! The worst-case cost of a graph before it runs (G11), from the ceilings of its steps. This module
//! runs and queries nothing.
//!
//! A step costs at most its ceiling for each context that it may run: its items, its rounds, its
//! fallback. Retries stay within a ceiling. The amount held for undoing them is added (G14). A
//! group costs at most the sum of its steps, and at most its own ceiling. The ceiling of the graph
//! bounds the whole sum.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Aggregate, Body, Group, GroupIndex, Plan, Step, WithDef, definition::ITEM_KEYS};
use crate::{
    id::{AgentId, ContextKey, StepId, StepPath},
    json::Json,
    money::Usd,
    wording::count,
};

/// The known values besides the graph.
#[derive(Debug, Clone, Copy)]
pub struct EstimateInputs<'a> {
    /// The initial values of the graph. The length of a list in it is the number of items.
    pub inputs: &'a BTreeMap<ContextKey, Json>,
    /// The ceilings of agent profiles.
    pub profiles: &'a BTreeMap<AgentId, Usd>,
    /// The assumed number of items for an unknown list. With `None`, such a step has no worst case
    /// of its own.
    pub items: Option<u32>,
}

/// The estimated cost of a graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    pub steps: Vec<StepEstimate>,
    /// The graph's own agent, if it synthesises the findings of the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthesis: Option<Synthesis>,
    /// The sum of all worst cases. `None` if one of them is bounded only by the budget of the
    /// graph.
    pub worst: Option<Usd>,
}

/// The agent that synthesises the findings of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Synthesis {
    pub agent_id: AgentId,
    pub worst: Option<Usd>,
}

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    Agent,
    Group,
    /// A graph that runs as a step.
    Graph,
    Approve,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepEstimate {
    pub id: StepId,
    /// The id with those of the steps around it that use graphs, unique in the plan.
    #[serde(skip)]
    pub path: StepPath,
    pub kind: StepKind,
    /// Only for a step with an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The most runs of the step without its fallback. `None` if the number is not known before the
    /// run.
    pub runs: Option<u32>,
    /// The reason for more than one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<String>,
    pub has_fallback: bool,
    /// The amount held to undo one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<Usd>,
    /// The most that one run costs. `None`: as much as is left.
    pub each: Option<Usd>,
    /// The most that all runs cost.
    pub worst: Option<Usd>,
    pub waits_for: Vec<StepId>,
    /// The inner steps of a group.
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

    /// Returns the budget that the worst case needs, with a reserve that only the graph's own agent
    /// may use (B7).
    pub fn needs(&self, closing_reserve: Usd) -> Option<Usd> {
        let mut steps = self.steps.iter().map(|step| step.worst);
        let steps = steps.try_fold(Usd::ZERO, |sum, worst| Some(plus(sum, worst?)))?;
        Some(self.worst?.max(plus(steps, closing_reserve)))
    }

    /// Returns the steps that are bounded only by the budget of the graph, with the reasons.
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
                found.push(format!("`{}` runs {why}, and their number is not known in advance", step.path));
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

/// Estimates a group. `in_items` is true inside a group that runs for each element of a list.
fn group(plan: &Plan, index: GroupIndex, known: &EstimateInputs<'_>, in_items: bool) -> GroupEstimate {
    let Group { steps, aggregate, .. } = plan.group(index);
    let all: Vec<StepEstimate> = steps.iter().map(|of| step(plan, steps, of, known, in_items)).collect();
    let synthesis = aggregate.as_ref().map(|Aggregate { agent_id, .. }| Synthesis {
        agent_id: agent_id.clone(),
        worst: known.profiles.get(agent_id).copied(),
    });
    let mut worsts =
        all.iter().map(|step| step.worst).chain(synthesis.iter().map(|synthesis| synthesis.worst));
    // In a race, all steps may have spent their ceilings when the first succeeds, so a race costs
    // the sum too.
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
        // An approval by a human costs nothing.
        (None, None) => Some(Usd::ZERO),
    };
    let (runs, repeats) = runs(step, known, in_items);
    let fallback = step.fallback.as_ref().map(|fallback| of_profile(&fallback.agent_id));
    let undo =
        step.undo.as_ref().map(|undo| least(undo.max_cost_usd, known.profiles.get(&undo.agent_id).copied()));
    // Each run may have to be undone. A step and its fallback succeed at most once, so they need
    // one undo.
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

/// Estimates the group of a step. A graph that runs as a step sees only its own inputs.
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

/// Returns the most runs of a step, and the reason for more than one.
fn runs(step: &Step, known: &EstimateInputs<'_>, in_items: bool) -> (Option<u32>, Option<String>) {
    if let Some(each) = &step.for_each {
        // An item's own element is not an input of the graph, even if an input has the same name.
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
