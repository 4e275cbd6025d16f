//! How a graph that ends without success undoes its succeeded steps (G14): one undo at a time, the
//! latest success first, across all its groups. Then the graph ends as it would have ended before.
//! A failed undo does not stop the others.
//!
//! Each undo runs at most once: the state lists the undos that have begun, and a second cancel
//! finds a graph that is already undoing.

use std::collections::BTreeMap;

use domain::{
    ContextKey, Json, Timestamp, Tokens,
    graph::{UNDO_RESULT, Undo},
    limits::LimitOverrides,
    wire::{EndStatus, Funding, OnExhausted, StepStatus, UndoReport, UndoStatus},
};

use super::{start::undo_id, view::value_of};
use crate::{
    ContextIndex, ContextNode, ContextSpec, End, Event, Refusal, StepRun, Trace, UndoRun, admission,
};

/// The reason why a run that succeeded is not undone, although its step did not succeed.
const STANDS: &str = "its step did not succeed, but its graph did, so it is not undone";

/// Returns the next undo of a graph, or its end; no event while the previous undo runs, or while a
/// graph in it undoes too.
pub(super) fn advance(trace: &Trace, graph: ContextIndex, now: Timestamp) -> Vec<Event> {
    let node = trace.node(graph);
    let (run, _) = trace.expect_run(graph);
    let Some(ending) = run.ending.as_ref().filter(|_| node.live_children == 0 && node.undoing == 1) else {
        return Vec::new();
    };
    let Some(of) = run.undos.last().copied() else { return vec![Event::Ended(ending.clone())] };
    begin(trace, graph, of, now).unwrap_or_else(|refusal| {
        let (child_id, undoes) = (node.id.clone(), trace.node(of).id.clone());
        vec![Event::UndoRefused { child_id, undoes, reason: super::start::refused(&refusal) }]
    })
}

fn begin(
    trace: &Trace,
    graph: ContextIndex,
    of: ContextIndex,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(of);
    let kept = node.undo.as_ref().ok_or_else(|| Refusal::UnknownContext(node.id.clone()))?;
    let undo = trace.undo_of(of).ok_or_else(|| Refusal::UnknownContext(node.id.clone()))?;
    let spec = ContextSpec {
        agent_id: Some(undo.agent_id.clone()),
        goal: Some(undo.goal.clone()),
        thread_id: trace.node(graph).spec.thread_id.clone(),
        inputs: inputs(trace, of),
        secrets: Some(trace.secrets_of(node)).filter(|own| !own.is_empty()).cloned().map(Box::new),
        max_cost_usd: Some(kept.reserve.cost_usd),
        max_tokens: Some(kept.reserve.tokens).filter(|tokens| *tokens > Tokens::ZERO),
        funding: Funding::Granted,
        // The undo has exactly the amount held for it, and nothing would raise its budget, so it
        // never pauses.
        on_exhausted: Some(OnExhausted::Abort),
        timeout_ms: undo.timeout_ms,
        limits: undo.retries.map(|retries| {
            Box::new(LimitOverrides { max_retries_total: Some(retries), ..Default::default() })
        }),
        ..ContextSpec::new(undo_id(trace, &node.id))
    };
    admission::undo(trace, graph, spec, (of, kept.reserve), now)
}

/// The values that the run read, and its result.
fn inputs(trace: &Trace, of: ContextIndex) -> BTreeMap<ContextKey, Json> {
    let node = trace.node(of);
    let mut inputs = node.spec.inputs.clone();
    let kept = node.undo.as_deref();
    for key in &node.spec.input_from {
        let value = kept.and_then(|kept| trace.kept_input(kept, key)).cloned();
        inputs.insert(key.clone(), value.unwrap_or_else(Json::null));
    }
    let result = node.end().map_or_else(Json::null, value_of);
    inputs.insert(ContextKey::new(UNDO_RESULT).expect("a valid literal"), result);
    inputs
}

