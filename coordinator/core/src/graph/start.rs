//! Starts a context for a step: its spec (`ContextSpec`), its id, and the evaluation of the step's
//! conditions. `advance` and `step` decide when it is started.

use std::collections::BTreeMap;

use domain::{
    ChildId, ContextKey, Json, StepPath, Timestamp,
    graph::{self, EvaluationError, Group, StepIndex, UsedGraph, WithDef},
    json,
    limits::LimitOverrides,
    wire::{Funding, TakenFrom},
};

use super::scope::StepScope;
use crate::{Body, ContextIndex, ContextSpec, Event, GraphRun, Ran, Refusal, StepOf, Trace, admission, end};

pub(super) fn refused(refusal: &Refusal) -> String {
    end::short(format!("refused ({}): {refusal}", refusal.code().0))
}

/// Evaluates a condition. The result, and the values that it read, go into an event.
pub(super) fn ask(
    scope: &StepScope<'_>,
    step: StepIndex,
    what: &str,
    condition: &graph::Condition,
) -> (Event, Result<bool, EvaluationError>) {
    let (answer, saw) = condition.evaluate(scope);
    let asked = Event::ConditionAsked {
        child_id: scope.trace.node(scope.graph).id.clone(),
        step,
        question: format!("{what}: {}", condition.source()),
        answer: answer.as_ref().copied().map_err(ToString::to_string),
        saw: shortened(saw),
    };
    (asked, answer)
}

/// The values that a condition read, for people: long values are cut.
fn shortened(mut saw: serde_json::Value) -> Json {
    const LONGEST: usize = 200;
    if let Some(outputs) = saw.get_mut("outputs").and_then(serde_json::Value::as_object_mut) {
        for value in outputs.values_mut() {
            let text = value.to_string();
            if let Some((cut, _)) = text.char_indices().nth(LONGEST) {
                *value = format!("{}…", &text[..cut]).into();
            }
        }
    }
    Json::from(saw)
}

/// Starts a context for a step, or returns the refusal.
pub(super) fn begin(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    ran: Ran,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let (spec, body) = spec(trace, graph, step, ran);
    if let Some(used) = used(trace, body) {
        used.check_inputs(&spec.inputs).or(()).map_err(Refusal::Malformed)?;
    }
    let (_, group) = trace.expect_run(graph);
    let undo = group.steps[step as usize].undo.as_ref();
    admission::step(trace, graph, spec, (body, undo), step_of(trace, graph, step, ran), now)
}

/// The context of a step whose result is taken from an earlier run (G15). It runs nothing and needs
/// no terms.
pub(crate) fn begin_taken(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    ran: Ran,
    from: TakenFrom,
    now: Timestamp,
) -> Result<(ChildId, Vec<Event>), Refusal> {
    let (spec, body) = spec(trace, graph, step, ran);
    let spec = ContextSpec {
        agent_id: spec.agent_id,
        goal: spec.goal,
        thread_id: spec.thread_id,
        inputs: spec.inputs,
        input_from: spec.input_from,
        output_to: spec.output_to,
        ..ContextSpec::new(spec.child_id)
    };
    let child_id = spec.child_id.clone();
    let events = admission::taken(trace, graph, spec, body, step_of(trace, graph, step, ran), from, now)?;
    Ok((child_id, events))
}

/// The bytes of the spec of an item, without its element.
pub(super) fn item_bytes(trace: &Trace, graph: ContextIndex, step: StepIndex) -> u64 {
    json::size_bytes(&spec(trace, graph, step, Ran::Item(0)).0)
}

fn step_of(trace: &Trace, graph: ContextIndex, step: StepIndex, ran: Ran) -> StepOf {
    let (run, _) = trace.expect_run(graph);
    StepOf { step: run.number(step), ran }
}

