//! The shared store and graphs: which values are read, written and passed on.

use domain::{Json, wire::StepStatus};
use serde_json::{Value, json};
use trace::{Command, Refusal};
use world::{World, id, with};

use super::step;

#[test]
fn l_the_values_that_a_graph_brings_into_the_store_are_bounded() {
    let mut world = World::new();
    world.settings.limits.max_context_value_bytes = 1000;
    world.settings.limits.max_context_store_bytes = 1500;
    world.submit(json!({"goal": "g", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    let mut run = |name: &str, size: usize| {
        let inputs = json!({"x": "y".repeat(size)});
        world.spawn_graph(
            &root,
            json!({"child_id": name, "inputs": inputs, "steps": [step(&format!("s-{name}"), json!({}))]}),
        )
    };
    let limit = |refused: Refusal| match refused {
        Refusal::TooLarge { limit, .. } => limit.name,
        other => panic!("{other}"),
    };
    assert_eq!(limit(run("large", 1000).unwrap_err()), "max_context_value_bytes");
    run("one", 900).unwrap();
    assert_eq!(limit(run("two", 900).unwrap_err()), "max_context_store_bytes");
}

#[test]
fn g1_results_of_groups_and_races_can_be_read() {
    let items = json!({"inputs": {"list": [1, 2]}, "steps": [{"id": "g", "output_to": "out", "steps": [step("e", json!({"for_each": "list"}))]}]});
    let mut world = World::with_graph(items);
    world.run("e-1", "A");
    world.run("e-2", "B");
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap()["out"], json!({"e": ["A", "B"]}));

    let group = |name: &str| json!({"id": format!("g-{name}"), "steps": [step(name, json!({}))]});
    let mut world = World::with_graph(json!({"race": true, "steps": [group("a"), group("b")]}));
    world.run("a", "A");
    let outcome = serde_json::to_value(world.trace.outcome(&id("graph")).unwrap()).unwrap();
    assert_eq!(outcome["result"], json!({"a": "A"}));
}

#[test]
fn g10_an_agent_gets_what_its_pipeline_wrote() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world
        .spawn_graph(&root, json!({"child_id": "p", "steps": [step("a", json!({"output_to": "x"}))]}))
        .unwrap();
    world.wait(&root, &["p"]).unwrap();
    world.run("a", "found");
    let work = world.work(&id("root")).unwrap();
    let children = serde_json::to_value(&work.children).unwrap();
    let step = &children[0]["result"]["inline"]["steps"][0];
    assert_eq!((&step["output_to"], &step["result"]), (&json!("x"), &json!("found")));
}

#[test]
fn c_a_spawned_agents_result_is_written_and_what_it_did_not_complete_is_not() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    for child in ["good", "own", "bad"] {
        world.spawn(&root, json!({"goal": child, "child_id": child, "output_to": child})).unwrap();
        let lease = world.claim(child);
        if child != "good" {
            let (writer, key) = (lease.clone(), child.parse().unwrap());
            world.handle(Command::SetValue { lease: writer, key, value: Json::from("half") }).unwrap();
        }
        if child == "bad" { world.fail(&lease, false) } else { world.complete(&lease, "whole") }.unwrap();
    }
    assert_eq!(world.trace.values()["good"].value.value(), "whole");
    assert_eq!(world.trace.values()["own"].value.value(), "half", "its own values remain");
    assert!(!world.trace.values().contains_key("bad"));
}

#[test]
fn g4_values_of_a_failed_step_are_no_inputs_and_no_outputs() {
    let graph = json!({"on_partial_success": "continue", "steps": [
        {"id": "g", "steps": [step("w", json!({"output_to": "x"}))]},
        step("r", json!({"input_from": ["x"]})),
        step("c", json!({"when": "outputs.x == 'half'"})),
        step("other", json!({})),
    ]});
    let mut world = World::with_graph(graph);
    let w = world.claim("w");
    let (lease, key) = (w.clone(), "x".parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: Json::from("half") }).unwrap();
    world.fail(&w, false).unwrap();
    world.run("other", "ok");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    let statuses: Vec<_> = report.steps.iter().map(|step| step.status).collect();
    assert_eq!(
        statuses,
        [StepStatus::Failed, StepStatus::Skipped, StepStatus::Skipped, StepStatus::Succeeded]
    );
    assert!(report.outputs.is_empty() && world.trace.outputs().is_empty());
}

