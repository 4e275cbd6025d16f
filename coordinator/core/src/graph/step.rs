//! The effect of a context's end on its step: the step ends, or continues with another round or the
//! fallback, or has one item less to wait for. Every step has its own status.

use domain::{
    ContextKey,
    graph::{self, EvaluationError, Group, Policy, Repeat, StepIndex},
    wire::{EndStatus, StepStatus},
    wording::count,
};

use super::{
    scope::StepScope,
    start::{ask, refused},
    view::{result_of, status_of, value_of},
};
use crate::{
    ContextIndex, ContextNode, End, Event, GraphRun, Items, Ran, Refusal, Trace, context_store, end,
    graph_run::failed,
};

/// A context that ran a step has ended. No event follows if the step has already ended: the context
/// is a late item, or its step was stopped by a race or a failure.
pub(crate) fn context_ended(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let node = trace.node(at);
    let (Some(graph), Some(of)) = (node.parent, node.identity.step) else { return Vec::new() };
    let (run, group) = trace.expect_run(graph);
    let step = run.place(of.step);
    if run.step(step).status != StepStatus::Running || !trace.node(graph).goes_on() {
        return Vec::new();
    }
    let end = node.end().expect("asked when it has ended");
    let over = Over { trace, graph, run, group, step, node, end };
    match of.ran {
        Ran::Item(_) => over.item(),
        Ran::Round(number) => over.round(number),
        Ran::Itself => over.itself(),
        Ran::Fallback => over.last(),
    }
}

/// An item could not be started: handled as if it had run and failed.
pub(super) fn item_refused(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    reason: String,
) -> Vec<Event> {
    let (run, group) = trace.expect_run(graph);
    let items = run.step(step).items.as_ref().expect("an item has a list");
    let child_id = trace.node(graph).id.clone();
    let refused = Event::ItemRefused { child_id, step, item: items.started, reason: reason.clone() };
    let mut events = vec![refused];
    if gives_up(group, step) {
        events.extend(give_up(trace, graph, step, StepStatus::Failed, reason));
    } else if items.ended + 1 == items.total {
        let first = run.step(step).reason.as_deref().unwrap_or(&reason);
        events.extend(all_items(trace, graph, step, items, Some(first)));
    }
    events
}

struct Over<'a> {
    trace: &'a Trace,
    graph: ContextIndex,
    run: &'a GraphRun,
    group: &'a Group,
    step: StepIndex,
    node: &'a ContextNode,
    end: &'a End,
}

impl Over<'_> {
    fn plan(&self) -> &graph::Step {
        &self.group.steps[self.step as usize]
    }

    fn itself(&self) -> Vec<Event> {
        let stopped_by_hand = self.end.status == EndStatus::Cancelled;
        if self.end.status == EndStatus::Completed || stopped_by_hand || self.plan().fallback.is_none() {
            return self.last();
        }
        vec![self.continues(Ran::Fallback)]
    }

    /// The step is ready again, and waits with the others for a free place and for money.
    fn continues(&self, next: Ran) -> Event {
        let child_id = self.trace.node(self.graph).id.clone();
        Event::StepContinues { child_id, step: self.step, next }
    }

    /// The step ends as its context did, without another try.
    fn last(&self) -> Vec<Event> {
        let status = status_of(self.end.status);
        if status == StepStatus::Succeeded {
            return self.succeed(None);
        }
        vec![self.ended(status, Some(self.why()), false)]
    }

    fn why(&self) -> String {
        self.end.why().unwrap_or("it failed").to_owned()
    }

    /// The step succeeds. Its output is written before its dependents are decided.
    fn succeed(&self, note: Option<String>) -> Vec<Event> {
        let partial = self.trace.ended_partial(self.node);
        let mut events = Vec::new();
        if let Some(key) = &self.plan().output_to {
            match self.write(key) {
                Ok(written) => events.extend(written),
                Err(refusal) => return vec![self.ended(StepStatus::Failed, Some(refused(&refusal)), false)],
            }
        }
        events.push(self.ended(StepStatus::Succeeded, note, partial));
        events
    }

    /// Writes the step's result to its output. A graph that the step uses has only its own keys, so
    /// the graph around it writes.
    fn write(&self, key: &ContextKey) -> Result<Vec<Event>, Refusal> {
        let value = value_of(self.end);
        if self.trace.is_used(self.node) {
            return context_store::put(self.trace, self.graph, key, &value);
        }
        context_store::put_result(self.trace, self.writer(), key, &value)
    }

    fn writer(&self) -> ContextIndex {
        self.trace.expect(&self.node.id)
    }

    fn ended(&self, status: StepStatus, reason: Option<String>, partial: bool) -> Event {
        let child_id = self.trace.node(self.graph).id.clone();
        Event::StepEnded { child_id, step: self.step, status, reason, partial }
    }

    fn round(&self, number: u32) -> Vec<Event> {
        let Some(repeat) = &self.plan().repeat else { return self.last() };
        if self.end.status != EndStatus::Completed {
            return self.last();
        }
        let (mut events, done) = match self.until(repeat) {
            Ok(asked) => asked,
            Err(ended) => return ended,
        };
        if done {
            events.extend(self.succeed(None));
        } else if number >= repeat.max_rounds {
            let note =
                repeat.until.as_ref().map(|_| format!("ended at its limit of {}", count(number, "round")));
            events.extend(self.succeed(note));
        } else {
            events.extend(self.next_round(number + 1));
        }
        events
    }

    /// Returns true if the loop is done. The evaluated condition goes into the log.
    fn until(&self, repeat: &Repeat) -> Result<(Vec<Event>, bool), Vec<Event>> {
        let Some(until) = &repeat.until else { return Ok((Vec::new(), false)) };
        let own = |key| context_store::own_value(self.trace, self.writer(), key).cloned();
        let key = self.plan().output_to.as_ref().filter(|_| !self.trace.is_used(self.node));
        let value = key.and_then(own).unwrap_or_else(|| value_of(self.end));
        let fresh = self.plan().output_to.as_ref().map(|key| (key, &value));
        let scope = StepScope { round: Some(self.node), fresh, ..StepScope::of(self.trace, self.graph, &[]) };
        let (asked, answer) = ask(&scope, self.step, "until", until);
        match answer {
            Ok(done) => Ok((vec![asked], done)),
            Err(EvaluationError::Absent(_)) => Ok((vec![asked], false)),
            Err(error @ (EvaluationError::Failed(_) | EvaluationError::NotBoolean(_))) => {
                Err(vec![asked, self.ended(StepStatus::Failed, Some(format!("until: {error}")), false)])
            }
        }
    }

    /// The next round can read this round's output. Values written inside the round are deleted,
    /// except those that the next round reads as the previous round's, so that values of two rounds
    /// are never mixed unnoticed.
    fn next_round(&self, number: u32) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(key) = &self.plan().output_to {
            match self.write(key) {
                Ok(written) => events.extend(written),
                Err(refusal) => return vec![self.ended(StepStatus::Failed, Some(refused(&refusal)), false)],
            }
        }
        if let graph::Body::Group(inner) = self.plan().body {
            let plan = &self.trace.plans[self.run.plan as usize];
            let stale = plan.written_and_not_read_back(inner).into_iter();
            let stale = stale.map(|key| context_store::full_key(self.trace, self.node, key));
            events.extend(
                stale
                    .filter(|key| self.trace.values().contains_key(key))
                    .map(|key| Event::ValueDeleted { key }),
            );
        }
        events.push(self.continues(Ran::Round(number)));
        events
    }

    fn item(&self) -> Vec<Event> {
        let items = self.run.step(self.step).items.as_ref().expect("an item has a list");
        let status = status_of(self.end.status);
        if failed(status) && gives_up(self.group, self.step) {
            return give_up(self.trace, self.graph, self.step, status, self.why());
        }
        if items.ended == items.total {
            return all_items(self.trace, self.graph, self.step, items, None);
        }
        Vec::new()
    }
}

