//! The result of a graph (G5): every step with its own status, cost, attempts and attribution.

use std::collections::BTreeMap;

use shared::{
    Amount, ContextKey, Json,
    graph::Body,
    wire::{EndStatus, GraphOutcome, GraphVerdict, StepReport, StepStatus},
};

use super::conclude::verdict;
use crate::trace::{ContextIndex, ContextNode, Ran, Trace, context_store::full_key, graph_run::failed};

impl Trace {
    /// The outcome of a graph's context, at any moment; none for a context that runs an agent.
    pub fn graph_outcome(&self, node: &ContextNode) -> Option<GraphOutcome> {
        let (run, group) = self.run_of(node)?;
        let steps: Vec<StepReport> = run
            .steps
            .iter()
            .zip(&group.steps)
            .map(|(run, step)| {
                let (spent, attempts) = self.used_by(&run.contexts);
                let ran = |context: &ContextIndex| self.node(*context).step.map(|of| of.ran);
                StepReport {
                    id: step.id.clone(),
                    agent_id: match &step.body {
                        Body::Agent { agent_id, .. } => Some(agent_id.clone()),
                        Body::Group(_) => None,
                    },
                    status: run.status,
                    reason: run.reason.as_deref().map(str::to_owned),
                    partial: run.partial,
                    fallback: run.contexts.last().and_then(ran) == Some(Ran::Fallback),
                    contexts: run.contexts.iter().map(|context| self.node(*context).id.clone()).collect(),
                    taken_from: run
                        .contexts
                        .iter()
                        .filter_map(|context| self.node(*context).taken.clone())
                        .collect(),
                    cost_usd: spent.cost_usd,
                    tokens: spent.tokens,
                    attempts,
                }
            })
            .collect();
        let ids = |which: fn(StepStatus) -> bool| {
            steps.iter().filter(|step| which(step.status)).map(|step| step.id.clone()).collect()
        };
        Some(GraphOutcome {
            // A stopped graph did not succeed, whatever its steps had done by then.
            verdict: match node.end() {
                Some(end) if end.status != EndStatus::Completed => GraphVerdict::Failed,
                Some(_) | None => verdict(run, group),
            },
            succeeded: ids(|status| status == StepStatus::Succeeded),
            failed: ids(failed),
            skipped: ids(|status| status == StepStatus::Skipped),
            outputs: self.outputs_of(node),
            trace_id: self.id(),
            steps,
        })
    }

    /// What the steps of a graph wrote, inner groups included, by their short names. After the root's end
    /// the values come from its outcome: the store is cleared.
    pub(super) fn outputs_of(&self, node: &ContextNode) -> BTreeMap<ContextKey, Json> {
        let Some((run, _)) = self.run_of(node) else { return BTreeMap::new() };
        let plan = &self.plans[run.plan as usize];
        let within = |mut group: u32| loop {
            if group == run.group {
                return true;
            }
            match plan.group(group).owner {
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
