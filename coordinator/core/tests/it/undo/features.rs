//! Undo combined with every other feature of a graph.

use domain::wire::UndoStatus;
use serde_json::json;
use trace::{Command, Refusal};
use world::{World, cents, id};

use super::{
    super::graph_flow::{expect, queued, step},
    broken_trip, held_cents, report, trip, undo_status, undoable,
};

#[test]
fn g14_every_item_that_succeeded_is_undone_with_its_own_element() {
    let mut world = World::with_graph(json!({"inputs": {"list": ["x", "y", "z"]}, "steps": [
        undoable("book", json!({"for_each": "list"})), step("after", json!({})),
    ]}));
    world.run("book-1", "one");
    world.run("book-3", "three");
    world.break_it("book-2");
    assert_eq!(queued(&world), ["book-3-undo"]);
    let work = world.work(&id("book-3-undo")).unwrap();
    assert_eq!(
        serde_json::to_value(&work.inputs).unwrap(),
        json!({"item": "z", "index": 2, "result": "three"})
    );
    world.run("book-3-undo", "ok");
    world.break_it("book-1-undo");
    let undo = report(&world, "book").unwrap();
    assert_eq!((undo.status, undo.contexts.len()), (UndoStatus::Failed, 2));
    world.rest();
}

#[test]
fn g14_every_round_is_undone_with_what_it_read_and_found() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "rounds", "loop": {"max_rounds": 2}, "steps": [
            step("draft", json!({"output_to": "text"})),
            undoable("print", json!({"input_from": ["text"]})),
        ]},
        step("after", json!({})),
    ]}));
    world.run("draft", "first");
    world.run("print", "page 1");
    let second: Vec<String> = queued(&world);
    world.run(&second[0], "second");
    let print: Vec<String> = queued(&world);
    world.run(&print[0], "page 2");
    world.break_it("after");
    let undo = format!("{}-undo", print[0]);
    assert_eq!(queued(&world), [undo.as_str()]);
    let inputs = serde_json::to_value(world.work(&id(&undo)).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"text": "second", "result": "page 2"}));
    world.run(&undo, "ok");
    let inputs = serde_json::to_value(world.work(&id("print-undo")).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"text": "first", "result": "page 1"}));
    world.run("print-undo", "ok");
    assert_eq!(world.status("graph"), "failed");
    assert_eq!(
        (undo_status(&world, "rounds"), undo_status(&world, "print")),
        (Some(UndoStatus::Undone), Some(UndoStatus::Undone))
    );
    world.rest();
}

#[test]
fn g14_steps_within_items_are_undone_with_what_the_item_had() {
    let mut world =
        World::with_graph(json!({"mode": "sequential", "inputs": {"list": ["x", "y"]}, "steps": [
            {"id": "each", "for_each": "list", "steps": [
                step("look", json!({"input_from": ["item"], "output_to": "seen"})),
                undoable("buy", json!({"input_from": ["item", "seen"]})),
            ]},
            step("after", json!({})),
        ]}));
    for name in ["look-1", "look-2", "buy-2", "buy-1"] {
        world.run(name, name);
    }
    assert_eq!(held_cents(&world, "graph"), 20);
    world.break_it("after");
    assert_eq!(queued(&world), ["buy-1-undo"]);
    let inputs = serde_json::to_value(world.work(&id("buy-1-undo")).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"item": "x", "seen": "look-1", "result": "buy-1"}));
    world.run("buy-1-undo", "ok");
    world.run("buy-2-undo", "ok");
    assert_eq!(
        (world.status("graph").as_str(), undo_status(&world, "each")),
        ("failed", Some(UndoStatus::Undone))
    );
    world.rest();
}

