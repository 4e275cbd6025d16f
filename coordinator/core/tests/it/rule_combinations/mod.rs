//! Rules that meet in one run: pauses and graphs, races and money, humans and clocks, loops and old values.

mod clocks;
mod graphs;
mod money;
mod pause_and_raise;
mod store;

use domain::wire::GraphVerdict;
use serde_json::{Value, json};
use world::{World, with};

pub(super) fn step(name: &str, more: Value) -> Value {
    with(json!({"id": name, "agent_id": "researcher", "task_description": format!("do {name}")}), more)
}

/// A graph on ten cents that pauses when they are spent.
pub(super) fn pausing(steps: Value, more: Value) -> World {
    World::with_graph(with(json!({"max_cost_usd": 0.1, "on_exhausted": "pause", "steps": steps}), more))
}

pub(super) fn verdict(world: &World) -> GraphVerdict {
    world.trace.graph_outcome(world.trace.root().unwrap()).unwrap().verdict
}
