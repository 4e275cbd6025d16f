//! The holds for undos, and which budget pays.

use domain::wire::{OnExhausted, UndoStatus, Verdict};
use serde_json::json;
use trace::Refusal;
use world::{World, cents};

use super::{
    super::graph_flow::{expect, queued, step},
    held_cents, report, trip, undo_status, undoable,
};

#[test]
fn g14_the_reserve_is_held_from_the_start_of_a_step_and_only_the_undo_can_spend_it() {
    let mut world = World::with_graph(trip());
    assert_eq!(held_cents(&world, "graph"), 10);
    world.run("flight", "12A");
    assert_eq!(held_cents(&world, "graph"), 20, "its own hold, and that of the running `hotel`");
    let hotel = world.claim("hotel");
    let denied = world.hold(&hotel, "too-much", cents(81)).unwrap_err();
    assert!(matches!(denied, Refusal::Denied(_)), "{denied}");
    world.pay(&hotel, "all", cents(80)).unwrap();
    world.complete(&hotel, "7").unwrap();
    assert_eq!(held_cents(&world, "graph"), 20);
    // `pay` has no money left, but the undos have their holds.
    expect(&world, "graph", &[("flight", "succeeded"), ("hotel", "succeeded"), ("pay", "failed")]);
    let lease = world.claim("hotel-undo");
    world.pay(&lease, "undo", cents(10)).unwrap();
    world.complete(&lease, "ok").unwrap();
    let lease = world.claim("flight-undo");
    assert!(world.hold(&lease, "too-much", cents(11)).is_err(), "its ceiling");
    world.pay(&lease, "undo", cents(6)).unwrap();
    world.complete(&lease, "ok").unwrap();
    assert_eq!((world.spent_cents("graph"), held_cents(&world, "graph")), (96, 0));
    assert_eq!(report(&world, "hotel").unwrap().cost_usd, cents(10).cost_usd);
    world.rest();
}

#[test]
fn g14_a_reserve_returns_if_the_step_fails_and_when_the_graph_has_ended_well() {
    let mut world = World::with_graph(trip());
    world.break_it("flight");
    assert_eq!(held_cents(&world, "graph"), 0);
    world.rest();

    let mut world = World::with_graph(trip());
    world.run("flight", "ok");
    world.run("hotel", "ok");
    assert_eq!(held_cents(&world, "graph"), 20);
    world.run("pay", "ok");
    assert_eq!((world.status("graph").as_str(), held_cents(&world, "graph")), ("completed", 0));
    world.rest();
}

#[test]
fn g14_a_step_whose_reserve_does_not_fit_is_refused_as_a_grant_is() {
    let mut world =
        World::with_graph(json!({"max_cost_usd": 0.15, "on_partial_success": "continue", "steps": [
            undoable("a", json!({})), undoable("b", json!({})),
        ]}));
    world.run("a", "ok");
    expect(&world, "graph", &[("a", "succeeded"), ("b", "failed")]);
    let steps = world.trace.graph_outcome(world.node("graph")).unwrap().steps;
    assert!(steps[1].reason.as_deref().unwrap().contains("budget_denied"), "{:?}", steps[1].reason);
    world.rest();

    // The step waits for calls in flight.
    let mut world = World::with_graph(json!({"max_cost_usd": 0.3, "mode": "parallel", "steps": [
        step("calls", json!({})), undoable("b", json!({"depends_on": ["c"]})), step("c", json!({})),
    ]}));
    let calls = world.claim("calls");
    world.hold(&calls, "call", cents(25)).unwrap();
    world.run("c", "ok");
    assert_eq!(queued(&world), Vec::<String>::new());
    world.settle(&calls, "call", cents(5)).unwrap();
    world.complete(&calls, "ok").unwrap();
    assert_eq!(queued(&world), ["b"]);
    world.run("b", "ok");
    world.rest();
}

#[test]
fn g14_a_granted_step_needs_its_grant_and_its_reserve() {
    let grant = json!({"funding": "granted", "max_cost_usd": 0.45});
    let mut world =
        World::with_graph(json!({"max_cost_usd": 1, "mode": "parallel", "on_partial_success": "continue",
        "steps": [undoable("a", grant.clone()), undoable("b", grant)]}));
    assert_eq!(held_cents(&world, "graph"), 55);
    expect(&world, "graph", &[("a", "running"), ("b", "failed")]);
    world.run("a", "ok");
    world.rest();
}

#[test]
fn g14_the_reserve_of_a_group_moves_up_when_it_ends() {
    let mut world = World::with_graph(json!({"max_cost_usd": 1, "steps": [
        {"id": "group", "funding": "granted", "max_cost_usd": 0.5, "steps": [undoable("a", json!({}))]},
        step("b", json!({})),
    ]}));
    assert_eq!((held_cents(&world, "group"), held_cents(&world, "graph")), (10, 50));
    world.run("a", "ok");
    assert_eq!((held_cents(&world, "group"), held_cents(&world, "graph")), (0, 10));
    assert!(!world.node("group").lifecycle.outcome_due, "its outcome is final");
    world.break_it("b");
    world.run("a-undo", "ok");
    assert_eq!(held_cents(&world, "graph"), 0);
    world.rest();
}

