//! Which undos run, in which order, with which inputs, and how the graph ends.

use domain::wire::{EndStatus, ObjectReference, Payload, UndoStatus, Verdict};
use serde_json::json;
use trace::{Event, Refusal};
use world::{World, cents, id};

use super::{
    super::graph_flow::{expect, queued, step},
    broken_trip, report, trip, undo_status, undoable,
};

#[test]
fn g14_succeeded_steps_are_undone_in_reverse_and_the_graph_keeps_its_end() {
    let mut world = broken_trip();
    assert_eq!((world.status("graph").as_str(), queued(&world)), ("working", vec!["hotel-undo".to_owned()]));
    assert_eq!(undo_status(&world, "flight"), Some(UndoStatus::Pending));
    world.run("hotel-undo", "cancelled");
    assert_eq!((world.status("graph").as_str(), queued(&world)), ("working", vec!["flight-undo".to_owned()]));
    let lease = world.claim("flight-undo");
    world.pay(&lease, "call", cents(4)).unwrap();
    world.complete(&lease, "cancelled").unwrap();
    assert_eq!((world.status("graph").as_str(), queued(&world)), ("failed", vec![]));
    let outcome = world.trace.outcome(&id("graph")).unwrap();
    assert_eq!(outcome.context.error.unwrap().message, "`pay` failed: it broke");
    let graph = outcome.graph.unwrap();
    assert_eq!(graph.undone.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["flight", "hotel"]);
    assert!(graph.undo_failed.is_empty());
    expect(&world, "graph", &[("flight", "succeeded"), ("hotel", "succeeded"), ("pay", "failed")]);
    let undo = report(&world, "flight").unwrap();
    assert_eq!((undo.status, undo.attempts, undo.cost_usd), (UndoStatus::Undone, 1, cents(4).cost_usd));
    assert_eq!(undo.contexts, [id("flight-undo")]);
    assert_eq!(report(&world, "pay"), None);
    world.rest();
}

#[test]
fn g14_an_undo_gets_what_its_step_read_and_the_result() {
    let mut world = broken_trip();
    let work = world.work(&id("hotel-undo")).unwrap();
    assert_eq!(
        serde_json::to_value(&work.inputs).unwrap(),
        json!({"city": "Oslo", "seat": "12A", "result": "room 7"})
    );
    assert_eq!(work.agent.agent_id.as_str(), "editor");
    assert_eq!(work.goal.as_str(), "Undo this task, which was done: do hotel");
    assert!(work.output_to.is_none());
    world.cancel_without_undo(None).unwrap();
    world.rest();

    // A large result is passed by reference.
    let mut world = World::with_graph(trip());
    let lease = world.claim("flight");
    let object = ObjectReference { object: "o".into(), sha256: "0".repeat(64), size_bytes: 5_000_000 };
    world.report(&lease, Verdict::Completed(Payload::Reference(object.clone()))).unwrap();
    world.break_it("hotel");
    let work = world.work(&id("flight-undo")).unwrap();
    let result = serde_json::to_value(&work.inputs).unwrap()["result"].clone();
    assert_eq!(result, *Payload::Reference(object).to_value().value());
    world.run("flight-undo", "ok");
    world.rest();
}

#[test]
fn g14_nothing_is_undone_if_the_graph_succeeds_or_nothing_had_succeeded() {
    let mut world = World::with_graph(trip());
    ["flight", "hotel", "pay"].into_iter().for_each(|name| world.run(name, "ok"));
    assert_eq!((world.status("graph").as_str(), undo_status(&world, "flight")), ("completed", None));
    world.rest();

    let mut world = World::with_graph(trip());
    world.break_it("flight");
    assert_eq!((world.status("graph").as_str(), queued(&world)), ("failed", vec![]));
    world.rest();

    // A partial success that the graph accepts is a good end: nothing is undone.
    let mut graph = trip();
    graph["on_partial_success"] = json!("continue");
    let mut world = World::with_graph(graph);
    world.run("flight", "ok");
    world.run("hotel", "ok");
    world.break_it("pay");
    assert_eq!((world.status("graph").as_str(), queued(&world)), ("completed", vec![]));
    world.rest();
}

