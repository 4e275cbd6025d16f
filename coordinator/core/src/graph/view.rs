//! Reading a running graph: the run of a context with its plan, and the result of a step.

use domain::{
    Json, StepPath,
    graph::{Group, Plan},
    wire::{EndStatus, Payload, StepStatus, Text},
};
use serde_json::Value;

use crate::{ContextIndex, ContextNode, End, GraphRun, Ran, StepRun, Trace};

pub(crate) fn status_of(end: EndStatus) -> StepStatus {
    match end {
        EndStatus::Completed => StepStatus::Succeeded,
        EndStatus::Failed | EndStatus::Rejected => StepStatus::Failed,
        EndStatus::Cancelled => StepStatus::Cancelled,
        EndStatus::TimedOut => StepStatus::TimedOut,
        EndStatus::Aborted => StepStatus::Aborted,
    }
}

/// The result of a step: the list of a `for_each`, otherwise the result of its last context.
pub(super) fn result_of(trace: &Trace, step: &StepRun) -> Option<Json> {
    let ends = || step.contexts.iter().map(|context| trace.node(*context));
    let completed =
        |node: &ContextNode| node.end().filter(|end| end.status == EndStatus::Completed).map(value_of);
    let Some(items) = &step.items else { return ends().next_back().and_then(completed) };
    let mut list = vec![Value::Null; items.total as usize];
    for node in ends() {
        if let (Some(Ran::Item(number)), Some(value)) = (node.identity.step.map(|of| of.ran), completed(node))
        {
            list[number as usize] = value.value().clone();
        }
    }
    Some(Json::from(Value::Array(list)))
}

pub(super) fn value_of(end: &End) -> Json {
    end.details.result.as_ref().map_or_else(Json::null, Payload::to_value)
}

impl Trace {
    /// The graph that a context runs, with its group of the plan.
    pub(crate) fn run_of<'a>(&'a self, node: &'a ContextNode) -> Option<(&'a GraphRun, &'a Group)> {
        let run = node.graph.as_deref()?;
        Some((run, self.plans[run.plan as usize].group(run.group)))
    }

    /// The steps of the graph that a context runs; `None` for a context that runs an agent.
    pub fn plan_of<'a>(&'a self, node: &'a ContextNode) -> Option<&'a Group> {
        self.run_of(node).map(|(_, group)| group)
    }

    /// The whole plan, of which a context runs one group; `None` for a context that runs an agent.
    pub fn whole_plan<'a>(&'a self, node: &'a ContextNode) -> Option<&'a Plan> {
        node.graph.as_deref().map(|run| &*self.plans[run.plan as usize])
    }

    /// The name and version of the stored graph that a step used, if it used one by name: `facts@2`
    /// (G18).
    pub fn used_as(&self, node: &ContextNode) -> Option<Text> {
        self.run_of(node)?.1.used.as_ref()?.name.clone()
    }

    /// The paths of the steps of a graph or group, in the order of their reports; empty for a
    /// context that runs an agent.
    pub fn step_paths(&self, node: &ContextNode) -> Vec<StepPath> {
        let steps = self.run_of(node).map(|(_, group)| group.steps.as_slice()).unwrap_or_default();
        steps.iter().map(|step| step.path.clone()).collect()
    }

    pub(super) fn expect_run(&self, graph: ContextIndex) -> (&GraphRun, &Group) {
        self.run_of(self.node(graph)).expect("asked of contexts that run a graph")
    }
}