/// The spec of a context for a step, and its body.
fn spec(trace: &Trace, graph: ContextIndex, step: StepIndex, ran: Ran) -> (ContextSpec, Body) {
    let (run, group) = trace.expect_run(graph);
    let plan = &group.steps[step as usize];
    let (body, agent_id, goal) = match (&plan.body, ran, &plan.fallback) {
        (_, Ran::Fallback, Some(fallback)) => {
            (Body::Agent, Some(fallback.agent_id.clone()), Some(fallback.goal.clone()))
        }
        (graph::Body::Agent { agent_id, goal }, _, _) => {
            (Body::Agent, Some(agent_id.clone()), Some(goal.clone()))
        }
        (graph::Body::Group(inner), _, _) => {
            let aggregate = trace.plans[run.plan as usize].group(*inner).aggregate.as_ref();
            let agent = aggregate.map(|aggregate| aggregate.agent_id.clone());
            (Body::Graph { plan: run.plan, group: *inner }, agent, None)
        }
        (graph::Body::Approve(_), _, _) => (Body::Approval, None, None),
    };
    let is_agent = body == Body::Agent;
    let used = used(trace, body);
    let retries = is_agent.then_some(plan.retries).flatten();
    let retries =
        retries.map(|retries| LimitOverrides { max_retries_total: Some(retries), ..Default::default() });
    let limits = used.map(|used| used.limits.clone()).filter(|limits| *limits != Default::default());
    let spec = ContextSpec {
        agent_id,
        goal,
        thread_id: trace.node(graph).spec.thread_id.clone(),
        inputs: match used {
            Some(used) => used_inputs(trace, graph, step, ran, used),
            None => item_inputs(run, step, ran),
        },
        // A used graph has copies of its inputs.
        input_from: if used.is_some() { Vec::new() } else { read_keys(plan) },
        output_to: plan.output_to.clone().filter(|_| is_agent && plan.for_each.is_none()),
        tools: plan.tools.clone().filter(|_| is_agent),
        secrets: plan.secrets.clone().map(Box::new),
        model: plan.model.clone().filter(|_| is_agent && ran != Ran::Fallback),
        max_cost_usd: plan.max_cost_usd,
        max_tokens: plan.max_tokens,
        funding: plan.funding,
        on_budget: plan.on_budget.clone().filter(|_| is_agent && ran != Ran::Fallback),
        hitl: plan.hitl,
        timeout_ms: plan.timeout_ms,
        limits: retries.or(limits).map(Box::new),
        closing_reserve_usd: used.and_then(|used| used.closing_reserve_usd),
        on_exhausted: used.and_then(|used| used.on_exhausted),
        output_schema: plan.output_schema.clone().or_else(|| used?.output_schema().cloned()),
        ..ContextSpec::new(fresh_id(trace, graph, &plan.path, ran))
    };
    let spec = match ran {
        // A ceiling on a `for_each` applies to each item; a grant is carved out item by item.
        Ran::Item(_) | Ran::Itself | Ran::Round(_) => spec,
        // The fallback is funded like a step without its own funding.
        Ran::Fallback => ContextSpec { funding: Funding::Shared, ..spec },
    };
    (spec, body)
}

/// The graph that a context runs, if a step uses it.
fn used(trace: &Trace, body: Body) -> Option<&UsedGraph> {
    match body {
        Body::Graph { plan, group } => trace.plans[plan as usize].group(group).used.as_deref(),
        Body::Agent | Body::Approval => None,
    }
}

/// The inputs of a graph that a step uses: its own, and the current values for `with`. Missing
/// values are null.
fn used_inputs(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    ran: Ran,
    used: &UsedGraph,
) -> BTreeMap<ContextKey, Json> {
    let (run, group) = trace.expect_run(graph);
    let item = item_inputs(run, step, ran);
    let reads = &group.steps[step as usize].inputs;
    let value = |key: &ContextKey| {
        let read = || trace.value_for_step(graph, reads.iter().find(|input| input.key == *key)?);
        item.get(key).cloned().or_else(|| Some(read()?.value.clone())).unwrap_or_else(Json::null)
    };
    let mut inputs = used.inputs.clone();
    inputs.extend(used.with.iter().map(|(name, with)| {
        let given = match with {
            WithDef::Key(key) => value(key),
            WithDef::Value(with) => with.value.clone(),
        };
        (name.clone(), given)
    }));
    inputs
}