#[test]
fn g14_a_failed_undo_is_shown_and_does_not_stop_the_others() {
    let mut world = broken_trip();
    world.break_it("hotel-undo");
    assert_eq!(queued(&world), ["flight-undo"]);
    world.run("flight-undo", "ok");
    let outcome = world.trace.outcome(&id("graph")).unwrap();
    assert_eq!(outcome.context.error.as_ref().unwrap().message, "`pay` failed: it broke");
    let graph = outcome.graph.unwrap();
    assert_eq!(graph.undo_failed.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["hotel"]);
    assert_eq!(graph.undone.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["flight"]);
    let undo = report(&world, "hotel").unwrap();
    assert_eq!((undo.status, undo.reason.as_deref()), (UndoStatus::Failed, Some("it broke")));
    world.rest();
}

#[test]
fn g14_a_cancel_is_acknowledged_at_once_and_undoes_and_a_second_one_changes_nothing() {
    let mut world = World::with_graph(trip());
    world.run("flight", "12A");
    let running = world.claim("hotel");
    let events = world.cancel(None).unwrap();
    assert!(events.iter().any(|event| matches!(event, Event::UndoingBegun(_))), "{events:?}");
    assert_eq!(world.status("hotel"), "cancelled");
    assert_eq!(queued(&world), ["flight-undo"], "no step starts");
    assert!(matches!(world.complete(&running, "late"), Err(Refusal::Ended { .. })));
    assert_eq!(world.cancel(None).unwrap(), []);
    let lease = world.claim("flight-undo");
    assert_eq!(world.cancel(None).unwrap(), []);
    assert_eq!(world.status("flight-undo"), "working");
    world.complete(&lease, "ok").unwrap();
    assert_eq!(world.status("graph"), "cancelled");
    let outcome = world.trace.outcome(&id("graph")).unwrap();
    assert_eq!(outcome.context.reason.as_deref(), Some("cancelled on request"));
    assert_eq!(world.cancel(None).unwrap(), []);
    assert_eq!(queued(&world), Vec::<String>::new());
    world.rest();
}

#[test]
fn g14_a_cancel_without_undo_ends_at_once_also_while_it_undoes() {
    let mut world = World::with_graph(trip());
    world.run("flight", "12A");
    world.cancel_without_undo(None).unwrap();
    assert_eq!((world.status("graph").as_str(), queued(&world)), ("cancelled", vec![]));
    assert_eq!(undo_status(&world, "flight"), Some(UndoStatus::Dropped));
    let graph = world.trace.outcome(&id("graph")).unwrap().graph.unwrap();
    assert_eq!(graph.undo_failed.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["flight"]);
    world.rest();

    let mut world = broken_trip();
    world.claim("hotel-undo");
    world.cancel_without_undo(None).unwrap();
    assert_eq!(
        (world.status("graph").as_str(), world.status("hotel-undo").as_str()),
        ("failed", "cancelled")
    );
    assert_eq!(
        world.trace.outcome(&id("graph")).unwrap().context.error.unwrap().message,
        "`pay` failed: it broke"
    );
    assert_eq!(undo_status(&world, "hotel"), Some(UndoStatus::Failed));
    assert_eq!(undo_status(&world, "flight"), Some(UndoStatus::Dropped));
    assert_eq!(world.cancel_without_undo(None).unwrap(), []);
    world.rest();
}

#[test]
fn g14_each_undo_runs_at_most_once_for_repeated_messages() {
    let mut world = broken_trip();
    let orders = world.orders.clone();
    // Every earlier order is delivered again: none starts another undo.
    for (_, order) in &orders {
        let _ = world.handle(order.clone());
    }
    assert_eq!(queued(&world), ["hotel-undo"]);
    let lease = world.claim("hotel-undo");
    world.complete(&lease, "ok").unwrap();
    let _ = world.complete(&lease, "ok");
    assert_eq!(queued(&world), ["flight-undo"]);
    // After a lost worker the same undo is retried, as often as any step.
    world.claim("flight-undo");
    world.pass(30_000);
    assert_eq!((world.node("flight-undo").attempt(), queued(&world)), (1, vec!["flight-undo".to_owned()]));
    world.run("flight-undo", "ok");
    let undos = world.trace.contexts().iter().filter(|node| node.identity.undoes.is_some()).count();
    assert_eq!((undos, world.status("graph").as_str()), (2, "failed"));
    world.rest();
}

