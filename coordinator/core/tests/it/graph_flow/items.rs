//! `for_each`: one context per item, the results in order, and the bounds on the number of items.

use domain::{Json, wire::GraphVerdict};
use serde_json::{Value, json};
use world::{World, cents, id, with};

use super::{expect, queued, statuses, step, verdict};

#[test]
fn g1_for_each_runs_once_for_every_item_and_gathers_the_results_in_order() {
    let mut world = World::with_graph(json!({"inputs": {"topics": ["ants", "bees", "cats"]}, "steps": [
        step("each", json!({"for_each": {"in": "topics", "max_parallel": 2}, "output_to": "found"})),
        step("reduce", json!({"input_from": ["found"]})),
    ]}));
    assert_eq!(queued(&world), ["each-1", "each-2"]);
    let work = world.work(&id("each-2")).unwrap();
    let inputs = serde_json::to_value(&work.inputs).unwrap();
    assert_eq!((inputs["item"].clone(), inputs["index"].clone()), (json!("bees"), json!(1)));
    world.run("each-2", "B");
    assert_eq!(queued(&world), ["each-1", "each-3"]);
    world.run("each-3", "C");
    world.run("each-1", "A");
    let work = world.work(&id("reduce")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"found": ["A", "B", "C"]}));
    world.run("reduce", "ABC");
    world.rest();
}

#[test]
fn g1_for_each_over_nothing_over_no_list_and_over_too_much() {
    let run = |value: Value| {
        let mut world = World::new();
        world.settings.limits.max_contexts = 10;
        world
            .submit_graph(json!({"inputs": {"items": value}, "on_partial_success": "continue", "steps": [
                step("each", json!({"for_each": "items", "output_to": "found"})),
            ]}))
            .unwrap();
        (statuses(&world, "graph")[0].1.clone(), world)
    };
    let (status, world) = run(json!([]));
    assert_eq!(status, "succeeded");
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap()["found"], json!([]));
    assert_eq!(run(json!("not a list")).0, "failed");
    assert_eq!(run(json!([1, 2, 3, 4, 5, 6, 7, 8, 9])).0, "running");
    assert_eq!(run(json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])).0, "failed");
}

#[test]
fn g1_for_each_over_nothing_with_steps_beside_and_after_it() {
    for mode in ["sequential", "parallel"] {
        let mut world = World::with_graph(json!({"mode": mode, "inputs": {"items": []}, "steps": [
            step("each", json!({"for_each": "items", "output_to": "found"})),
            step("after", json!({"input_from": ["found"]})),
            step("beside", json!({})),
        ]}));
        while let Some(next) = world.queued().first().cloned() {
            world.run(next.as_str(), "ok");
        }
        expect(&world, "graph", &[("each", "succeeded"), ("after", "succeeded"), ("beside", "succeeded")]);
        world.rest();
    }
}

#[test]
fn g1_the_result_of_a_group_can_be_read() {
    let inner = |name: &str| json!({"id": format!("in-{name}"), "steps": [step(name, json!({}))]});
    let mut world = World::with_graph(json!({"steps": [
        {"id": "outer", "output_to": "all", "steps": [inner("a"), step("b", json!({}))]},
        step("reads", json!({"input_from": ["all"]})),
    ]}));
    world.run("a", "A");
    world.run("b", "B");
    let work = world.work(&id("reads")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"all": {"in-a": {"a": "A"}, "b": "B"}}));

    let mut world = World::with_graph(json!({
        "agent_id": "editor", "aggregate": {}, "steps": [inner("a"), step("b", json!({}))],
    }));
    world.run("a", "A");
    world.run("b", "B");
    let goal = world.work(&id("graph")).unwrap().goal.to_string();
    assert!(goal.contains("Group: {\"a\":\"A\"}") && goal.contains("Writer: B"), "{goal}");
}

#[test]
fn g4_failed_items_are_null_and_the_step_is_partial_or_failed_by_the_policy() {
    let graph = |policy: &str| {
        json!({"inputs": {"items": [1, 2, 3]}, "on_partial_success": policy, "steps": [
            step("each", json!({"for_each": "items", "output_to": "found"})),
        ]})
    };
    let mut world = World::with_graph(graph("continue"));
    world.run("each-1", "A");
    world.break_it("each-2");
    world.run("each-3", "C");
    assert_eq!(verdict(&world), GraphVerdict::Partial);
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap()["found"], json!(["A", null, "C"]));

    let mut world = World::with_graph(graph("fail"));
    world.run("each-1", "A");
    world.break_it("each-2");
    assert_eq!(["each-3", "graph"].map(|c| world.status(c)), ["cancelled", "failed"]);
    world.rest();
}

#[test]
fn b6_items_that_can_not_be_paid_for_are_refused_one_by_one() {
    let mut world = World::with_graph(json!({
        "inputs": {"items": [1, 2, 3, 4, 5]}, "max_cost_usd": 0.3, "on_partial_success": "continue", "steps": [
            step("each", json!({"for_each": "items", "max_cost_usd": 0.1, "funding": "granted", "output_to": "found"})),
        ],
    }));
    assert_eq!(queued(&world), ["each-1", "each-2", "each-3"], "exactly the affordable number runs");
    for name in queued(&world) {
        let lease = world.claim(&name);
        world.pay(&lease, "c1", cents(10)).unwrap();
        world.complete(&lease, name).unwrap();
    }
    let found = &serde_json::to_value(world.trace.outputs()).unwrap()["found"];
    assert_eq!(*found, json!(["each-1", "each-2", "each-3", null, null]));
    assert_eq!(verdict(&world), GraphVerdict::Partial);
    world.rest();
}

/// Twenty elements of 2,000 characters: each item receives its own element, not all twenty.
#[test]
fn w8_an_item_gets_its_element_and_the_list_only_if_the_step_asks_for_it() {
    let topics: Vec<String> = (0..20).map(|n| format!("{n:02}").repeat(1000)).collect();
    let sent = |more: Value| {
        let each = with(json!({"for_each": "topics"}), more);
        let graph = json!({"inputs": {"topics": topics, "tone": "dry"}, "steps": [step("each", each)]});
        let world = World::with_graph(with(json!({"mode": "parallel"}), graph));
        let works: Vec<_> = (1..=20).map(|n| world.work(&id(&format!("each-{n}"))).unwrap().inputs).collect();
        let keys: Vec<String> = works[4].keys().map(ToString::to_string).collect();
        assert_eq!(works[4]["item"], Json::from(topics[4].as_str()));
        (keys, works.iter().map(|inputs| json!(inputs).to_string().len()).sum::<usize>())
    };
    let (keys, bytes) = sent(json!({}));
    assert_eq!(keys, ["index", "item"]);
    assert!(bytes < 41_000, "{bytes}");
    let (keys, bytes) = sent(json!({"input_from": ["tone"]}));
    assert_eq!(keys, ["index", "item", "tone"]);
    assert!(bytes < 42_000, "{bytes}");
    let (keys, bytes) = sent(json!({"input_from": ["topics"]}));
    assert_eq!(keys, ["index", "item", "topics"]);
    assert!(bytes > 800_000, "{bytes}");
}
