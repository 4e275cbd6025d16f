//! Decides the next start in a graph: one step at a time, each on the state that the previous start
//! left, until no step can start. A thousand steps therefore cost a thousand small decisions.

use domain::{
    ContextKey, Json, StepId, Timestamp,
    graph::{self, Body, EvaluationError, Group, GroupIndex, Policy, Source, StepIndex},
    wire::{OnExhausted, StepStatus},
};

use super::{
    conclude,
    scope::StepScope,
    start::{ask, begin, item_bytes, refused},
    status_of, step, undo,
};
use crate::{
    ContextIndex, ContextNode, Event, GraphRun, Ran, Refusal, RunPhase, StepRun, Trace, content, limit_text,
    rerun,
};

/// The next events of a graph: a step is started, skipped or refused, or the graph ends. No event
/// if the graph waits or has ended.
pub(crate) fn advance(trace: &Trace, graph: ContextIndex, now: Timestamp) -> Vec<Event> {
    let node = trace.node(graph);
    let (run, group) = trace.expect_run(graph);
    if node.is_undoing() {
        return undo::advance(trace, graph, now);
    }
    if !node.is_live() || run.progress.phase == RunPhase::Synthesis {
        return Vec::new();
    }
    if run.progress.failing || run.progress.winner.is_some() || run.progress.unfinished == 0 {
        return conclude::conclude(trace, graph, now);
    }
    if let Some(context) = trace.starved(graph)
        && context.terms.on_exhausted == OnExhausted::Pause
    {
        return match free_step(trace, graph, run, group) {
            Some(step) if node.live_children < node.limits.max_children => {
                Start { trace, graph, run, group, step, now }.decide()
            }
            Some(_) => Vec::new(),
            None => pause_when_idle(trace, graph, format!("the budget of `{}` is used up", context.id)),
        };
    }
    if node.live_children >= node.limits.max_children {
        return Vec::new();
    }
    let taken = rerun::winner(trace, graph, run, group);
    match taken.or_else(|| run.ready().find(|step| may_start(run, group, *step))) {
        Some(step) => Start { trace, graph, run, group, step, now }.decide(),
        None => Vec::new(),
    }
}

/// Nothing can start before money returns. Running contexts will return some when they end; without
/// any, the graph pauses.
fn pause_when_idle(trace: &Trace, graph: ContextIndex, reason: String) -> Vec<Event> {
    let node = trace.node(graph);
    let paused = matches!(node.status, crate::Status::Paused { .. });
    if node.live_children > 0 || paused {
        return Vec::new();
    }
    vec![Event::Paused { child_id: node.id.clone(), reason, in_line: false }]
}

/// Returns true if a ready step may start: it has no `for_each` with `max_parallel` running items.
fn may_start(run: &GraphRun, group: &Group, step: StepIndex) -> bool {
    let Some(items) = &run.step(step).items else { return true };
    let bound = group.steps[step as usize].for_each.as_ref().and_then(|each| each.max_parallel);
    bound.is_none_or(|bound| items.started - items.ended < bound)
}

/// A step that may start although nothing is left to spend: a question to a human costs nothing,
/// and neither does a result from an earlier run.
fn free_step(trace: &Trace, graph: ContextIndex, run: &GraphRun, group: &Group) -> Option<StepIndex> {
    let asks = |step: StepIndex| {
        let is_fallback = run.step(step).next == Some(Ran::Fallback);
        matches!(group.steps[step as usize].body, Body::Approve(_)) && !is_fallback
    };
    let free = |step: &StepIndex| asks(*step) || rerun::may_take(trace, graph, *step);
    run.ready().filter(|step| may_start(run, group, *step)).find(free)
}

/// Returns true if a graph with nothing left to spend can still continue.
pub(crate) fn goes_on_for_free(trace: &Trace, graph: ContextIndex) -> bool {
    let (run, group) = trace.expect_run(graph);
    free_step(trace, graph, run, group).is_some()
}

/// The next context of a step that has begun: an item, a round or its fallback.
fn goes_on_with(step: &StepRun) -> Option<Ran> {
    step.items.as_ref().map(|items| Ran::Item(items.started)).or(step.next)
}

struct Start<'a> {
    trace: &'a Trace,
    graph: ContextIndex,
    run: &'a GraphRun,
    group: &'a Group,
    step: StepIndex,
    now: Timestamp,
}

