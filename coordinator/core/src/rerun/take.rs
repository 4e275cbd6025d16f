//! Takes over results of the earlier run when their steps would begin.

use std::collections::{BTreeMap, HashMap};

use domain::{
    ContextKey, Json, StepId, StepPath, Timestamp,
    graph::{Body, Group, StepIndex},
    wire::{EndStatus, StepStatus},
};

use super::{
    earlier::{outside_reads, own_reads},
    kept::{KeptResult, KeptStep, StepPlace, digest_of},
};
use crate::{
    ContextEnded, ContextIndex, Event, GraphRun, Ran, Refusal, Trace, admission,
    context_store::{self, full_key},
    graph::begin_taken,
};

/// Takes a step as a whole, if its result exists and it would read the same values again.
pub(crate) fn step(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    now: Timestamp,
) -> Option<Result<Vec<Event>, Refusal>> {
    let (place, kept) = kept(trace, graph, step, None)?;
    if kept.item.is_some() || kept.read != read(trace, graph, step) {
        return None;
    }
    let ran = if kept.fallback { Ran::Fallback } else { Ran::Itself };
    Some(take(trace, graph, step, ran, (place, kept), now))
}

/// Returns true if a step is taken as a whole when it begins.
pub(crate) fn may_take(trace: &Trace, graph: ContextIndex, step: StepIndex) -> bool {
    kept(trace, graph, step, None)
        .is_some_and(|(_, kept)| kept.item.is_none() && kept.read == read(trace, graph, step))
}

/// Takes an item of a `for_each`, if its element is unchanged.
pub(crate) fn item(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    number: u32,
    element: &Json,
    now: Timestamp,
) -> Option<Result<Vec<Event>, Refusal>> {
    let (place, kept) = kept(trace, graph, step, Some(number))?;
    if kept.item != Some(digest_of(element)) {
        return None;
    }
    Some(take(trace, graph, step, Ran::Item(number), (place, kept), now))
}

/// Drops the kept results of a step's items if the items would read other values than before.
pub(crate) fn drop_changed(trace: &Trace, graph: ContextIndex, step: StepIndex) -> Option<Event> {
    let place = StepPlace::of(path_of(trace, graph, step)?, None);
    let (_, kept) = trace.kept.iter().find(|(of, _)| of.is_item_of(&place))?;
    let child_id = trace.node(graph).id.clone();
    (kept.read != read(trace, graph, step)).then_some(Event::KeptDropped { child_id, place })
}

/// The step that won a race in the earlier run: it is taken before the other steps begin.
pub(crate) fn winner(trace: &Trace, graph: ContextIndex, run: &GraphRun, group: &Group) -> Option<StepIndex> {
    if !group.race || trace.kept.is_empty() {
        return None;
    }
    run.ready().find(|step| may_take(trace, graph, *step))
}

/// The path of a step, if any of its results may be taken.
fn path_of(trace: &Trace, graph: ContextIndex, step: StepIndex) -> Option<&StepPath> {
    if trace.kept.is_empty() || !trace.takes_steps_in(graph) {
        return None;
    }
    let (_, group) = trace.run_of(trace.node(graph))?;
    Some(&group.steps[step as usize].path)
}

fn kept(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    item: Option<u32>,
) -> Option<(StepPlace, &KeptResult)> {
    let place = StepPlace::of(path_of(trace, graph, step)?, item);
    let kept = trace.kept.get(&place)?;
    Some((place, kept))
}

/// Digests of the values that a step would read now.
fn read(trace: &Trace, graph: ContextIndex, step: StepIndex) -> BTreeMap<ContextKey, String> {
    let Some((run, group)) = trace.run_of(trace.node(graph)) else { return BTreeMap::new() };
    let plan = &trace.plans[run.plan as usize];
    let step = &group.steps[step as usize];
    let own = own_reads(step)
        .filter_map(|input| Some((input.key.clone(), digest_of(&trace.value_for_step(graph, input)?.value))));
    let node = trace.node(graph);
    let outside = outside_reads(plan, step).into_iter();
    let outside = outside.filter_map(|key| {
        let digest = digest_of(&trace.value_in(node, &key)?.value);
        Some((key, digest))
    });
    own.chain(outside).collect()
}

fn take(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    ran: Ran,
    (place, kept): (StepPlace, &KeptResult),
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    check_room(trace, kept)?;
    let (child_id, mut events) = begin_taken(trace, graph, step, ran, kept.from.clone(), now)?;
    if let Some(cancelled) = admission::cancelled_before(trace, &child_id, None) {
        events.push(cancelled);
        return Ok(events);
    }
    events.push(Event::KeptTaken { child_id: child_id.clone(), place });
    for (number, step) in inner_steps(trace, graph, step, kept) {
        let (status, reason) = (step.status, step.reason.clone());
        // A step that never began stays pending: its group ends here.
        if !matches!(status, StepStatus::Pending | StepStatus::Running) {
            let child_id = child_id.clone();
            events.push(Event::StepEnded { child_id, step: number, status, reason, partial: false });
        }
    }
    let under = |rest: &String| ContextKey::new(&format!("{child_id}.{rest}")).ok();
    let own = kept.own.iter().filter_map(|(rest, value)| Some((under(rest)?, value.clone())));
    let outer = trace.node(graph);
    let values = kept.values.iter().map(|(key, value)| (full_key(trace, outer, key), value.clone()));
    let writer = Some(child_id.clone());
    events.extend(own.chain(values).map(|(key, value)| Event::ValueSet {
        key,
        value,
        writer: writer.clone(),
    }));
    events.push(Event::Ended(Box::new(ContextEnded {
        child_id,
        status: EndStatus::Completed,
        result: kept.result.clone(),
        error: None,
        reason: None,
        without_undo: false,
    })));
    Ok(events)
}

/// The ends of the steps in a group, by their places in it.
fn inner_steps<'a>(
    trace: &'a Trace,
    graph: ContextIndex,
    step: StepIndex,
    kept: &'a KeptResult,
) -> Vec<(StepIndex, &'a KeptStep)> {
    let Some((run, group)) = trace.run_of(trace.node(graph)) else { return Vec::new() };
    let Body::Group(inner) = group.steps[step as usize].body else { return Vec::new() };
    let ended: HashMap<&StepId, &KeptStep> = kept.steps.iter().map(|step| (&step.id, step)).collect();
    let steps = (0u32..).zip(&trace.plans[run.plan as usize].group(inner).steps);
    steps.filter_map(|(place, step)| Some((place, *ended.get(&step.id)?))).collect()
}

/// L: the values that the step wrote must fit into the shared store, whose limits may have been
/// lowered since.
fn check_room(trace: &Trace, kept: &KeptResult) -> Result<(), Refusal> {
    let mut total = trace.store_bytes;
    for size in kept.own.values().chain(kept.values.values()).map(Json::size_bytes) {
        context_store::check_value(trace.settings(), size)?;
        total += size;
    }
    context_store::check_total(trace.settings(), "a shared store", total)
}