#[test]
fn g14_a_trace_read_back_while_it_undoes_goes_on() {
    let mut world = broken_trip();
    world.check_replay();
    world.claim("hotel-undo");
    world.check_replay();
    let lease = world.lease(&id("hotel-undo"));
    world.complete(&lease, "ok").unwrap();
    world.check_replay();
    world.run("flight-undo", "ok");
    world.rest();
}

#[test]
fn g14_attempts_of_an_undo_follow_its_retries() {
    let graph = json!({"steps": [
        step("a", json!({"undo": {"agent_id": "editor", "max_cost_usd": 0.1, "retries": 0}})),
        step("b", json!({})),
    ]});
    let mut world = World::with_graph(graph);
    world.run("a", "ok");
    world.break_it("b");
    let lease = world.claim("a-undo");
    world.fail(&lease, true).unwrap();
    assert_eq!((world.status("a-undo").as_str(), world.status("graph").as_str()), ("failed", "failed"));
    assert_eq!(undo_status(&world, "a"), Some(UndoStatus::Failed));
    world.rest();
}

#[test]
fn g14_deadlines_of_a_graph_do_not_bound_its_undos_and_each_has_its_own() {
    let mut graph = trip();
    graph["timeout_ms"] = json!(5_000);
    graph["steps"][0]["undo"]["timeout_ms"] = json!(3_000);
    let mut world = World::with_graph(graph);
    world.run("flight", "12A");
    world.run("hotel", "7");
    world.claim("pay");
    world.pass(5_000);
    assert_eq!((world.status("pay").as_str(), world.status("graph").as_str()), ("timed_out", "working"));
    let lease = world.claim("hotel-undo");
    for _ in 0..19 {
        world.pass(3_000);
        world.tick(&lease, Default::default()).unwrap();
    }
    world.pass(3_000);
    assert_eq!(world.status("hotel-undo"), "timed_out", "the default timeout is 60 seconds");
    world.claim("flight-undo");
    world.pass(3_000);
    assert_eq!(world.status("flight-undo"), "timed_out");
    let end = world.trace.outcome(&id("graph")).unwrap();
    assert_eq!(
        (end.context.status, end.context.reason.as_deref()),
        (
            EndStatus::TimedOut,
            Some("`graph` reached timeout_ms = 5000 (the submission); raise `timeout_ms` in the submission")
        )
    );
    world.rest();
}

#[test]
fn g14_an_undo_may_ask_a_human() {
    let mut world = broken_trip();
    let lease = world.claim("hotel-undo");
    world.ask_human(&lease, "really?").unwrap();
    assert_eq!(
        (world.status("hotel-undo").as_str(), world.status("graph").as_str()),
        ("input_required", "input_required")
    );
    world.pass(100_000_000);
    world.answer("hotel-undo", 1, "yes").unwrap();
    world.run("hotel-undo", "ok");
    world.run("flight-undo", "ok");
    assert_eq!(world.status("graph"), "failed");
    world.rest();

    let mut graph = trip();
    graph["hitl"] = json!("fail");
    let mut world = World::with_graph(graph);
    world.run("flight", "ok");
    world.break_it("hotel");
    let lease = world.claim("flight-undo");
    world.ask_human(&lease, "really?").unwrap();
    assert_eq!(undo_status(&world, "flight"), Some(UndoStatus::Failed));
    world.rest();
}

