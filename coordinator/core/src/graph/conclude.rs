//! Ends a graph: by a race's winner, a failure, the end of its last step, or the synthesis of its
//! own agent (G1, G4, G6). The synthesis of a race contains the winner's finding only.

use domain::{
    Amount, ContextKey, Json, Timestamp,
    graph::{Group, OutputDef, Policy},
    wire::{EndStatus, Failure, FailureKind, GraphVerdict, Payload, StepStatus},
};
use serde_json::{Map, Value};

use super::view::result_of;
use crate::{
    ContextIndex, ContextNode, Event, GraphRun, LoweredBounds, Requeue, Status, Trace, attempt, end,
    graph_run::failed, limit_text,
};

/// Ends a graph whose race is won, that is failing, or whose steps are all done.
pub(super) fn conclude(trace: &Trace, graph: ContextIndex, now: Timestamp) -> Vec<Event> {
    let (run, group) = trace.expect_run(graph);
    let child_id = trace.node(graph).id.clone();
    let mut events = Vec::new();
    if run.steps.iter().any(|step| step.status == StepStatus::Pending) {
        let reason = match run.progress.winner {
            Some(winner) => format!("`{}` won the race", group.steps[winner as usize].id),
            None => format!("{} failed", names(run, group, failed)),
        };
        events.push(Event::StepsSkipped { child_id: child_id.clone(), reason });
    }
    let verdict = verdict(run, group);
    if verdict == GraphVerdict::Failed {
        events.push(fail(trace, graph, run, group));
    } else if group.aggregate.is_some() && succeeded(run) > 0 {
        events.extend(losers_cancelled(trace, graph, run, group));
        events.push(Event::SynthesisBegun { child_id, lowered: lowered(trace, graph) });
        events.push(attempt::queue_again(trace, graph, Requeue::Synthesis, now));
    } else {
        events.push(complete(trace, graph, result(trace, graph, run, group)));
    }
    events
}

/// Completes with a result, if the result matches the graph's `output_schema`.
fn complete(trace: &Trace, graph: ContextIndex, result: Option<Payload>) -> Event {
    let nothing = Payload::Inline(Json::null());
    match attempt::unfit(trace, graph, result.as_ref().unwrap_or(&nothing)) {
        Some(message) => {
            let message = format!("the result of the graph does not fit its `output_schema`: {message}");
            end::failed(trace, graph, FailureKind::OutputSchema, message)
        }
        None => end::completed(trace, graph, result),
    }
}

/// A race is won, and its graph continues with the synthesis: steps that still run are cancelled.
fn losers_cancelled(trace: &Trace, graph: ContextIndex, run: &GraphRun, group: &Group) -> Vec<Event> {
    let Some(winner) = run.progress.winner else { return Vec::new() };
    let node = trace.node(graph);
    let reason = format!("`{}` won the race", group.steps[winner as usize].id);
    let running = (0u32..).zip(run.steps.iter()).filter(|(_, step)| step.status == StepStatus::Running);
    let ended = running.map(|(step, _)| Event::StepEnded {
        child_id: node.id.clone(),
        step,
        status: StepStatus::Cancelled,
        reason: Some(reason.clone()),
        partial: false,
    });
    let live = node.children.iter().filter(|child| trace.node(**child).goes_on());
    let stopped = live.map(|child| end::stopped(trace, *child, EndStatus::Cancelled, reason.clone()));
    ended.chain(stopped).collect()
}

/// B17: the bounds from the profile of the graph's own agent. They apply to its own calls, not to
/// those of the steps.
fn lowered(trace: &Trace, graph: ContextIndex) -> Option<Box<LoweredBounds>> {
    let node = trace.node(graph);
    let profile = node.spec.agent_id.as_ref().and_then(|id| trace.agent(id))?;
    let limit = node.budget.ceilings.limit;
    let own = Amount::new(
        profile.max_cost_usd.unwrap_or(limit.cost_usd).min(limit.cost_usd),
        profile.max_tokens.unwrap_or(limit.tokens).min(limit.tokens),
    );
    let limits = profile.limits.lower(&node.limits);
    let timeout_ms = profile.timeout_ms.filter(|millis| *millis > 0);
    let window_tokens = node.terms.window_tokens.into_iter().chain(profile.window_tokens).min();
    let bounds = own != limit || timeout_ms.is_some();
    let lowers = bounds || limits != *node.limits || window_tokens != node.terms.window_tokens;
    lowers.then(|| Box::new(LoweredBounds { own, limits: limits.into(), timeout_ms, window_tokens }))
}