#[test]
fn g1_a_condition_may_read_the_round_before() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "loop": {"max_rounds": 2}, "steps": [
            step("author", json!({"when": "!has(outputs.review) || outputs.review == 'bad'"})),
            step("critic", json!({"output_to": "review"})),
        ]},
    ]}));
    world.run("author", "a draft");
    world.run("critic", "good");
    assert!(world.queued()[0].as_str().starts_with("critic"), "the author runs again: {:?}", world.queued());
}

#[test]
fn c_a_pipeline_can_not_reach_the_keys_of_others() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let (lease, key) = (root.clone(), "root.secret".parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: Json::from("mine") }).unwrap();
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    let steps = json!([
        step("thief", json!({"output_to": "root.secret"})),
        step("reads", json!({"input_from": ["root.secret"]}))
    ]);
    world.spawn_graph(&a, json!({"child_id": "p", "steps": steps})).unwrap();
    world.run("thief", "stolen");
    let seen = world.work(&id("reads")).unwrap().inputs;
    assert_eq!(
        serde_json::to_value(seen).unwrap(),
        json!({"root.secret": "stolen"}),
        "the context reads only its own values"
    );
    assert_eq!(world.trace.values()["root.secret"].value.value(), "mine");
}

#[test]
fn c_an_agent_can_not_give_a_child_keys_it_may_not_use_itself() {
    let mut world = World::with_graph(
        json!({"mode": "parallel", "steps": [step("a", json!({"output_to": "x"})), step("b", json!({}))]}),
    );
    world.run("a", "truth");
    let b = world.claim("b");
    let spawn = |world: &mut World, more: Value| {
        world.spawn(&b, with(json!({"goal": "evil", "child_id": "evil"}), more))
    };
    assert_eq!(spawn(&mut world, json!({"output_to": "x"})).unwrap_err().code().0, "not_writable");
    assert_eq!(spawn(&mut world, json!({"input_from": ["x"]})).unwrap_err().code().0, "not_readable");
    spawn(&mut world, json!({"child_id": "kid", "output_to": "kid.notes"})).unwrap();
    spawn(&mut world, json!({"output_to": "b.notes"})).unwrap();
    world.run("evil", "mine to give");
    assert!(world.trace.read_value(&id("b"), &"b.notes".parse().unwrap()).unwrap().is_some());
}

#[test]
fn g4_a_round_reads_values_of_an_older_one_only_if_it_asks_for_them() {
    // The writer is a sibling step, and inputs may be missing: the reader gets null, not the value
    // of round 1.
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "on_partial_success": "best_effort", "loop": {"max_rounds": 2}, "steps": [
            step("w", json!({"output_to": "draft"})), step("r", json!({"input_from": ["draft"]})),
        ]},
    ]}));
    world.run("w", "draft of round 1");
    world.run("r", "ok");
    let writer = world.queued()[0].clone();
    world.break_it(writer.as_str());
    let reader = world.queued()[0].clone();
    let inputs = serde_json::to_value(world.work(&reader).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"draft": null}));

    // The same while another step still reads the previous round's value, so that the old value is
    // still stored.
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "on_partial_success": "best_effort", "loop": {"max_rounds": 2}, "steps": [
            step("looks-back", json!({"input_from": ["draft"]})),
            step("w", json!({"output_to": "draft"})),
            step("r", json!({"input_from": ["draft"]})),
        ]},
    ]}));
    for name in ["looks-back", "w", "r"] {
        world.run(name, format!("{name} of round 1"));
    }
    let inputs = |world: &World, child| serde_json::to_value(world.work(child).unwrap().inputs).unwrap();
    let looks_back = world.queued()[0].clone();
    assert_eq!(inputs(&world, &looks_back), json!({"draft": "w of round 1"}));
    world.run(looks_back.as_str(), "ok");
    let writer = world.queued()[0].clone();
    world.break_it(writer.as_str());
    let reader = world.queued()[0].clone();
    assert_eq!(inputs(&world, &reader), json!({"draft": null}));

    // The writer is inside a neighbouring group, and the input is required: the reader is skipped
    // and does not run on the value of round 1.
    let mut world = World::with_graph(json!({"on_partial_success": "continue", "steps": [
        {"id": "g", "loop": {"max_rounds": 2}, "steps": [
            {"id": "in", "required": false, "steps": [step("w", json!({"output_to": "draft"}))]},
            step("r", json!({"input_from": ["draft"]})),
        ]},
    ]}));
    world.run("w", "draft of round 1");
    world.run("r", "ok");
    let writer = world.queued()[0].clone();
    world.break_it(writer.as_str());
    assert!(world.queued().is_empty(), "round 2's reader has no draft");
    world.rest();
}
