//! G8: cancelling a trace or a context, before or after it begins.

use domain::wire::EndStatus;
use serde_json::json;
use trace::{Effect, Refusal, effects};
use world::{World, cents, id};

#[test]
fn g8_t6_a_cancel_reaches_every_descendant_and_no_call_starts_after_it() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    for child in ["running", "queued", "asking"] {
        world.spawn(&root, json!({"goal": child, "child_id": child})).unwrap();
    }
    let running = world.claim("running");
    world.hold(&running, "c1", cents(3)).unwrap();
    let asking = world.claim("asking");
    world.ask_human(&asking, "which?").unwrap();
    let events = world.cancel(None).unwrap();
    let stops =
        effects(&world.trace, &events).into_iter().filter(|e| matches!(e, Effect::Stop { .. })).count();
    assert_eq!(stops, 3, "each started context gets a stop message, but not the queued one");
    for context in ["root", "running", "queued", "asking"] {
        assert_eq!(world.status(context), "cancelled");
    }
    assert!(matches!(world.hold(&running, "c2", cents(1)).unwrap_err(), Refusal::Ended { .. }));
    // The cost of the stopped call is booked.
    world.settle(&running, "c1", cents(2)).unwrap();
    assert_eq!(world.spent_cents("root"), 2);
    assert_eq!(world.cancel(None).unwrap(), [], "a second cancel changes nothing");
    world.rest();
}

#[test]
fn g8_a_cancel_of_one_context_leaves_its_siblings() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    for child in ["a", "b"] {
        world.spawn(&root, json!({"goal": child, "child_id": child})).unwrap();
    }
    world.wait(&root, &["a", "b"]).unwrap();
    world.cancel(Some("a")).unwrap();
    assert_eq!(["root", "a", "b"].map(|c| world.status(c)), ["working", "cancelled", "submitted"]);
    world.run("b", "ok");
    assert_eq!(world.queued(), [id("root")], "the parent is queued for both results");
}

#[test]
fn g8_a_cancel_that_comes_before_the_child_still_holds() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.cancel(Some("later")).unwrap();
    assert_eq!(world.cancel(Some("later")).unwrap(), []);
    let events = world.spawn(&root, json!({"goal": "x", "child_id": "later"})).unwrap();
    assert_eq!(world.status("later"), "cancelled");
    let sent = effects(&world.trace, &events);
    assert!(matches!(sent.as_slice(), [Effect::Outcome { .. }]), "not an outcome only: {sent:?}");
    world.wait(&root, &["later"]).unwrap();
    assert_eq!(world.work(&id("root")).unwrap().children[0].status, EndStatus::Cancelled);
}

#[test]
fn g8_a_cancel_of_a_trace_that_is_not_there_yet_still_holds() {
    let mut world = World::new();
    world.cancel(None).unwrap();
    assert_eq!(world.cancel(None).unwrap(), []);
    world.submit(json!({"goal": "x", "child_id": "root"})).unwrap();
    assert_eq!(world.status("root"), "cancelled");
    assert!(world.try_claim("root").is_err());
    world.rest();

    let mut world = World::new();
    world.cancel(None).unwrap();
    world.submit_graph(json!({"steps": [{"agent_id": "writer", "task_description": "x"}]})).unwrap();
    assert_eq!(world.trace.contexts().len(), 1, "no step of a cancelled graph starts");
    world.rest();
}

#[test]
fn g8_a_cancelled_step_that_did_not_exist_yet() {
    let mut world = World::with_graph(json!({"on_partial_success": "continue", "steps": [
        {"agent_id": "researcher", "task_description": "r"},
        {"agent_id": "writer", "task_description": "w"},
    ]}));
    world.cancel(Some("writer")).unwrap();
    world.run("researcher", "ok");
    assert_eq!(["writer", "graph"].map(|c| world.status(c)), ["cancelled", "completed"]);
    world.rest();
}

#[test]
fn g8_the_first_end_is_final() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.complete(&root, "first").unwrap();
    assert_eq!(world.cancel(None).unwrap(), []);
    assert_eq!(world.status("root"), "completed");

    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.cancel(None).unwrap();
    assert!(matches!(
        world.complete(&root, "late").unwrap_err(),
        Refusal::Ended { status: EndStatus::Cancelled, .. }
    ));
}

#[test]
fn g8_cancels_of_contexts_that_do_not_exist_are_bounded() {
    let mut world = World::with_root(json!({}));
    // Sent to the trace directly: the checks of `World` would clone the trace ten thousand times.
    let now = world.now;
    for n in 0..10_000 {
        let child_id = Some(id(&format!("n{n}")));
        world
            .trace
            .handle(trace::Command::Cancel { child_id, reason: None, without_undo: false }, now)
            .unwrap();
    }
    assert!(matches!(world.cancel(Some("one-more")).unwrap_err(), Refusal::TooManyTombstones(_)));
    world.cancel(None).unwrap();
    assert_eq!(world.status("root"), "cancelled", "a cancel of an existing context is always accepted");
}