/// Returns true if one failed item ends the whole step, because its graph would fail with it.
fn gives_up(group: &Group, step: StepIndex) -> bool {
    group.policy == Policy::Fail && group.steps[step as usize].required
}

/// Ends the step, and cancels the contexts that still run for it.
fn give_up(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    status: StepStatus,
    reason: String,
) -> Vec<Event> {
    let (run, group) = trace.expect_run(graph);
    let child_id = trace.node(graph).id.clone();
    let mut events = vec![Event::StepEnded { child_id, step, status, reason: Some(reason), partial: false }];
    let live = run.step(step).contexts.iter().filter(|c| trace.node(**c).goes_on());
    // If the graph fails with this step, the successes in its other items are undone together with
    // all others, in one order.
    let alone = group.race || run.progress.gathered;
    let stopped = if alone { end::stopped } else { end::stopped_within };
    let reason = "another item of its step failed";
    events.extend(live.map(|c| stopped(trace, *c, EndStatus::Cancelled, reason.into())));
    events
}

/// Every item has ended: the result is the list of their results in the order of the items, with
/// null for an item without one.
fn all_items(
    trace: &Trace,
    graph: ContextIndex,
    step: StepIndex,
    items: &Items,
    first_refusal: Option<&str>,
) -> Vec<Event> {
    let (run, group) = trace.expect_run(graph);
    let child_id = trace.node(graph).id.clone();
    let mut events = Vec::new();
    let (mut status, mut reason) = (StepStatus::Succeeded, None);
    if items.succeeded == 0 {
        (status, reason) =
            (StepStatus::Failed, Some(format!("none of its {} succeeded", count(items.total, "item"))));
    } else if let (Some(key), Some(list)) =
        (&group.steps[step as usize].output_to, result_of(trace, run.step(step)))
    {
        match context_store::put(trace, graph, key, &list) {
            Ok(written) => events.extend(written),
            Err(refusal) => (status, reason) = (StepStatus::Failed, Some(refused(&refusal))),
        }
    }
    let is_incomplete = |at: &ContextIndex| {
        let node = trace.node(*at);
        node.end().is_some_and(|end| end.status == EndStatus::Completed) && trace.ended_partial(node)
    };
    let incomplete = items.succeeded < items.total || run.step(step).contexts.iter().any(is_incomplete);
    let partial = incomplete && status == StepStatus::Succeeded;
    if items.succeeded < items.total || items.succeeded == 0 {
        let missing = format!(
            "{} of its {} did not succeed",
            items.total - items.succeeded,
            count(items.total, "item")
        );
        let refused = first_refusal.or(run.step(step).reason.as_deref());
        reason = Some(refused.map_or(missing.clone(), |refused| format!("{missing}: {refused}")));
    }
    events.push(Event::StepEnded { child_id, step, status, reason, partial });
    events
}
