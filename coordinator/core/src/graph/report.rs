//! The result of a graph (G5): every step with its own status, result, cost, attempts and
//! attribution, under every policy. The report is derived: each result is stored once, in the
//! context that produced it.

use std::collections::BTreeMap;

use domain::{
    Amount, ContextKey, Json, StepId,
    graph::{Body, Group, GroupIndex, Step},
    wire::{
        EndStatus, GraphAnswer, GraphOutcome, GraphVerdict, ItemCounts, StepFailure, StepReport, StepStatus,
        Text, UndoStatus,
    },
};

use super::{
    conclude::verdict,
    results::{ReportedResult, Results},
};
use crate::{
    ContextIndex, ContextNode, GraphRun, Ran, StepRun, Trace, context_store::full_key, graph_run::failed,
};

/// The most failed contexts that a report names for one step.
const MAX_FAILURES: usize = 16;

impl Trace {
    /// The outcome of a graph's context, at any moment; `None` for a context that runs an agent.
    pub fn graph_outcome(&self, node: &ContextNode) -> Option<GraphOutcome> {
        let (run, group) = self.run_of(node)?;
        let steps = self.step_reports(node, run, group, &mut Results::new(self));
        let ids = |which: fn(StepStatus) -> bool| {
            steps.iter().filter(|step| which(step.status)).map(|step| step.id.clone()).collect()
        };
        let (mut undone, mut undo_failed) = (Vec::new(), Vec::new());
        undos(&steps, &mut undone, &mut undo_failed);
        Some(GraphOutcome {
            verdict: final_verdict(node, run, group),
            succeeded: ids(|status| status == StepStatus::Succeeded),
            failed: ids(failed),
            skipped: ids(|status| status == StepStatus::Skipped),
            undone,
            undo_failed,
            outputs: self.outputs_of(node),
            trace_id: self.id(),
            steps,
        })
    }

    /// The verdict on a graph at this moment; `None` for a context that runs an agent.
    pub fn graph_verdict(&self, node: &ContextNode) -> Option<GraphVerdict> {
        self.run_of(node).map(|(run, group)| final_verdict(node, run, group))
    }

    /// The answer that the agent that ran a graph gets once the graph has ended (G10).
    pub(crate) fn graph_answer(&self, node: &ContextNode) -> Option<GraphAnswer> {
        let (run, group) = self.run_of(node)?;
        let end = node.end()?;
        let mut results = Results::new(self);
        let result = results.payload(end.details.result.as_ref());
        let steps = self.step_reports(node, run, group, &mut results);
        let combined = group.aggregate.is_some() && end.status == EndStatus::Completed;
        let answer = GraphAnswer::new(final_verdict(node, run, group), steps, combined);
        let ReportedResult { inline, object, left_out_bytes } = result;
        Some(GraphAnswer { result: inline, result_object: object, result_bytes: left_out_bytes, ..answer })
    }

    fn step_reports(
        &self,
        node: &ContextNode,
        run: &GraphRun,
        group: &Group,
        results: &mut Results<'_>,
    ) -> Vec<StepReport> {
        let steps = (0u32..).zip(run.steps.iter().zip(&group.steps));
        let report = |(number, (ran, step))| {
            let won = run.progress.winner == Some(number) && group.aggregate.is_none();
            self.step_report(node, ran, step, won, results)
        };
        steps.map(report).collect()
    }

    fn step_report(
        &self,
        node: &ContextNode,
        run: &StepRun,
        step: &Step,
        won: bool,
        results: &mut Results<'_>,
    ) -> StepReport {
        let (spent, attempts) = self.used_by(&run.contexts);
        let last = run.contexts.last().map(|context| self.node(*context));
        // The items of a group are reported by the list of their results.
        let inner = last.filter(|_| run.items.is_none()).and_then(|node| Some((node, self.run_of(node)?)));
        // The results of a plain group are the results of its steps. The winner's result is the
        // graph's own. The steps of a group that was taken over (G15) have no result here.
        let own = |(node, (_, group)): &(&ContextNode, (&GraphRun, &Group))| {
            group.race || group.aggregate.is_some() || group.output.is_some() || node.identity.taken.is_some()
        };
        let shown = !won && inner.as_ref().is_none_or(own);
        let result = if shown { results.take(node, run, step) } else { Default::default() };
        StepReport {
            id: step.id.clone(),
            agent_id: match &step.body {
                Body::Agent { agent_id, .. } => Some(agent_id.clone()),
                Body::Group(_) | Body::Approve(_) => None,
            },
            uses: match step.body {
                Body::Group(inner) => self.used_name(node, inner),
                Body::Agent { .. } | Body::Approve(_) => None,
            },
            status: run.status,
            reason: run.reason.as_deref().map(str::to_owned),
            partial: run.partial,
            fallback: last.and_then(|node| node.identity.step).map(|of| of.ran) == Some(Ran::Fallback),
            contexts: run.contexts.iter().map(|context| self.node(*context).id.clone()).collect(),
            taken_from: run.contexts.iter().filter_map(|at| self.node(*at).identity.taken.clone()).collect(),
            cost_usd: spent.cost_usd,
            tokens: spent.tokens,
            attempts,
            answered_by: last.filter(|node| node.is_approval()).and_then(answered_by),
            output_to: step.output_to.clone(),
            result: result.inline,
            result_object: result.object,
            result_bytes: result.left_out_bytes,
            items: run.items.map(|items| ItemCounts { total: items.total, succeeded: items.succeeded }),
            failures: self.failures(run),
            undo: self.undo_report(run),
            steps: match inner {
                Some((node, (run, group))) => self.step_reports(node, run, group, results),
                None => Vec::new(),
            },
        }
    }

