//! Timeouts while a question to a human is open.

use domain::wire::Progress;
use serde_json::json;
use world::World;

use super::step;

#[test]
fn g6_g7_gathering_does_not_time_out_while_a_human_is_asked() {
    let steps = json!([step("a", json!({})), step("b", json!({}))]);
    let mut world = World::with_graph(
        json!({"mode": "parallel", "aggregate": {"timeout_ms": 10_000}, "agent_id": "writer", "steps": steps}),
    );
    world.run("a", "A");
    let b = world.claim("b");
    world.ask_human(&b, "which?").unwrap();
    world.pass(3_600_000);
    assert_eq!(world.status("b"), "input_required");
    world.answer("b", 1, "that").unwrap();
    world.pass(9_999);
    assert_eq!(world.status("b"), "working");
    world.pass(1);
    assert_eq!(world.status("b"), "timed_out");
}

#[test]
fn g7_a_stopped_timeout_is_stopped_for_siblings_too() {
    let steps = json!([step("a", json!({"timeout_ms": 0})), step("b", json!({"timeout_ms": 0}))]);
    let mut world = World::with_graph(json!({"mode": "parallel", "timeout_ms": 100_000, "steps": steps}));
    let a = world.claim("a");
    world.ask_human(&a, "?").unwrap();
    let b = world.claim("b");
    for _ in 0..20 {
        world.pass(9_000);
        world.tick(&b, Progress::default()).unwrap();
    }
    assert_eq!(world.status("b"), "working");
}