/// The keys that the context reads. An item of `for_each` reads its element, and the list only if
/// `input_from` names it (W8).
fn read_keys(plan: &graph::Step) -> Vec<ContextKey> {
    let hidden = plan.for_each.as_ref().filter(|each| !each.shows_list).map(|each| &each.key);
    plan.inputs.iter().map(|input| &input.key).filter(|key| Some(*key) != hidden).cloned().collect()
}

fn item_inputs(run: &GraphRun, step: StepIndex, ran: Ran) -> BTreeMap<ContextKey, Json> {
    let (Ran::Item(number), Some(list)) = (ran, run.lists.get(&run.number(step))) else {
        return Default::default();
    };
    let key = |name| ContextKey::new(name).expect("a valid literal");
    let item = list.elements().and_then(|list| list.get(number as usize)).cloned().unwrap_or_default();
    [(key("item"), Json::from(item)), (key("index"), Json::from(serde_json::Value::from(number)))].into()
}

/// Builds the id of a context from its step: `writer`; `writer-3` for an item, and for a step
/// within the third item of a group; `writer-r2` for a round; `outer-writer` in the graph that the
/// step `outer` uses. If the id is in use, as in a second run of the same group, the number of the
/// context is appended.
fn fresh_id(trace: &Trace, graph: ContextIndex, step: &StepPath, ran: Ran) -> ChildId {
    let step = &step.as_str().replace('/', "-");
    let around = numbers_of_items(trace, graph);
    let named = match ran {
        Ran::Itself => suffixed(step, &around),
        Ran::Item(number) => suffixed(step, &format!("{around}-{}", number + 1)),
        Ran::Round(number) => suffixed(step, &format!("{around}-r{number}")),
        Ran::Fallback => suffixed(step, &format!("{around}-fallback")),
    };
    let mut number = trace.contexts().len();
    let mut id = named;
    while trace.context(&id).is_some() {
        id = suffixed(step, &format!("-n{number}"));
        number += 1;
    }
    id
}

/// The id of the context that undoes another: `writer-undo`.
pub(super) fn undo_id(trace: &Trace, of: &ChildId) -> ChildId {
    let named = |suffix: &str| {
        let kept = of.as_str().len().min(64 - suffix.len());
        ChildId::new(&format!("{}{suffix}", &of.as_str()[..kept])).expect("an id with a short suffix")
    };
    let numbers = (trace.contexts().len()..).map(|number| named(&format!("-undo-n{number}")));
    let mut ids = std::iter::once(named("-undo")).chain(numbers);
    ids.find(|id| trace.context(id).is_none()).expect("numbers do not end")
}

/// `-3-1` within the first item of a group that is within the third item of another.
fn numbers_of_items(trace: &Trace, graph: ContextIndex) -> String {
    /// Keeps the name of the step recognisable.
    const LONGEST: usize = 40;
    let groups = trace.chain(graph).map_while(|(_, node)| node.identity.step);
    let mut numbers: Vec<String> = groups
        .filter_map(|of| match of.ran {
            Ran::Item(number) => Some(format!("-{}", number + 1)),
            Ran::Itself | Ran::Round(_) | Ran::Fallback => None,
        })
        .collect();
    numbers.reverse();
    let numbers = numbers.concat();
    if numbers.len() > LONGEST { String::new() } else { numbers }
}

fn suffixed(step: &str, suffix: &str) -> ChildId {
    let kept = step.len().min(64 - suffix.len());
    ChildId::new(&format!("{}{suffix}", &step[..kept])).expect("a step's id with a short suffix")
}

impl Trace {
    /// The graph `levels` groups above this one, with its group.
    pub(super) fn run_above(&self, graph: ContextIndex, levels: u32) -> Option<(&GraphRun, &Group)> {
        let (_, node) = self.chain(graph).nth(levels as usize)?;
        self.run_of(node)
    }
}
