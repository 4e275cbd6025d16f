//! Earlier runs of a graph, for the expected cost of the next run (G11). They are the newest
//! completed runs, read from their event logs.

use domain::{
    ChildId, Usd,
    graph::{EarlierRun, ObservedRun},
    wire::{ContextStatus, EndStatus, RunSummary, RunsQuery},
};
use trace::{ContextNode, Trace};

use crate::{Client, PAGE, Reply};

impl Client {
    /// The newest completed runs of a graph, at most `most`, newest first. A run belongs to the
    /// graph if its root has the same name and has steps.
    pub async fn earlier_runs(&self, root: &ChildId, most: usize) -> Reply<Vec<EarlierRun>> {
        let list = match self.runs(&RunsQuery { limit: PAGE, ..RunsQuery::default() }).await? {
            Ok(list) => list,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let is_of =
            |run: &&RunSummary| run.child_id == *root && matches!(run.status, ContextStatus::Ended(_));
        let mut found = Vec::new();
        for run in list.runs.iter().filter(is_of) {
            if found.len() == most {
                break;
            }
            // Its log may have expired.
            let Some(trace) = self.find(run.trace_id).await? else { continue };
            found.extend(observed(&trace));
        }
        Ok(Ok(found))
    }
}

/// The cost and time of a run. None if it has no graph, did not complete, or reused free results of
/// another run (G15).
fn observed(trace: &Trace) -> Option<EarlierRun> {
    let root = trace.root()?;
    root.graph.as_ref().filter(|_| trace.rerun_of().is_none())?;
    let end = root.end().filter(|end| end.status == EndStatus::Completed)?;
    let whole = ObservedRun {
        cost: root.budget.spent.cost_usd,
        took_ms: end.at.millis_since(root.identity.started_at),
    };
    let mut run = EarlierRun { whole, steps: Default::default() };
    let graphs = trace.contexts().iter().filter_map(|node| Some((node, trace.graph_outcome(node)?)));
    for (node, graph) in graphs {
        let steps = graph.steps.iter().zip(trace.step_paths(node));
        for (step, path) in steps.filter(|(step, _)| !step.contexts.is_empty()) {
            let contexts: Vec<&ContextNode> =
                step.contexts.iter().filter_map(|id| trace.context(id)).collect();
            let began = contexts.iter().map(|node| node.identity.started_at).min();
            let ended = contexts.iter().filter_map(|node| node.end()).map(|end| end.at).max();
            let took_ms = began.zip(ended).map_or(0, |(began, ended)| ended.millis_since(began));
            // A step of a group may have run more than once; the costs are added up.
            let known = run.steps.entry(path).or_insert(ObservedRun { cost: Usd::ZERO, took_ms: 0 });
            known.cost = Usd::from_nanos(known.cost.nanos().saturating_add(step.cost_usd.nanos()));
            known.took_ms = known.took_ms.saturating_add(took_ms);
        }
    }
    Some(run)
}
