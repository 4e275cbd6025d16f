//! Fallbacks, races, synthesis, schemas and limits of graphs combined with other rules.

use domain::{
    Usd,
    wire::{FailureKind, GraphVerdict, StepStatus, Verdict},
};
use serde_json::{Value, json};
use trace::Refusal;
use world::{World, cents, id};

use super::{step, verdict};

#[test]
fn l_a_graph_that_may_have_no_children_is_refused() {
    let mut world = World::new();
    let refused = world
        .submit_graph(json!({"limits": {"max_children": 0}, "steps": [step("a", json!({}))]}))
        .unwrap_err();
    let Refusal::MaxChildren { limit, .. } = refused else { panic!("{refused}") };
    let said = "max_children = 0 (the submission); raise `limits.max_children` in the submission";
    assert_eq!(limit.to_string(), said);
}

#[test]
fn g1_a_fallback_keeps_its_place_when_places_are_few() {
    let mut world = World::new();
    world.settings.limits.max_children = 2;
    let fallback = json!({"agent_id": "writer", "task_description": "instead"});
    world
        .submit_graph(json!({"mode": "parallel", "on_partial_success": "continue", "steps": [
            step("a", json!({"timeout_ms": 1000})),
            {"id": "i", "on_partial_success": "fail", "fallback": fallback, "steps": [step("z", json!({"timeout_ms": 1000}))]},
            step("c", json!({})),
            step("d", json!({})),
        ]}))
        .unwrap();
    for id in ["a", "z"] {
        world.claim(id);
    }
    world.pass(1000);
    while let Some(next) = world.queued().first().cloned() {
        world.run(next.as_str(), "ok");
    }
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert!(
        report.steps[1].fallback && report.steps[1].status == StepStatus::Succeeded,
        "{:?}",
        report.steps[1]
    );
    world.rest();
}

#[test]
fn g10_a_result_that_was_handed_over_must_fit_the_schema_too() {
    let mut world = World::with_root(json!({"output_schema": {"type": "object"}}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.report(&root, Verdict::Waiting { children: vec![id("a")], hand_over: true }).unwrap();
    world.run("a", "a string");
    assert_eq!(
        world.node("root").end().unwrap().details.error.as_ref().unwrap().kind,
        FailureKind::OutputSchema
    );
}

#[test]
fn g5_a_refused_fallback_leaves_the_status_the_step_had() {
    let mut world =
        World::with_graph(json!({"max_cost_usd": 0.1, "on_partial_success": "continue", "steps": [
            step("a", json!({"fallback": "writer"})),
        ]}));
    let a = world.claim("a");
    world.pay(&a, "c", cents(10)).unwrap();
    world.fail(&a, false).unwrap();
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(report.steps[0].status, StepStatus::Aborted);
    assert!(
        report.steps[0].reason.as_ref().unwrap().contains("its fallback was refused"),
        "{:?}",
        report.steps[0]
    );
}

#[test]
fn g3_until_may_ask_about_the_steps_of_the_round() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "loop": {"max_rounds": 3, "until": "steps.c.status == \"succeeded\""}, "steps": [step("c", json!({}))]},
    ]}));
    world.run("c", "ok");
    assert_eq!(world.status("graph"), "completed");
    assert_eq!(world.trace.contexts().len(), 3, "one round was enough");
}

#[test]
fn g6_the_profile_of_the_synthesis_does_not_govern_the_steps() {
    let mut world = World::new();
    world
        .agent(json!({"agent_id": "writer", "tools": ["fs.read"], "timeout_ms": 1000, "max_cost_usd": 0.01}));
    let steps = json!([step("a", json!({"tools": ["web:search"]})), {"id": "b", "agent_id": "writer", "task_description": "Name it"}]);
    world
        .submit_graph(json!({"mode": "parallel", "task_description": "Name it", "aggregate": {}, "agent_id": "writer", "steps": steps}))
        .unwrap();
    assert_eq!(world.node("graph").budget.ceilings.limit.cost_usd, Usd::from_cents(100));
    assert_eq!(world.trace.deadline(world.node("graph")), None);
    world.run("a", "A");
    world.run("b", "B");
    let tools = world.work(&id("graph")).unwrap().tools.unwrap();
    assert_eq!(tools.iter().map(ToString::to_string).collect::<Vec<_>>(), ["fs.read"]);
}

#[test]
fn g5_a_stopped_step_did_not_succeed() {
    let mut world = World::new();
    world.cancel(None).unwrap();
    world.submit_graph(json!({"steps": [step("a", json!({}))]})).unwrap();
    assert_eq!(verdict(&world), GraphVerdict::Failed);

    let graph = json!({"timeout_ms": 1000, "on_partial_success": "best_effort", "steps": [step("a", json!({})), step("b", json!({}))]});
    let mut world = World::with_graph(graph);
    world.run("a", "ok");
    world.pass(1000);
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("timed_out", GraphVerdict::Failed));

    let group = json!({"id": "g", "on_partial_success": "continue", "steps": [step("a", json!({})), step("b", json!({}))]});
    let mut world = World::with_graph(json!({"race": true, "steps": [group]}));
    world.break_it("a");
    world.run("b", "B");
    assert_eq!(verdict(&world), GraphVerdict::Partial, "a race won in part");
}

#[test]
fn i6_a_thread_id_is_handed_down_unchanged() {
    let mut world = World::with_root(json!({"thread_id": "t1"}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b", "thread_id": "another"})).unwrap();
    for child in ["a", "b"] {
        assert_eq!(world.work(&id(child)).unwrap().thread_id.unwrap().as_str(), "t1");
    }
}

#[test]
fn g2_a_thousand_unknown_keys_are_refused_in_a_moment() {
    let steps: Vec<Value> = (0..5_000)
        .map(|n| step(&format!("s{n}"), json!({"input_from": [format!("misspelt-key-number-{n}")], "output_to": format!("correct-key-number-{n}")})))
        .collect();
    let refused =
        World::new().submit_graph(json!({"mode": "parallel", "steps": steps})).unwrap_err().to_string();
    assert!(refused.contains("and 4950 more"), "{}", &refused[refused.len() - 100..]);
}