#[test]
fn g14_one_order_over_all_groups() {
    let mut world = World::with_graph(json!({"mode": "parallel", "steps": [
        {"id": "left", "mode": "sequential", "steps": [undoable("l1", json!({})), undoable("l2", json!({})), step("l3", json!({}))]},
        {"id": "right", "mode": "sequential", "steps": [undoable("r1", json!({})), undoable("r2", json!({})), step("r3", json!({}))]},
        undoable("alone", json!({})),
        step("breaks", json!({})),
    ]}));
    for name in ["l1", "r1", "alone", "r2", "l2", "r3"] {
        world.run(name, name);
    }
    world.break_it("breaks");
    let mut undone = Vec::new();
    while let [next] = queued(&world).as_slice() {
        undone.push(next.clone());
        world.run(next, "ok");
    }
    assert_eq!(undone, ["l2-undo", "r2-undo", "alone-undo", "r1-undo", "l1-undo"]);
    assert_eq!((world.status("graph").as_str(), world.status("left").as_str()), ("failed", "cancelled"));
    world.rest();
}

#[test]
fn g14_a_group_that_fails_undoes_its_own_and_its_graph_goes_on() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "on_partial_success": "continue", "steps": [
            {"id": "group", "on_partial_success": "fail", "mode": "sequential",
                "steps": [undoable("g1", json!({})), step("g2", json!({}))]},
            undoable("other", json!({})),
        ]}));
    world.run("g1", "ok");
    world.run("other", "ok");
    world.break_it("g2");
    assert_eq!((queued(&world), world.status("group").as_str()), (vec!["g1-undo".to_owned()], "working"));
    world.run("g1-undo", "ok");
    assert_eq!((world.status("group").as_str(), world.status("graph").as_str()), ("failed", "completed"));
    assert_eq!((undo_status(&world, "g1"), undo_status(&world, "other")), (Some(UndoStatus::Undone), None));
    world.rest();
}

#[test]
fn g14_a_graph_waits_for_its_groups_that_undo() {
    let mut world = World::with_graph(json!({"mode": "parallel", "steps": [
        {"id": "group", "mode": "sequential", "steps": [undoable("g1", json!({})), step("g2", json!({}))]},
        undoable("other", json!({})),
        step("slow", json!({})),
    ]}));
    world.run("g1", "ok");
    world.run("other", "ok");
    world.break_it("g2");
    let lease = world.claim("g1-undo");
    world.cancel(None).unwrap();
    assert_eq!((world.status("slow").as_str(), world.status("g1-undo").as_str()), ("cancelled", "working"));
    assert_eq!(queued(&world), Vec::<String>::new(), "undos run one at a time");
    world.complete(&lease, "ok").unwrap();
    assert_eq!(queued(&world), ["other-undo"]);
    world.run("other-undo", "ok");
    assert_eq!(world.status("graph"), "cancelled");
    world.rest();
}

#[test]
fn g14_undos_are_checked_at_submission_with_all_mistakes_at_once() {
    let mut world = World::new();
    let graph = json!({"max_tokens": 1000, "steps": [
        step("a", json!({"undo": "editr"})),
        step("b", json!({"undo": "editor"})),
        step("c", json!({"undo": {"agent_id": "editor", "max_cost_usd": 0.1}})),
        step("d", json!({"undo": {"agent_id": "editor", "max_cost_usd": 0.1, "max_tokens": 10}})),
    ]});
    let refusal = world.submit_graph(graph).unwrap_err();
    let Refusal::Malformed(problems) = refusal else { panic!("{refusal}") };
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["steps[0].undo.agent_id", "steps[1].undo.max_cost_usd", "steps[2].undo.max_tokens"]);
    assert!(problems.iter().all(|problem| problem.hint.is_some()), "{problems}");
    assert!(problems.to_string().contains("did you mean `editor`?"), "{problems}");

    let graph = json!({"steps": [
        {"id": "asks", "approve": {"who": "me"}, "undo": "editor"},
        {"id": "group", "undo": "editor", "steps": [step("x", json!({"undo": {"agent_id": "editor", "max_cost_usd": 0}}))]},
    ]});
    let Refusal::Malformed(problems) = world.submit_graph(graph).unwrap_err() else { panic!() };
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["steps[0].undo", "steps[1].undo", "steps[1].steps[0].undo.max_cost_usd"]);

    // The profile of the agent may set the bound.
    world.agent(json!({"agent_id": "editor", "max_cost_usd": 0.2}));
    world.submit_graph(json!({"steps": [step("a", json!({"undo": "editor"}))]})).unwrap();
    world.run("a", "ok");
    world.rest();
}