#[test]
fn g14_an_exhausted_or_paused_graph_that_is_cancelled_undoes() {
    let mut graph = trip();
    graph["on_exhausted"] = json!("pause");
    let mut world = World::with_graph(graph);
    world.run("flight", "ok");
    let lease = world.claim("hotel");
    world.pay(&lease, "all", cents(80)).unwrap();
    world.report(&lease, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.node("graph").terms.on_exhausted, OnExhausted::Pause);
    assert_eq!(world.status("hotel"), "paused");
    world.cancel(None).unwrap();
    assert_eq!(queued(&world), ["flight-undo"]);
    let lease = world.claim("flight-undo");
    world.pay(&lease, "undo", cents(10)).unwrap();
    world.complete(&lease, "ok").unwrap();
    assert_eq!(
        (world.status("graph").as_str(), undo_status(&world, "flight")),
        ("cancelled", Some(UndoStatus::Undone))
    );
    world.rest();

    // A provider charged more than the hold: the budget is exhausted, but the hold for the undo
    // remains.
    let mut world = World::with_graph(trip());
    world.run("flight", "ok");
    let lease = world.claim("hotel");
    world.hold(&lease, "call", cents(80)).unwrap();
    world.settle(&lease, "call", cents(120)).unwrap();
    let _ = world.fail(&lease, false);
    assert_eq!(queued(&world), ["flight-undo"]);
    let lease = world.claim("flight-undo");
    world.pay(&lease, "undo", cents(10)).unwrap();
    world.complete(&lease, "ok").unwrap();
    assert_eq!(
        (world.status("graph").as_str(), undo_status(&world, "flight")),
        ("aborted", Some(UndoStatus::Undone))
    );
    world.rest();
}

#[test]
fn g14_tokens_are_held_as_well_if_the_undo_names_them() {
    let undo = json!({"undo": {"agent_id": "editor", "max_cost_usd": 0.1, "max_tokens": 40}});
    let mut world =
        World::with_graph(json!({"max_tokens": 100, "steps": [step("a", undo), step("b", json!({}))]}));
    let lease = world.claim("a");
    let tokens = |count: u64| domain::Amount::new(cents(1).cost_usd, domain::Tokens::new(count));
    assert!(world.hold(&lease, "too-many", tokens(61)).is_err());
    world.pay(&lease, "all", tokens(60)).unwrap();
    world.complete(&lease, "ok").unwrap();
    expect(&world, "graph", &[("a", "succeeded"), ("b", "failed")]);
    let lease = world.claim("a-undo");
    world.pay(&lease, "undo", tokens(40)).unwrap();
    world.complete(&lease, "ok").unwrap();
    assert_eq!(undo_status(&world, "a"), Some(UndoStatus::Undone));
    world.rest();
}

#[test]
fn g14_an_undo_that_has_spent_all_is_aborted_and_never_pauses() {
    let mut graph = trip();
    graph["on_exhausted"] = json!("pause");
    let mut world = World::with_graph(graph);
    world.run("flight", "ok");
    world.break_it("hotel");
    let lease = world.claim("flight-undo");
    world.pay(&lease, "some", cents(9)).unwrap();
    world.report(&lease, Verdict::OutOfBudget).unwrap();
    assert_eq!((world.status("flight-undo").as_str(), world.status("graph").as_str()), ("aborted", "failed"));
    assert_eq!(undo_status(&world, "flight"), Some(UndoStatus::Failed));
    world.rest();
}

#[test]
fn g14_a_graph_that_waits_for_a_reserve_goes_on_when_another_is_deleted() {
    let mut world = World::with_graph(
        json!({"max_cost_usd": 0.1, "on_exhausted": "pause", "mode": "sequential", "steps": [
            undoable("a", json!({})), undoable("b", json!({})),
        ]}),
    );
    world.run("a", "ok");
    assert_eq!((world.status("graph").as_str(), queued(&world)), ("paused", vec![]));
    world.delete(Some("a"), true).unwrap();
    assert_eq!(queued(&world), ["b"]);
    world.run("b", "ok");
    world.rest();
}

#[test]
fn g14_the_worst_case_counts_reserves() {
    let graph = |budget: f64| {
        json!({"max_cost_usd": budget, "must_fit": true, "inputs": {"list": [1, 2]}, "steps": [
            undoable("a", json!({"max_cost_usd": 0.2})),
            undoable("b", json!({"max_cost_usd": 0.1, "for_each": "list"})),
        ]})
    };
    let mut world = World::new();
    let refusal = world.submit_graph(graph(0.69)).unwrap_err();
    assert!(matches!(refusal, Refusal::DoesNotFit { .. }), "{refusal}");
    world.submit_graph(graph(0.7)).unwrap();
    ["a", "b-1", "b-2"].into_iter().for_each(|name| world.run(name, "ok"));
    world.rest();
}

#[test]
fn g14_the_size_of_a_commit_does_not_grow_with_the_undos() {
    let list: Vec<u32> = (0..1200).collect();
    let mut world = World::new();
    world.settings.limits.max_children = 5_000;
    world
        .submit_graph(json!({"max_cost_usd": 1000, "inputs": {"list": list}, "mode": "sequential", "steps": [
            undoable("a", json!({"for_each": {"in": "list", "max_parallel": 1}})), step("b", json!({})),
        ]}))
        .unwrap();
    world.measured();
    let mut sizes = Vec::new();
    for number in 1..=1200 {
        world.run(&format!("a-{number}"), "ok");
        sizes.push(world.written());
    }
    assert!(sizes[1150] < sizes[10] * 2, "{} bytes, then {}", sizes[10], sizes[1150]);
    world.break_it("b");
    let mut undos = Vec::new();
    for number in (1..=1200).rev() {
        world.run(&format!("a-{number}-undo"), "ok");
        undos.push(world.written());
    }
    assert!(undos[1150] < undos[10] * 2, "{} bytes, then {}", undos[10], undos[1150]);
    assert_eq!(world.status("graph"), "failed");
}
