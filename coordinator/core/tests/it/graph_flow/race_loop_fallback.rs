//! Races, loops, fallbacks and retries of steps.

use domain::wire::StepStatus;
use serde_json::json;
use world::{World, cents, id};

use super::{expect, queued, step};

#[test]
fn g1_the_first_success_wins_a_race_and_the_rest_is_cancelled() {
    let race = || {
        World::with_graph(json!({"steps": [
            {"id": "r", "race": true, "output_to": "won", "steps": [step("a", json!({})), step("b", json!({})), step("c", json!({}))]},
            step("after", json!({"input_from": ["won"]})),
        ]}))
    };
    let mut world = race();
    assert_eq!(queued(&world), ["a", "b", "c"]);
    let slow = world.claim("c");
    world.hold(&slow, "c1", cents(3)).unwrap();
    world.break_it("a");
    world.run("b", "B");
    expect(&world, "r", &[("a", "failed"), ("b", "succeeded"), ("c", "cancelled")]);
    let work = world.work(&id("after")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"won": "B"}));
    world.run("after", "ok");
    assert_eq!(world.status("graph"), "completed");
    world.rest();

    let mut world = race();
    for name in ["a", "b", "c"] {
        world.break_it(name);
    }
    assert_eq!(["r", "graph"].map(|c| world.status(c)), ["failed", "failed"]);
}

#[test]
fn g1_a_loop_runs_until_its_condition_holds_or_its_bound_is_reached() {
    let graph = || {
        World::with_graph(json!({"steps": [
            {"id": "polish", "loop": {"max_rounds": 3, "until": "outputs.review.good"}, "steps": [
                step("author", json!({"input_from": ["review"], "output_to": "draft"})),
                step("critic", json!({"input_from": ["draft"], "output_to": "review"})),
            ]},
            step("publish", json!({"input_from": ["draft"]})),
        ]}))
    };
    let round = |world: &mut World, good: bool| {
        let author = queued(world)[0].clone();
        let inputs = serde_json::to_value(world.work(&id(&author)).unwrap().inputs).unwrap();
        world.run(&author, format!("draft of {author}"));
        let critic = queued(world)[0].clone();
        world.run(&critic, json!({"good": good}));
        inputs
    };
    let mut world = graph();
    assert_eq!(round(&mut world, false), json!({"review": null}), "the first round has no review yet");
    assert_eq!(round(&mut world, true), json!({"review": {"good": false}}));
    assert_eq!(queued(&world), ["publish"]);
    world.run("publish", "ok");
    world.rest();

    let mut world = graph();
    for _ in 0..3 {
        round(&mut world, false);
    }
    assert_eq!(queued(&world), ["publish"], "the result of the last round is used");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(report.steps[0].reason.as_deref(), Some("ended at its limit of 3 rounds"));
    assert_eq!(report.steps[0].contexts.len(), 3);
}

#[test]
fn g1_a_single_step_may_loop_over_its_own_output() {
    let mut world = World::with_graph(json!({"steps": [
        step("grow", json!({"input_from": ["n"], "output_to": "n", "loop": {"max_rounds": 5, "until": "outputs.n >= 2"}})),
    ]}));
    for (name, value) in [("grow-r1", 0), ("grow-r2", 1), ("grow-r3", 2)] {
        world.run(name, value);
    }
    assert_eq!(world.status("graph"), "completed");
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap(), json!({"n": 2}));
}

#[test]
fn g1_a_fallback_tries_when_the_step_has_failed_for_good() {
    let mut world = World::with_graph(json!({"steps": [
        step("main", json!({"retries": 1, "output_to": "x", "fallback": {"agent_id": "editor", "task_description": "try harder"}})),
        step("last", json!({"input_from": ["x"]})),
    ]}));
    let lease = world.claim("main");
    world.fail(&lease, true).unwrap();
    world.pass(500);
    let lease = world.claim("main");
    world.fail(&lease, true).unwrap();
    assert_eq!(queued(&world), ["main-fallback"]);
    let work = world.work(&id("main-fallback")).unwrap();
    assert_eq!((work.agent.agent_id.as_str(), work.goal.as_str()), ("editor", "try harder"));
    world.run("main-fallback", "saved");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert!(report.steps[0].fallback && report.steps[0].status == StepStatus::Succeeded);
    world.run("last", "ok");
    world.rest();

    let mut world = World::with_graph(json!({"steps": [step("main", json!({"fallback": "editor"}))]}));
    world.break_it("main");
    world.break_it("main-fallback");
    assert_eq!(world.status("graph"), "failed");
}

#[test]
fn g1_a_result_that_does_not_fit_its_schema_is_tried_again() {
    let schema =
        json!({"type": "object", "required": ["score"], "properties": {"score": {"type": "number"}}});
    let mut world =
        World::with_graph(json!({"steps": [step("a", json!({"retries": 1, "output_schema": schema}))]}));
    world.run("a", "no object");
    world.pass(500);
    world.run("a", json!({"score": "high"}));
    let reason = world.trace.graph_outcome(world.node("graph")).unwrap().steps[0].reason.clone().unwrap();
    assert!(reason.contains("high"), "{reason}");
    assert_eq!(world.status("graph"), "failed");

    let mut world =
        World::with_graph(json!({"steps": [step("a", json!({"output_schema": {"type": "number"}}))]}));
    world.run("a", 7);
    assert_eq!(world.status("graph"), "completed");
}