    /// The name of the stored graph that a step used, if it used one by name (G18).
    fn used_name(&self, node: &ContextNode, group: GroupIndex) -> Option<Text> {
        let run = node.graph.as_deref()?;
        self.plans[run.plan as usize].group(group).used.as_ref()?.name.clone()
    }

    /// The first contexts of a step that did not succeed. Nothing is listed for a step with one
    /// context: the step has its reason.
    fn failures(&self, run: &StepRun) -> Vec<StepFailure> {
        if run.contexts.len() < 2 {
            return Vec::new();
        }
        let ended = run.contexts.iter().map(|context| self.node(*context));
        let ended = ended.filter_map(|node| Some((node, node.end()?)));
        let failed = ended.filter(|(_, end)| end.status != EndStatus::Completed).map(|(node, end)| {
            let reason = end.why().map(str::to_owned);
            StepFailure { child_id: node.id.clone(), status: end.status, reason }
        });
        failed.take(MAX_FAILURES).collect()
    }

    /// The outputs of the steps of a graph, including inner groups, by their short names. After the
    /// root's end they come from its outcome, because the store is cleared then.
    pub(super) fn outputs_of(&self, node: &ContextNode) -> BTreeMap<ContextKey, Json> {
        let Some((run, _)) = self.run_of(node) else { return BTreeMap::new() };
        let plan = &self.plans[run.plan as usize];
        let within = |mut group: u32| loop {
            if group == run.group {
                return true;
            }
            match plan.group(group).owner.filter(|_| plan.group(group).used.is_none()) {
                Some((outer, _)) => group = outer,
                None => return false,
            }
        };
        let groups = (0u32..).zip(plan.groups()).filter(|(number, _)| within(*number));
        let keys = groups.flat_map(|(_, group)| &group.steps).filter_map(|step| step.output_to.as_ref());
        keys.filter_map(|key| {
            let full = full_key(self, node, key);
            let live = self.values().get(&full).map(|entry| &entry.value);
            Some((key.clone(), live.or_else(|| self.outputs().get(&full))?.clone()))
        })
        .collect()
    }

    /// The total cost of contexts, and their attempts.
    pub(super) fn used_by(&self, contexts: &[ContextIndex]) -> (Amount, u32) {
        let add = |(sum, attempts): (Amount, u32), node: &ContextNode| {
            let sum = sum.checked_add(node.budget.spent).expect("no more than the root has spent");
            (sum, attempts + node.attempt())
        };
        contexts.iter().map(|context| self.node(*context)).fold((Amount::ZERO, 0), add)
    }
}

/// Sorts the steps of a report into those that were undone and those whose undo failed or was
/// dropped.
fn undos(steps: &[StepReport], undone: &mut Vec<StepId>, failed: &mut Vec<StepId>) {
    for step in steps {
        match step.undo.as_ref().map(|undo| undo.status) {
            Some(UndoStatus::Undone) => undone.push(step.id.clone()),
            Some(UndoStatus::Failed | UndoStatus::Dropped) => failed.push(step.id.clone()),
            Some(UndoStatus::Pending | UndoStatus::Running) | None => {}
        }
        undos(&step.steps, undone, failed);
    }
}

/// A graph that was stopped has failed, even if all its steps had succeeded.
fn final_verdict(node: &ContextNode, run: &GraphRun, group: &Group) -> GraphVerdict {
    match node.end() {
        Some(end) if end.status != EndStatus::Completed => GraphVerdict::Failed,
        Some(_) | None => verdict(run, group),
    }
}

/// The sender of the last answer that a context got.
fn answered_by(node: &ContextNode) -> Option<Text> {
    node.answers.last()?.by.clone()
}
