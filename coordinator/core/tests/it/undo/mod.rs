//! Undo (G14): the succeeded steps of a failed graph are undone in reverse order, paid from what
//! was held for them.

mod bounds;
mod features;
mod money;
mod order;
mod values;

use domain::wire::{UndoReport, UndoStatus};
use serde_json::{Value, json};
use world::{World, with};

use super::graph_flow::step;

/// A step with an undo by `editor` that may cost ten cents.
fn undoable(name: &str, more: Value) -> Value {
    step(name, with(json!({"undo": {"agent_id": "editor", "max_cost_usd": 0.1}}), more))
}

/// Three steps in sequence, of which the first two can be undone.
fn trip() -> Value {
    json!({"mode": "sequential", "max_cost_usd": 1, "inputs": {"city": "Oslo"}, "steps": [
        undoable("flight", json!({"input_from": ["city"], "output_to": "seat"})),
        undoable("hotel", json!({"input_from": ["city", "seat"], "output_to": "room"})),
        step("pay", json!({"input_from": ["room"]})),
    ]})
}

/// The trip, after its last step has failed.
fn broken_trip() -> World {
    let mut world = World::with_graph(trip());
    world.run("flight", "12A");
    world.run("hotel", "room 7");
    world.break_it("pay");
    world
}

/// The undo report of a step, at any depth.
fn report(world: &World, name: &str) -> Option<UndoReport> {
    let outcome = world.trace.graph_outcome(world.trace.root().unwrap()).unwrap();
    let mut open = outcome.steps;
    while let Some(step) = open.pop() {
        if step.id.as_str() == name {
            return step.undo;
        }
        open.extend(step.steps);
    }
    panic!("no step {name}")
}

fn undo_status(world: &World, name: &str) -> Option<UndoStatus> {
    report(world, name).map(|undo| undo.status)
}

fn held_cents(world: &World, child: &str) -> u64 {
    world.node(child).budget.held.cost_usd.nanos() / 10_000_000
}
