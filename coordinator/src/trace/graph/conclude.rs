//! How a graph ends: won, failed, done, or handed to its own agent for the synthesis (G4, G6).

use serde_json::{Map, Value};
use shared::{
    Json, Timestamp,
    graph::{Group, Policy},
    wire::{EndStatus, Failure, FailureKind, GraphVerdict, Payload, StepStatus},
};

use super::{GraphRun, failed, value_of};
use crate::trace::{ContextIndex, ContextNode, Event, Requeue, Status, Trace, attempt, end};

/// A graph that is won, failing or out of steps.
pub(super) fn conclude(trace: &Trace, graph: ContextIndex, now: Timestamp) -> Vec<Event> {
    let (run, group) = trace.expect_run(graph);
    let child_id = trace.node(graph).id.clone();
    let mut events = Vec::new();
    if run.steps.iter().any(|step| step.status == StepStatus::Pending) {
        let reason = match run.winner {
            Some(winner) => format!("`{}` won the race", group.steps[winner as usize].id),
            None => format!("{} failed", names(run, group, failed)),
        };
        events.push(Event::StepsSkipped { child_id: child_id.clone(), reason });
    }
    let verdict = verdict(run, group);
    if verdict == GraphVerdict::Failed {
        events.push(fail(trace, graph, run, group));
    } else if group.aggregate.is_some() && succeeded(run) > 0 {
        events.push(Event::SynthesisBegun { child_id });
        events.push(attempt::queue_again(trace, graph, Requeue::Synthesis, now));
    } else {
        events.push(end::completed(trace, graph, result(trace, graph, run, group)));
    }
    events
}

pub(super) fn verdict(run: &GraphRun, group: &Group) -> GraphVerdict {
    if group.race {
        return if run.winner.is_some() { GraphVerdict::Succeeded } else { GraphVerdict::Failed };
    }
    let steps = || run.steps.iter().zip(&group.steps);
    let missed = steps().any(|(run, step)| step.required && failed(run.status));
    let incomplete = run.steps.iter().any(|step| step.partial);
    let partial = if incomplete { GraphVerdict::Partial } else { GraphVerdict::Succeeded };
    match (group.policy, missed, succeeded(run) > 0) {
        (_, false, _) => partial,
        (Policy::Fail, true, some) if run.gathered && some => GraphVerdict::Partial,
        (Policy::Fail, true, _) => GraphVerdict::Failed,
        (Policy::Continue, true, true) => GraphVerdict::Partial,
        (Policy::BestEffort, true, true) => partial,
        (Policy::Continue | Policy::BestEffort, true, false) => GraphVerdict::Failed,
    }
}

fn succeeded(run: &GraphRun) -> usize {
    run.steps.iter().filter(|step| step.status == StepStatus::Succeeded).count()
}

fn names(run: &GraphRun, group: &Group, which: fn(StepStatus) -> bool) -> String {
    const LISTED: usize = 5;
    let found = run.steps.iter().zip(&group.steps).filter(|(run, _)| which(run.status));
    let found: Vec<String> = found.map(|(_, step)| format!("`{}`", step.id)).collect();
    match found.len().checked_sub(LISTED + 1) {
        Some(_) => format!("{} and {} more", found[..LISTED].join(", "), found.len() - LISTED),
        None => found.join(", "),
    }
}

fn fail(trace: &Trace, graph: ContextIndex, run: &GraphRun, group: &Group) -> Event {
    let why = run.steps.iter().find(|step| failed(step.status)).and_then(|step| step.reason.as_deref());
    let message = match why {
        Some(why) => format!("{} failed: {why}", names(run, group, failed)),
        None => format!("{} failed", names(run, group, failed)),
    };
    let error = Failure { kind: FailureKind::Step, message, retryable: false };
    match trace.blocked(graph) {
        Some((context, dimension)) => {
            let reason = format!("the {dimension} budget of `{}` is used up", context.id);
            end::with_error(trace, graph, EndStatus::Aborted, error, Some(reason))
        }
        None => end::with_error(trace, graph, EndStatus::Failed, error, None),
    }
}

/// The winner's result; for a group whose result someone reads, what each of its steps gave.
fn result(trace: &Trace, graph: ContextIndex, run: &GraphRun, group: &Group) -> Option<Payload> {
    let of = |step: usize| {
        let last = run.steps[step].contexts.last().and_then(|c| trace.node(*c).end());
        last.filter(|end| end.status == EndStatus::Completed).map(value_of)
    };
    if let Some(winner) = run.winner {
        return of(winner as usize).map(Payload::Inline);
    }
    if !is_read(trace, trace.node(graph)) {
        return None;
    }
    let results: Map<String, Value> = (0..group.steps.len())
        .filter(|step| run.steps[*step].status == StepStatus::Succeeded)
        .filter_map(|step| Some((group.steps[step].id.to_string(), of(step)?.value().clone())))
        .collect();
    Some(Payload::Inline(Json::from(Value::Object(results))))
}

/// Whether anyone reads what this group gives: its own step writes it somewhere, the group around it
/// gathers findings, or that one's result is read in turn.
fn is_read(trace: &Trace, node: &ContextNode) -> bool {
    let (Some(parent), Some(of)) = (node.parent, node.step) else { return false };
    let (_, group) = trace.expect_run(parent);
    let step = &group.steps[of.step as usize];
    step.output_to.is_some() || group.aggregate.is_some() || is_read(trace, trace.node(parent))
}

/// `aggregate` has waited long enough: what runs is cancelled, what has not begun is skipped.
pub(in crate::trace) fn gathering_is_over(trace: &Trace, graph: ContextIndex) -> Vec<Event> {
    let node = trace.node(graph);
    let (run, _) = trace.expect_run(graph);
    if !matches!(node.status, Status::Working(_)) || run.gathered {
        return Vec::new();
    }
    let reason = "not done when aggregate stopped waiting";
    let child_id = node.id.clone();
    let mut events = vec![Event::GatheringEnded { child_id: child_id.clone() }];
    for (number, step) in (0u32..).zip(&run.steps) {
        if step.status == StepStatus::Running {
            events.push(Event::StepEnded {
                child_id: child_id.clone(),
                step: number,
                status: StepStatus::TimedOut,
                reason: Some(reason.into()),
                partial: false,
            });
        }
    }
    events.push(Event::StepsSkipped { child_id, reason: reason.into() });
    let live = node.children.iter().filter(|child| trace.node(**child).is_live());
    events.extend(live.map(|child| end::stopped(trace, *child, EndStatus::TimedOut, reason.into())));
    events
}

impl Trace {
    /// Whether a context that ended well is a graph of which not all did.
    pub(super) fn ended_partial(&self, node: &ContextNode) -> bool {
        self.run_of(node).is_some_and(|(run, group)| verdict(run, group) == GraphVerdict::Partial)
    }
}