impl Start<'_> {
    fn decide(&self) -> Vec<Event> {
        if let Some(next) = goes_on_with(self.run.step(self.step)) {
            return self.begin(next);
        }
        if let Some(reason) = self.what_is_missing() {
            return vec![self.ended(StepStatus::Skipped, Some(reason))];
        }
        let mut events = Vec::new();
        if let Some(when) = &self.plan().when {
            let (asked, answer) = self.ask("when", when);
            events.push(asked);
            match answer {
                Ok(true) => {}
                Ok(false) => {
                    let reason = format!("when is false: {}", when.source());
                    events.push(self.ended(StepStatus::Skipped, Some(reason)));
                    return events;
                }
                // A value in the condition was never written: handled like a missing input.
                Err(error @ EvaluationError::Absent(_)) => {
                    events.push(self.ended(StepStatus::Skipped, Some(format!("when: {error}"))));
                    return events;
                }
                Err(error @ (EvaluationError::Failed(_) | EvaluationError::NotBoolean(_))) => {
                    events.push(self.ended(StepStatus::Failed, Some(format!("when: {error}"))));
                    return events;
                }
            }
        }
        if let Some(taken) = rerun::step(self.trace, self.graph, self.step, self.now) {
            let refused = |refusal| vec![self.ended(StepStatus::Failed, Some(refused(&refusal)))];
            events.extend(taken.unwrap_or_else(refused));
            return events;
        }
        events.extend(match (&self.plan().for_each, &self.plan().repeat) {
            (Some(each), _) => self.take_items(&each.key),
            (None, Some(_)) => self.begin(Ran::Round(1)),
            (None, None) => self.begin(Ran::Itself),
        });
        events
    }

    fn plan(&self) -> &graph::Step {
        &self.group.steps[self.step as usize]
    }

    /// The status of the step's last context.
    fn last_status(&self) -> StepStatus {
        let last =
            self.run.step(self.step).contexts.last().and_then(|context| self.trace.node(*context).end());
        last.map_or(StepStatus::Failed, |end| status_of(end.status))
    }

    fn ended(&self, status: StepStatus, reason: Option<String>) -> Event {
        let child_id = self.trace.node(self.graph).id.clone();
        Event::StepEnded { child_id, step: self.step, status, reason, partial: false }
    }

    /// The reason why the step can't run, if something it needs is missing (G3, G4).
    fn what_is_missing(&self) -> Option<String> {
        for (levels, step) in &self.plan().requires {
            let id = self.id_above(*levels, *step)?;
            let (run, group) = self.trace.run_above(self.graph, *levels)?;
            // An amend may have moved the required step: an item keeps the plan with which it
            // began, and the graph around it does not.
            let place = (0u32..).zip(&group.steps).find(|(_, step)| step.id == *id).map(|(place, _)| place);
            if place.is_none_or(|place| run.step(place).status != StepStatus::Succeeded) {
                return Some(format!("`{id}` did not succeed"));
            }
        }
        if self.group.policy == Policy::BestEffort {
            return None;
        }
        let graph = self.trace.node(self.graph);
        for input in &self.plan().inputs {
            let there = match input.source {
                // An agent may not have written the list. Where an item reads such a key, it gets
                // null.
                Source::UnderSibling(_) if self.is_list(&input.key) => {
                    self.trace.value_for_step(self.graph, input).is_some()
                }
                Source::Sibling(step) | Source::UnderSibling(step) => {
                    self.run.step(step).status == StepStatus::Succeeded
                }
                Source::Outside => self.trace.value_in(graph, &input.key).is_some(),
                Source::PreviousRound => true,
            };
            if !there {
                return Some(format!("its input `{}` is missing", input.key));
            }
        }
        None
    }

    /// The id of a step in a group around this one, by its place in the plan of this one.
    fn id_above(&self, levels: u32, step: StepIndex) -> Option<&StepId> {
        let plan = &self.trace.plans[self.run.plan as usize];
        let above = |group: GroupIndex, _| plan.group(group).owner.map(|(outer, _)| outer);
        let group = (0..levels).try_fold(self.run.group, above)?;
        Some(&plan.group(group).steps[step as usize].id)
    }

    fn ask(&self, what: &str, condition: &graph::Condition) -> (Event, Result<bool, EvaluationError>) {
        let scope = StepScope::of(self.trace, self.graph, &self.plan().when_reads);
        ask(&scope, self.step, what, condition)
    }

    fn is_list(&self, key: &ContextKey) -> bool {
        self.plan().for_each.as_ref().is_some_and(|each| each.key == *key)
    }

    fn take_items(&self, key: &ContextKey) -> Vec<Event> {
        let graph = self.trace.node(self.graph);
        let mut inputs = self.plan().inputs.iter();
        let list = inputs.find(|input| input.key == *key);
        let list = list.and_then(|input| self.trace.value_for_step(self.graph, input));
        let list = list.map(|entry| entry.value.clone());
        // Under best effort a missing list is empty, as a missing input is null.
        let list = list.unwrap_or_else(|| Json::from(serde_json::Value::Array(Vec::new())));
        let Some(elements) = list.elements() else {
            let reason = format!("for_each needs a list, and `{key}` is not one");
            return vec![self.ended(StepStatus::Failed, Some(reason))];
        };
        let (asked, have) = (elements.len(), self.trace.contexts().len());
        let max = graph.limits.max_contexts as usize;
        let each = self.trace.plans[self.run.plan as usize].contexts_of(self.plan());
        if asked.saturating_mul(each).saturating_add(have) > max {
            let of = if each == 1 { String::new() } else { format!(" of {each} contexts each") };
            let limit = limit_text::of_settings(self.trace.settings(), "max_contexts");
            let reason = format!("{asked} items{of} on {have} contexts would exceed {limit}");
            return vec![self.ended(StepStatus::Failed, Some(reason))];
        }
        // Each item has an order with its element, and room is needed for the end of the last item.
        let bytes = item_bytes(self.trace, self.graph, self.step);
        let all =
            bytes.saturating_mul(asked as u64).saturating_add(2 * list.size_bytes() + content::END_BYTES);
        if asked > 0
            && let Err(refusal) = content::check_room(self.trace, self.trace.settings(), all)
        {
            let reason =
                format!("{asked} items of {bytes} bytes each, and their list, {}", refused(&refusal));
            return vec![self.ended(StepStatus::Failed, Some(reason))];
        }
        let none = asked == 0;
        let mut events = Vec::new();
        if none && let Some(key) = &self.plan().output_to {
            events.extend(crate::context_store::put(self.trace, self.graph, key, &list).unwrap_or_default());
        }
        events.extend(rerun::drop_changed(self.trace, self.graph, self.step));
        events.push(Event::ItemsTaken { child_id: graph.id.clone(), step: self.step, items: list });
        if none {
            events.push(self.ended(StepStatus::Succeeded, None));
        }
        events
    }

    /// The result of an item in the earlier run, if this is a rerun that may take it.
    fn taken(&self, ran: Ran) -> Option<Result<Vec<Event>, Refusal>> {
        let (Ran::Item(number), Some(list)) = (ran, self.run.lists.get(&self.run.number(self.step))) else {
            return None;
        };
        let element = Json::from(list.elements()?.get(number as usize)?.clone());
        rerun::item(self.trace, self.graph, self.step, number, &element, self.now)
    }

    fn begin(&self, ran: Ran) -> Vec<Event> {
        let begun = self.taken(ran);
        let begun = begun.unwrap_or_else(|| begin(self.trace, self.graph, self.step, ran, self.now));
        let refusal = match begun {
            Ok(events) => return events,
            Err(refusal @ Refusal::Busy(_)) => {
                return pause_when_idle(self.trace, self.graph, refusal.to_string());
            }
            Err(refusal) => refused(&refusal),
        };
        match ran {
            Ran::Item(_) => step::item_refused(self.trace, self.graph, self.step, refusal),
            Ran::Itself | Ran::Round(_) => vec![self.ended(StepStatus::Failed, Some(refusal))],
            // The step ends as it would have ended without a fallback.
            Ran::Fallback => {
                vec![self.ended(self.last_status(), Some(format!("its fallback was {refusal}")))]
            }
        }
    }
}

/// Returns true if the grant of the graph's next step does not fit until calls in flight end.
pub(crate) fn next_is_busy(trace: &Trace, graph: ContextIndex, now: Timestamp) -> bool {
    let (run, group) = trace.expect_run(graph);
    let Some(step) = run.ready().find(|step| may_start(run, group, *step)) else { return false };
    let next = goes_on_with(run.step(step)).unwrap_or(Ran::Itself);
    matches!(begin(trace, graph, step, next, now), Err(Refusal::Busy(_)))
}

impl Trace {
    /// The context whose budget prevents any start in a graph. An abort takes precedence over a
    /// pause.
    pub(crate) fn starved(&self, graph: ContextIndex) -> Option<&ContextNode> {
        let starved = || self.nothing_left(graph).map(|(node, _)| node);
        starved().find(|node| node.terms.on_exhausted == OnExhausted::Abort).or_else(|| starved().next())
    }
}