#[test]
fn g14_items_that_are_stopped_with_another_are_undone_in_one_order() {
    let mut world = World::with_graph(json!({"inputs": {"list": ["x", "y"]}, "steps": [
        {"id": "each", "for_each": "list", "steps": [undoable("a", json!({})), undoable("b", json!({})), step("c", json!({}))]},
    ]}));
    for name in ["a-1", "a-2", "b-2", "b-1"] {
        world.run(name, name);
    }
    world.break_it("c-1");
    assert_eq!(queued(&world), ["c-2", "b-1-undo"]);
    // The failed item undoes its own steps first. The other item was stopped with it and is undone
    // by the graph.
    world.run("b-1-undo", "ok");
    world.run("a-1-undo", "ok");
    assert_eq!(world.status("c-2"), "cancelled");
    world.rest_of(&["b-2-undo", "a-2-undo"]);
}

#[test]
fn g14_the_run_of_a_fallback_is_undone_and_the_failed_one_is_not() {
    let mut world = World::with_graph(json!({"steps": [
        undoable("a", json!({"fallback": "critic"})), step("b", json!({})),
    ]}));
    world.break_it("a");
    world.run("a-fallback", "instead");
    world.break_it("b");
    assert_eq!(queued(&world), ["a-fallback-undo"]);
    world.run("a-fallback-undo", "ok");
    assert_eq!(report(&world, "a").unwrap().contexts, [id("a-fallback-undo")]);
    world.rest();
}

#[test]
fn g14_a_group_with_a_fallback_is_undone_before_it() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "group", "fallback": {"agent_id": "critic", "task_description": "instead"},
            "steps": [undoable("a", json!({})), step("b", json!({}))]},
    ]}));
    world.run("a", "ok");
    world.break_it("b");
    assert_eq!(queued(&world), ["a-undo"]);
    world.run("a-undo", "ok");
    assert_eq!(queued(&world), ["group-fallback"]);
    world.run("group-fallback", "ok");
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

#[test]
fn g14_the_loser_of_a_race_has_nothing_to_undo_but_a_losing_group_undoes_its_steps() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "race", "race": true, "mode": "parallel", "steps": [
            undoable("fast", json!({})), undoable("slow", json!({})),
            {"id": "group", "mode": "sequential", "steps": [undoable("g1", json!({})), step("g2", json!({}))]},
        ]},
        step("after", json!({})),
    ]}));
    world.run("g1", "ok");
    world.claim("slow");
    world.run("fast", "won");
    // The race is won and the graph continues, while the losing group undoes.
    assert_eq!(
        (world.status("race").as_str(), queued(&world)),
        ("completed", vec!["g1-undo".to_owned(), "after".to_owned()])
    );
    assert!(world.node("race").lifecycle.outcome_due, "the outcome is final after the undo");
    world.run("g1-undo", "ok");
    assert!(!world.node("race").lifecycle.outcome_due);
    world.break_it("after");
    assert_eq!(queued(&world), ["fast-undo"], "only the winner is undone");
    world.run("fast-undo", "ok");
    world.rest();
}

#[test]
fn g14_a_graph_whose_synthesis_fails_undoes_and_aggregate_stops_waiting_for_groups_that_undo() {
    let mut world = World::with_graph(
        json!({"aggregate": {}, "agent_id": "critic", "steps": [undoable("a", json!({}))]}),
    );
    world.run("a", "ok");
    let lease = world.claim("graph");
    world.hold(&lease, "synthesis", cents(5)).unwrap();
    world.fail(&lease, false).unwrap();
    assert_eq!(queued(&world), ["a-undo"]);
    assert!(matches!(world.complete(&lease, "late"), Err(Refusal::Stale { .. })));
    world.settle(&lease, "synthesis", cents(3)).unwrap();
    world.run("a-undo", "ok");
    assert_eq!((world.status("graph").as_str(), world.spent_cents("graph")), ("failed", 3));
    world.rest();

    let mut world = World::with_graph(
        json!({"mode": "parallel", "aggregate": {"timeout_ms": 5_000}, "agent_id": "critic", "steps": [
            {"id": "group", "mode": "sequential", "steps": [undoable("a", json!({})), step("b", json!({}))]},
            undoable("c", json!({})),
        ]}),
    );
    world.run("a", "ok");
    world.run("c", "ok");
    world.pass(5_000);
    assert_eq!(queued(&world), ["graph", "a-undo"]);
    world.run("graph", "what there is");
    assert_eq!(world.status("graph"), "completed");
    world.run("a-undo", "ok");
    assert!(!world.node("graph").lifecycle.outcome_due);
    assert_eq!(undo_status(&world, "c"), None);
    world.rest();
}

