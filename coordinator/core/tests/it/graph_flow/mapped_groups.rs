//! `for_each` on a group: the whole group runs once for each element, with separate keys.

use domain::wire::GraphVerdict;
use serde_json::{Value, json};
use world::{World, id, with};

use super::{expect, queued, step, verdict};

fn inputs(world: &World, child: &str) -> Value {
    serde_json::to_value(&world.work(&id(child)).unwrap().inputs).unwrap()
}

fn outputs(world: &World) -> Value {
    serde_json::to_value(world.trace.outputs()).unwrap()
}

/// Drafts a text about each element, then improves it.
fn mapped(group: Value) -> Value {
    let steps = json!([
        step("draft", json!({"input_from": ["item", "index", "tone"], "output_to": "text"})),
        step("polish", json!({"input_from": ["text"]})),
    ]);
    with(json!({"id": "map", "for_each": "topics", "output_to": "texts", "steps": steps}), group)
}

fn graph(group: Value) -> Value {
    let after = step("after", json!({"input_from": ["texts"]}));
    json!({"inputs": {"topics": ["ants", "bees"], "tone": "dry"}, "steps": [mapped(group), after]})
}

#[test]
fn g1_a_group_runs_once_for_each_element_with_keys_of_its_own() {
    let mut world = World::with_graph(graph(json!({})));
    assert_eq!(queued(&world), ["draft-1", "draft-2"]);
    assert_eq!(inputs(&world, "draft-2"), json!({"item": "bees", "index": 1, "tone": "dry"}));
    world.run("draft-2", "about bees");
    world.run("draft-1", "about ants");
    assert_eq!(inputs(&world, "polish-1"), json!({"text": "about ants"}));
    assert_eq!(inputs(&world, "polish-2"), json!({"text": "about bees"}));
    world.run("polish-2", "BEES");
    world.run("polish-1", "ANTS");
    let texts = json!([{"draft": "about ants", "polish": "ANTS"}, {"draft": "about bees", "polish": "BEES"}]);
    assert_eq!(inputs(&world, "after"), json!({"texts": texts}));
    world.run("after", "done");
    let outcome = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(outcome.steps[0].result, Some(texts.into()), "the result of the step is the list");
    assert!(outcome.steps[0].steps.is_empty());
    expect(&world, "graph", &[("map", "succeeded"), ("after", "succeeded")]);
    assert_eq!(verdict(&world), GraphVerdict::Succeeded);
    world.rest();
}

#[test]
fn g1_values_of_an_item_are_deleted_at_its_end_and_its_result_remains() {
    let mut world = World::with_graph(graph(json!({})));
    let keys = |world: &World| world.trace.values().keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(keys(&world), ["map-1.index", "map-1.item", "map-2.index", "map-2.item", "tone", "topics"]);
    world.run("draft-1", "a");
    assert!(keys(&world).contains(&"map-1.text".to_owned()));
    world.run("polish-1", "A");
    assert_eq!(keys(&world), ["map-2.index", "map-2.item", "tone", "topics"]);
    world.run("draft-2", "b");
    world.run("polish-2", "B");
    assert_eq!(keys(&world), ["texts", "tone", "topics"]);
    world.run("after", "done");
    assert_eq!(outputs(&world)["texts"][1]["polish"], "B");
    world.rest();
}

#[test]
fn g1_no_more_than_max_parallel_items_of_a_group_run_at_once() {
    let mut world = World::with_graph(graph(json!({"for_each": {"in": "topics", "max_parallel": 1}})));
    assert_eq!(queued(&world), ["draft-1"]);
    world.run("draft-1", "a");
    assert_eq!(queued(&world), ["polish-1"]);
    world.run("polish-1", "A");
    assert_eq!(queued(&world), ["draft-2"]);
}

#[test]
fn g4_a_failed_item_of_a_group_counts_as_one_of_a_step() {
    let mut world = World::with_graph(with(graph(json!({})), json!({"on_partial_success": "continue"})));
    world.break_it("draft-1");
    world.run("draft-2", "b");
    world.run("polish-2", "B");
    assert_eq!(inputs(&world, "after"), json!({"texts": [null, {"draft": "b", "polish": "B"}]}));
    world.run("after", "done");
    assert_eq!(verdict(&world), GraphVerdict::Partial);
    world.rest();

    let mut world = World::with_graph(graph(json!({})));
    world.break_it("draft-1");
    assert_eq!(
        ["map-1", "map-2", "draft-2", "graph"].map(|c| world.status(c)),
        ["failed", "cancelled", "cancelled", "failed"]
    );
    assert!(world.trace.values().is_empty());
    world.rest();
}

#[test]
fn g4_an_item_that_succeeded_in_part_makes_its_step_partial() {
    let mut world = World::with_graph(graph(json!({"on_partial_success": "continue"})));
    world.run("draft-1", "a");
    world.break_it("polish-1");
    world.run("draft-2", "b");
    world.run("polish-2", "B");
    assert_eq!(inputs(&world, "after"), json!({"texts": [{"draft": "a"}, {"draft": "b", "polish": "B"}]}));
    world.run("after", "done");
    expect(&world, "graph", &[("map", "succeeded"), ("after", "succeeded")]);
    assert_eq!(verdict(&world), GraphVerdict::Partial);
}

