//! Running a graph (G): which steps start and when, and how the end of a step affects its graph.

mod aggregate;
mod amends;
mod items;
mod mapped_groups;
mod order;
mod policies;
mod race_loop_fallback;
mod reports;

use domain::wire::{GraphVerdict, StepStatus};
use serde_json::{Value, json};
use world::{World, with};

pub(super) fn step(name: &str, more: Value) -> Value {
    with(json!({"id": name, "agent_id": "writer", "task_description": format!("do {name}")}), more)
}

/// The status of each step as a word, such as `succeeded`.
pub(super) fn statuses(world: &World, graph: &str) -> Vec<(String, String)> {
    let outcome = world.trace.graph_outcome(world.node(graph)).unwrap();
    let word = |status: StepStatus| serde_json::to_value(status).unwrap().as_str().unwrap().to_owned();
    outcome.steps.iter().map(|step| (step.id.to_string(), word(step.status))).collect()
}

pub(super) fn expect(world: &World, graph: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    assert_eq!(statuses(world, graph), expected);
}

pub(super) fn verdict(world: &World) -> GraphVerdict {
    world.trace.graph_outcome(world.trace.root().unwrap()).unwrap().verdict
}

pub(super) fn queued(world: &World) -> Vec<String> {
    world.queued().iter().map(ToString::to_string).collect()
}