#[test]
fn g14_a_pipeline_of_an_agent_undoes_before_its_caller_is_final() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world
        .spawn_graph(
            &root,
            json!({"child_id": "p", "steps": [undoable("a", json!({})), step("b", json!({}))]}),
        )
        .unwrap();
    world.wait(&root, &["p"]).unwrap();
    world.run("a", "ok");
    world.cancel(None).unwrap();
    assert_eq!((world.status("root").as_str(), world.status("p").as_str()), ("cancelled", "working"));
    assert!(world.node("root").lifecycle.outcome_due && !world.trace.is_over());
    assert_eq!(world.cancel(None).unwrap(), []);
    let lease = world.claim("a-undo");
    world.pay(&lease, "some", cents(5)).unwrap();
    world.ask_human(&lease, "may I?").unwrap();
    assert!(world.node("root").lifecycle.outcome_due && !world.trace.is_over(), "the undo still runs");
    world.answer("a-undo", 1, "yes").unwrap();
    world.run("a-undo", "ok");
    assert_eq!((world.status("p").as_str(), world.node("root").lifecycle.outcome_due), ("cancelled", false));
    world.rest();

    // The caller gets the result when all undos have ended.
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world
        .spawn_graph(
            &root,
            json!({"child_id": "p", "steps": [undoable("a", json!({})), step("b", json!({}))]}),
        )
        .unwrap();
    world.wait(&root, &["p"]).unwrap();
    world.run("a", "ok");
    world.break_it("b");
    assert_eq!(queued(&world), ["a-undo"]);
    world.run("a-undo", "ok");
    assert_eq!(queued(&world), ["root"]);
    world.run("root", "done");
    world.rest();
}

#[test]
fn g14_a_graph_waits_for_the_pipeline_of_its_step() {
    let mut world = World::with_graph(
        json!({"mode": "sequential", "steps": [undoable("first", json!({})), step("second", json!({}))]}),
    );
    world.run("first", "ok");
    let lease = world.claim("second");
    world
        .spawn_graph(
            &lease,
            json!({"child_id": "p", "steps": [undoable("inner", json!({})), step("b", json!({}))]}),
        )
        .unwrap();
    world.run("inner", "ok");
    world.cancel(None).unwrap();
    assert_eq!(queued(&world), ["inner-undo"], "the latest first");
    world.run("inner-undo", "ok");
    assert_eq!(queued(&world), ["first-undo"]);
    world.run("first-undo", "ok");
    assert_eq!(world.status("graph"), "cancelled");
    world.rest();
}

#[test]
fn g14_a_forced_delete_ends_without_undo_and_deleted_steps_are_not_undone() {
    let mut world = broken_trip();
    world.claim("hotel-undo");
    assert!(matches!(world.delete(None, false), Err(Refusal::Guarded { .. })));
    world.delete(None, true).unwrap();
    assert_eq!(
        (world.status("graph").as_str(), world.status("hotel-undo").as_str()),
        ("failed", "cancelled")
    );
    world.rest();

    let mut world = World::with_graph(trip());
    world.run("flight", "ok");
    world.run("hotel", "ok");
    world.delete(Some("hotel"), true).unwrap();
    assert_eq!(held_cents(&world, "graph"), 10);
    world.break_it("pay");
    assert_eq!(queued(&world), ["flight-undo"]);
    world.run("flight-undo", "ok");
    world.rest();
}