/// Each chapter is planned, and each section of its plan is written: an inner step writes the inner
/// list.
#[test]
fn g1_a_for_each_within_a_for_each_runs_over_the_list_of_its_own_item() {
    let mut world = World::with_graph(json!({"inputs": {"chapters": ["one", "two"]}, "steps": [
        {"id": "book", "for_each": "chapters", "output_to": "book", "steps": [
            step("plan", json!({"input_from": ["item"], "output_to": "sections"})),
            {"id": "write", "for_each": "sections", "output_to": "pages", "steps": [
                step("page", json!({"input_from": ["item"], "output_to": "page"})),
                step("check", json!({"input_from": ["page"]})),
            ]},
            step("join", json!({"input_from": ["pages"]})),
        ]},
    ]}));
    let list = |world: &mut World, child: &str, value: Value| {
        let lease = world.claim(child);
        world.complete(&lease, value).unwrap();
    };
    list(&mut world, "plan-1", json!(["1.1"]));
    list(&mut world, "plan-2", json!(["2.1", "2.2"]));
    assert_eq!(queued(&world), ["page-1-1", "page-2-1", "page-2-2"]);
    assert_eq!(inputs(&world, "page-2-2"), json!({"item": "2.2"}));
    for page in ["1-1", "2-1", "2-2"] {
        world.run(&format!("page-{page}"), format!("text of {page}"));
        assert_eq!(inputs(&world, &format!("check-{page}")), json!({"page": format!("text of {page}")}));
        world.run(&format!("check-{page}"), "ok");
    }
    let pages = json!([{"page": "text of 2-1", "check": "ok"}, {"page": "text of 2-2", "check": "ok"}]);
    assert_eq!(inputs(&world, "join-2"), json!({"pages": pages}));
    world.run("join-1", "J1");
    world.run("join-2", "J2");
    assert_eq!(outputs(&world)["book"][1]["join"], "J2");
    assert_eq!(outputs(&world)["book"][1]["write"], pages);
    world.rest();
}

#[test]
fn g1_a_mapped_group_runs_in_a_loop_a_race_and_with_an_agent_of_its_own() {
    // In the second round the items have new contexts, without the values of the first round.
    let mut world = World::with_graph(json!({"inputs": {"topics": ["ants"], "tone": "dry"}, "steps": [
        {"id": "again", "loop": {"max_rounds": 2}, "steps": [mapped(json!({}))]},
    ]}));
    world.run("draft-1", "first");
    world.run("polish-1", "FIRST");
    let second = queued(&world);
    assert_eq!(second.len(), 1);
    world.run(&second[0], "second");
    let polish = queued(&world);
    assert_eq!(inputs(&world, &polish[0]), json!({"text": "second"}));
    world.run(&polish[0], "SECOND");
    assert_eq!(outputs(&world)["texts"], json!([{"draft": "second", "polish": "SECOND"}]));
    world.rest();

    let mut world = World::with_graph(json!({"inputs": {"topics": ["ants", "bees"]}, "steps": [
        {"id": "map", "for_each": "topics", "output_to": "best", "race": true, "agent_id": "editor", "aggregate": {},
         "task_description": "Say it well.",
         "steps": [step("left", json!({"input_from": ["item"]})), step("right", json!({"input_from": ["item"]}))]},
    ]}));
    world.run("right-2", "R2");
    world.run("left-1", "L1");
    assert_eq!(["left-2", "right-1"].map(|c| world.status(c)), ["cancelled", "cancelled"]);
    assert_eq!(
        inputs(&world, "map-2"),
        json!({"item": "bees", "index": 1}),
        "the agent of the group has the element too"
    );
    world.run("map-1", "ants!");
    world.run("map-2", "bees!");
    assert_eq!(outputs(&world)["best"], json!(["ants!", "bees!"]));
    world.rest();
}

/// An agent that is itself an item runs a graph with a mapped group: `item` has three meanings.
#[test]
fn g10_a_mapped_group_in_the_graph_of_an_agent_reads_what_its_caller_lends() {
    let mut world = World::with_graph(json!({"inputs": {"topics": ["ants"], "tone": "dry"}, "steps": [
        {"id": "map", "for_each": "topics", "steps": [
            step("head", json!({"input_from": ["item"], "output_to": "head"})),
            step("lead", json!({"input_from": ["item", "head", "tone"]})),
        ]},
    ]}));
    world.run("head-1", "the head");
    let lease = world.claim("lead-1");
    let inner = json!({"child_id": "own", "inputs": {"parts": ["x", "y"]}, "input_from": ["head", "tone"], "steps": [
        {"id": "each", "for_each": "parts", "output_to": "all", "steps": [
            step("part", json!({"input_from": ["item", "head", "tone"], "output_to": "text"})),
            step("end", json!({"input_from": ["text"]})),
        ]},
    ]});
    world.spawn_graph(&lease, inner).unwrap();
    assert_eq!(inputs(&world, "part-2"), json!({"item": "y", "head": "the head", "tone": "dry"}));
    world.run("part-1", "p1");
    world.run("part-2", "p2");
    assert_eq!(inputs(&world, "end-2"), json!({"text": "p2"}));
    world.run("end-1", "e1");
    world.run("end-2", "e2");
    assert_eq!(world.trace.values()["own.all"].value.value()[1]["end"], "e2");
}

#[test]
fn g1_items_of_a_group_count_with_all_their_steps() {
    let mut world = World::new();
    // The graph, `map`, and three contexts for each of the two items are eight; with `after` nine.
    world.settings.limits.max_contexts = 6;
    world.submit_graph(graph(json!({}))).unwrap();
    let report = world.trace.graph_outcome(world.trace.root().unwrap()).unwrap();
    let reason = report.steps[0].reason.clone().unwrap();
    assert_eq!(
        reason,
        "2 items of 3 contexts each on 1 contexts would exceed max_contexts = 6 (the settings of the coordinators); raise `limits.max_contexts` in the settings of the coordinators"
    );
}