impl Trace {
    /// The state of undoing a step; `None` if there was nothing to undo, or no need to. Where a
    /// report leaves out the steps of a group, this report of the group covers them.
    pub(super) fn undo_report(&self, step: &StepRun) -> Option<UndoReport> {
        let runs = self.undo_runs(step);
        let begun = runs.iter().any(|(_, undo)| undo.by.is_some() || undo.refused.is_some());
        let left = runs.iter().filter(|(_, undo)| undo.is_open());
        let open: Vec<_> = left.filter_map(|(at, _)| self.standing_of_undo(*at)).collect();
        if !begun && open.is_empty() {
            return None;
        }
        let by: Vec<ContextIndex> = runs.iter().filter_map(|(_, undo)| undo.by).collect();
        let (spent, attempts) = self.used_by(&by);
        let end = |at: &ContextIndex| self.node(*at).end();
        let refused = runs.iter().filter_map(|(_, undo)| undo.refused.as_deref().map(str::to_owned)).next();
        let failed = by.iter().filter_map(end).find(|end| end.status != EndStatus::Completed);
        let why = |end: &End| end.why().unwrap_or("it failed").to_owned();
        let stands = open.iter().find_map(|(_, reason)| reason.map(str::to_owned));
        let reason = failed.map(why).or(refused).or(stands);
        let status = if by.iter().any(|at| end(at).is_none()) {
            UndoStatus::Running
        } else if let Some((status, _)) = open.first() {
            *status
        } else if reason.is_some() {
            UndoStatus::Failed
        } else {
            UndoStatus::Undone
        };
        Some(UndoReport {
            status,
            reason,
            contexts: by.iter().map(|at| self.node(*at).id.clone()).collect(),
            cost_usd: spent.cost_usd,
            tokens: spent.tokens,
            attempts,
        })
    }

    /// The data to undo the runs of a step. The report lists the steps of the last context of a
    /// group, so they are left out here. The group's own report covers its other contexts and its
    /// items.
    fn undo_runs<'a>(&'a self, step: &StepRun) -> Vec<(ContextIndex, &'a UndoRun)> {
        let named = step.contexts.last().filter(|_| step.items.is_none());
        let mut open: Vec<ContextIndex> = step.contexts.clone();
        let mut found = Vec::new();
        while let Some(at) = open.pop() {
            let node = self.node(at);
            found.extend(node.undo.as_deref().map(|undo| (at, undo)));
            if node.graph.is_some() && named != Some(&at) {
                open.extend(node.children.iter().filter(|child| self.node(**child).identity.step.is_some()));
            }
        }
        found.sort_unstable_by_key(|(_, undo)| undo.succeeded_at);
        found
    }

    /// Returns whether a run that succeeded will be undone, or why it was not; `None` if it need
    /// not be undone, or nothing is decided yet.
    fn standing_of_undo(&self, run: ContextIndex) -> Option<(UndoStatus, Option<&'static str>)> {
        let above =
            || self.chain(run).map_while(|(_, node)| Some((node, node.identity.step.and(node.parent)?)));
        let status = |(_, graph): (&ContextNode, ContextIndex)| {
            let graph = self.node(graph);
            let dropped = graph.end().is_some_and(|end| end.without_undo).then_some(UndoStatus::Dropped);
            dropped.or(graph.is_undoing().then_some(UndoStatus::Pending))
        };
        if let Some(status) = above().find_map(status) {
            return Some((status, None));
        }
        // The run may belong to a step that lost a race, or for which `aggregate` did not wait: a
        // graph that succeeds undoes nothing.
        let over = |(_, graph): (&ContextNode, ContextIndex)| !self.node(graph).is_live();
        let failed = |(node, graph): (&ContextNode, ContextIndex)| {
            let (of, (run, _)) = (node.identity.step?, self.run_of(self.node(graph))?);
            Some(run.step(run.place(of.step)).status != StepStatus::Succeeded)
        };
        let stands = above().all(over) && above().filter_map(failed).any(|failed| failed);
        stands.then_some((UndoStatus::Dropped, Some(STANDS)))
    }

    /// The `undo` of the step that a context ran.
    pub(crate) fn undo_of(&self, run: ContextIndex) -> Option<&Undo> {
        let node = self.node(run);
        let (graph, group) = self.run_of(self.node(node.parent?))?;
        group.steps[graph.place(node.identity.step?.step) as usize].undo.as_ref()
    }
}