#[test]
fn g14_an_amend_may_change_the_undo_of_a_step_that_has_not_begun() {
    let mut world = World::with_graph(trip());
    world.run("flight", "ok");
    let mut graph = trip();
    graph["steps"][1]["undo"] = json!("nobody");
    graph["steps"][2]["undo"] = json!({"agent_id": "critic", "max_cost_usd": 0.3});
    let Refusal::Malformed(problems) = world.amend(None, "one", 0, graph.clone()).unwrap_err() else {
        panic!()
    };
    assert!(problems.to_string().contains("`hotel` has begun and can't change: `undo`"), "{problems}");
    graph["steps"][1] = trip()["steps"][1].clone();
    world.amend(None, "one", 0, graph.clone()).unwrap();
    world.run("hotel", "ok");
    assert_eq!(held_cents(&world, "graph"), 50);
    graph["steps"].as_array_mut().unwrap().push(step("last", json!({"undo": "critic"})));
    let Refusal::Malformed(problems) = world.amend(None, "two", 1, graph.clone()).unwrap_err() else {
        panic!()
    };
    assert!(problems.to_string().contains("an undo needs a ceiling"), "{problems}");
    graph["steps"][3]["undo"] = json!(null);
    graph["steps"][3].as_object_mut().unwrap().remove("undo");
    world.amend(None, "two", 1, graph.clone()).unwrap();
    world.run("pay", "ok");
    world.break_it("last");
    assert_eq!(queued(&world), ["pay-undo"]);
    assert_eq!(world.work(&id("pay-undo")).unwrap().agent.agent_id.as_str(), "critic");
    assert!(matches!(world.amend(None, "three", 2, graph), Err(Refusal::Undoing(_))));
    for name in ["pay-undo", "hotel-undo", "flight-undo"] {
        world.run(name, "ok");
    }
    world.rest();
}

#[test]
fn g14_a_rerun_runs_undone_steps_and_all_later_ones_again() {
    let mut world = World::with_graph(json!({"mode": "sequential", "steps": [
        step("look", json!({"output_to": "seen"})),
        undoable("book", json!({"output_to": "seat"})),
        step("note", json!({"input_from": ["seen"], "output_to": "noted"})),
        step("pay", json!({})),
    ]}));
    for name in ["look", "book", "note"] {
        world.run(name, name);
    }
    world.break_it("pay");
    let running = world.rerun(json!({})).unwrap_err();
    assert!(running.to_string().contains("has not ended"), "{running}");
    world.run("book-undo", "ok");
    world.rest();
    let mut again = world.rerun(json!({})).unwrap();
    assert_eq!(queued(&again), ["book"], "`look` is taken");
    again.run("book", "book");
    assert_eq!(queued(&again), ["note"]);
    again.run("note", "note");
    again.break_it("pay");
    assert_eq!(queued(&again), ["book-undo"]);
    again.run("book-undo", "ok");
    again.rest();

    // A step that an earlier run completed and did not undo is not undone by the rerun either.
    let mut world = World::with_graph(trip());
    world.run("flight", "12A");
    world.break_it_without_undo("hotel");
    let mut again = world.rerun(json!({})).unwrap();
    assert_eq!(queued(&again), ["hotel"]);
    assert_eq!(held_of_root(&again), 10, "the hold is only for `hotel`");
    again.break_it("hotel");
    assert_eq!((queued(&again), again.status("root").as_str()), (vec![], "failed"));
    again.rest();
}

fn held_of_root(world: &World) -> u64 {
    held_cents(world, "root")
}

trait More {
    fn rest_of(&mut self, undos: &[&str]);
    fn break_it_without_undo(&mut self, child: &str);
}

impl More for World {
    /// Runs the remaining undos to their end, in this order.
    fn rest_of(&mut self, undos: &[&str]) {
        for name in undos {
            assert_eq!(queued(self), [*name]);
            self.run(name, "ok");
        }
        self.rest();
    }

    /// Ends the run while this context runs, without any undo.
    fn break_it_without_undo(&mut self, child: &str) {
        self.claim(child);
        let command = Command::Cancel { child_id: None, reason: None, without_undo: true };
        self.handle(command).unwrap();
        expect(self, "graph", &[("flight", "succeeded"), (child, "cancelled"), ("pay", "skipped")]);
        self.rest();
    }
}
