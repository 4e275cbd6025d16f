//! The effect of a failed, cancelled or slow step on its graph (G4), and the reports of steps (G5).

use domain::wire::GraphVerdict;
use serde_json::{Value, json};
use world::{World, cents, id};

use super::{expect, step, verdict};

fn five(policy: &str) -> World {
    World::with_graph(json!({"mode": "parallel", "on_partial_success": policy, "steps": [
        step("good", json!({"output_to": "g"})),
        step("bad", json!({"output_to": "b"})),
        step("needs-good", json!({"input_from": ["g"]})),
        step("needs-bad", json!({"input_from": ["b"]})),
        step("slow", json!({})),
    ]}))
}

#[test]
fn g4_fail_cancels_what_runs_and_skips_the_rest() {
    let mut world = five("fail");
    let slow = world.claim("slow");
    world.hold(&slow, "c1", cents(1)).unwrap();
    world.break_it("bad");
    expect(
        &world,
        "graph",
        &[
            ("good", "cancelled"),
            ("bad", "failed"),
            ("needs-good", "skipped"),
            ("needs-bad", "skipped"),
            ("slow", "cancelled"),
        ],
    );
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("failed", GraphVerdict::Failed));
    world.rest();
}

#[test]
fn g4_continue_runs_everything_whose_inputs_exist_and_is_partial() {
    let mut world = five("continue");
    world.break_it("bad");
    for name in ["good", "slow", "needs-good"] {
        world.run(name, "ok");
    }
    expect(
        &world,
        "graph",
        &[
            ("good", "succeeded"),
            ("bad", "failed"),
            ("needs-good", "succeeded"),
            ("needs-bad", "skipped"),
            ("slow", "succeeded"),
        ],
    );
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Partial));
    world.rest();
}

#[test]
fn g4_best_effort_gives_null_for_missing_inputs_and_one_success_is_enough() {
    let mut world = five("best_effort");
    world.break_it("bad");
    let work = world.work(&id("needs-bad")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"b": null}));
    for name in ["good", "slow", "needs-good"] {
        world.break_it_if_queued(name);
    }
    world.run("needs-bad", "made do");
    while let Some(next) = world.queued().first().cloned() {
        world.break_it(next.as_str());
    }
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Succeeded));
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(report.failed.len(), 4, "the report still names the failed steps");
    world.rest();
}

trait BreakIfQueued {
    fn break_it_if_queued(&mut self, name: &str);
}

impl BreakIfQueued for World {
    fn break_it_if_queued(&mut self, name: &str) {
        if self.queued().contains(&id(name)) {
            self.break_it(name);
        }
    }
}

#[test]
fn g4_nothing_succeeded_is_a_failure_under_every_policy() {
    for policy in ["fail", "continue", "best_effort"] {
        let mut world =
            World::with_graph(json!({"on_partial_success": policy, "steps": [step("a", json!({}))]}));
        world.break_it("a");
        assert_eq!(world.status("graph"), "failed", "{policy}");
    }
}

#[test]
fn g4_a_step_that_is_not_required_never_counts_as_failure() {
    let mut world = World::with_graph(json!({"steps": [
        step("extra", json!({"required": false})),
        step("main", json!({})),
    ]}));
    world.break_it("extra");
    world.run("main", "ok");
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Succeeded));
    world.rest();
}

#[test]
fn g4_a_failed_item_of_a_step_that_is_not_required_leaves_its_siblings() {
    let mut world = World::with_graph(json!({"inputs": {"topics": ["a", "b"]}, "steps": [
        step("each", json!({"for_each": "topics", "required": false, "output_to": "found"})),
    ]}));
    world.break_it("each-1");
    assert_eq!(world.status("each-2"), "submitted");
    world.run("each-2", "ok");
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Partial));
    world.rest();
}

#[test]
fn g4_seven_of_ten_succeed() {
    for (policy, status, expected) in [
        ("continue", "completed", GraphVerdict::Partial),
        ("best_effort", "completed", GraphVerdict::Succeeded),
        ("fail", "failed", GraphVerdict::Failed),
    ] {
        let steps: Vec<Value> =
            (0..10).map(|n| step(&format!("s{n}"), json!({"output_to": format!("o{n}")}))).collect();
        let mut world =
            World::with_graph(json!({"mode": "parallel", "on_partial_success": policy, "steps": steps}));
        for n in 0..7 {
            world.run(&format!("s{n}"), n);
        }
        for n in 7..10 {
            world.break_it_if_queued(&format!("s{n}"));
        }
        assert_eq!((world.status("graph").as_str(), verdict(&world)), (status, expected), "{policy}");
        let report = world.trace.graph_outcome(world.node("graph")).unwrap();
        assert_eq!((report.succeeded.len(), report.failed.len()), (7, 3), "{policy}");
        assert_eq!(report.outputs.len(), 7);
        world.rest();
    }
}

#[test]
fn g5_every_step_is_reported_with_cost_attempts_and_attribution() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "steps": [step("a", json!({})), step("b", json!({}))]}));
    let a = world.claim("a");
    world.pay(&a, "c1", cents(7)).unwrap();
    world.pass(10_000);
    let again = world.claim("a");
    world.pay(&again, "c2", cents(2)).unwrap();
    world.complete(&again, "ok").unwrap();
    world.run("b", "ok");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    let a = &report.steps[0];
    assert_eq!((a.cost_usd, a.attempts, a.contexts.as_slice()), (cents(9).cost_usd, 2, [id("a")].as_slice()));
    assert_eq!(a.agent_id.as_ref().unwrap().as_str(), "writer");
    assert_eq!(report.trace_id, world.trace.id());
    assert_eq!(world.spent_cents("graph"), 9);
}

#[test]
fn g1_a_steps_timeout_is_its_own() {
    let mut world =
        World::with_graph(json!({"on_partial_success": "continue", "mode": "parallel", "steps": [
            step("slow", json!({"timeout_ms": 1000})), step("other", json!({})),
        ]}));
    world.claim("slow");
    world.pass(1000);
    expect(&world, "graph", &[("slow", "timed_out"), ("other", "running")]);
    world.run("other", "ok");
    assert_eq!(verdict(&world), GraphVerdict::Partial);
}

#[test]
fn g8_a_cancelled_step_counts_as_a_failure_and_gets_no_fallback() {
    let mut world =
        World::with_graph(json!({"steps": [step("a", json!({"fallback": "editor"})), step("b", json!({}))]}));
    world.cancel(Some("a")).unwrap();
    expect(&world, "graph", &[("a", "cancelled"), ("b", "skipped")]);
    assert_eq!(world.status("graph"), "failed");
    world.rest();
}