pub(super) fn verdict(run: &GraphRun, group: &Group) -> GraphVerdict {
    if group.race {
        return match run.progress.winner.map(|winner| run.step(winner).partial) {
            Some(true) => GraphVerdict::Partial,
            Some(false) => GraphVerdict::Succeeded,
            None => GraphVerdict::Failed,
        };
    }
    let steps = || run.steps.iter().zip(&group.steps);
    let missed = steps().any(|(run, step)| step.required && failed(run.status));
    let incomplete = run.steps.iter().any(|step| step.partial);
    let partial = if incomplete { GraphVerdict::Partial } else { GraphVerdict::Succeeded };
    match (group.policy, missed, succeeded(run) > 0) {
        (_, false, _) => partial,
        (Policy::Fail, true, some) if run.progress.gathered && some => GraphVerdict::Partial,
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
            let reason = limit_text::out_of_money(trace, context, dimension);
            end::with_error(trace, graph, EndStatus::Aborted, error, Some(reason))
        }
        None => end::with_error(trace, graph, EndStatus::Failed, error, None),
    }
}

/// The winner's result; for a group whose result is read, the results of its steps. The answer for
/// the agent that ran the graph is built when it is sent (`graph_answer`).
fn result(trace: &Trace, graph: ContextIndex, run: &GraphRun, group: &Group) -> Option<Payload> {
    if let Some(winner) = run.progress.winner {
        return result_of(trace, run.step(winner)).map(Payload::Inline);
    }
    if let Some(output) = &group.output {
        return Some(Payload::Inline(output_of(trace, graph, output)));
    }
    let node = trace.node(graph);
    if node.spec.output_schema.is_none() && !is_read(trace, node) {
        return None;
    }
    let steps = run.steps.iter().zip(&group.steps).filter(|(run, _)| run.status == StepStatus::Succeeded);
    let results: Map<String, Value> = steps
        .filter_map(|(run, step)| Some((step.id.to_string(), result_of(trace, run)?.value().clone())))
        .collect();
    Some(Payload::Inline(Json::from(Value::Object(results))))
}

/// The values that a graph declares as its result; null for a value that was not written.
fn output_of(trace: &Trace, graph: ContextIndex, output: &OutputDef) -> Json {
    let value = |key: &ContextKey| {
        let entry = trace.value_in(trace.node(graph), key);
        entry.map_or(Value::Null, |entry| entry.value.value().clone())
    };
    Json::from(match output {
        OutputDef::Key(key) => value(key),
        OutputDef::Named(keys) => {
            Value::Object(keys.iter().map(|(name, key)| (name.to_string(), value(key))).collect())
        }
    })
}

/// Returns true if the result of this group is read: its step writes it to a key, or the group
/// around it gathers findings, is a race, or has a result that is read in turn.
fn is_read(trace: &Trace, node: &ContextNode) -> bool {
    let (Some(parent), Some(of)) = (node.parent, node.identity.step) else { return false };
    let (run, group) = trace.expect_run(parent);
    let step = &group.steps[run.place(of.step) as usize];
    step.output_to.is_some() || group.aggregate.is_some() || group.race || is_read(trace, trace.node(parent))
}

/// `aggregate` stops waiting: running steps are cancelled, and steps that have not begun are
/// skipped.
pub(crate) fn gathering_is_over(trace: &Trace, graph: ContextIndex) -> Vec<Event> {
    let node = trace.node(graph);
    let (run, _) = trace.expect_run(graph);
    if !matches!(node.status, Status::Working(_)) || run.progress.gathered {
        return Vec::new();
    }
    let reason = "not done when aggregate stopped waiting";
    let child_id = node.id.clone();
    let mut events = vec![Event::GatheringEnded { child_id: child_id.clone() }];
    for (number, step) in (0u32..).zip(run.steps.iter()) {
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
    let live = node.children.iter().filter(|child| trace.node(**child).goes_on());
    events.extend(live.map(|child| end::stopped(trace, *child, EndStatus::TimedOut, reason.into())));
    events
}

impl Trace {
    /// Returns true if a completed context is a graph in which some steps did not succeed.
    pub(crate) fn ended_partial(&self, node: &ContextNode) -> bool {
        self.run_of(node).is_some_and(|(run, group)| verdict(run, group) == GraphVerdict::Partial)
    }
}
