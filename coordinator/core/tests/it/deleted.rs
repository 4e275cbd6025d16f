//! A deleted trace (W6) has its structure, statuses and costs, and none of its texts. Every test
//! that calls `World::rest` also checks that the log without texts gives the same state.

use domain::{Json, wire::Failure};
use serde_json::json;
use trace::{Command, LoggedEvents, Replay, Trace, logged};
use world::{World, cents};

const SECRET: &str = "SECRET";

/// The log of a world, as it is published.
fn log(world: &World) -> Vec<LoggedEvents> {
    let mut trace = Trace::new(world.trace.id());
    let messages = world.orders.iter().flat_map(|(now, order)| {
        let events = trace.handle(order.clone(), *now).unwrap();
        if events.is_empty() { Vec::new() } else { logged(&mut trace, events, *now) }
    });
    messages.collect()
}

fn stored(trace: &Trace) -> String {
    let mut trace = trace.clone();
    trace.mark_all_changed();
    format!("{:?}", trace.take_changes())
}

#[test]
fn w6_no_content_is_left_in_a_deleted_trace_or_its_log() {
    let said = |what: &str| format!("{SECRET} {what}");
    let mut world = World::with_graph(json!({"child_id": "root", "task_description": said("task"),
    "mode": "parallel", "inputs": {"items": [said("1"), said("2")]}, "steps": [
        {"id": "each", "agent_id": "writer", "task_description": said("each"), "for_each": "items",
            "output_to": "found"},
        {"id": "when", "agent_id": "writer", "task_description": said("when"), "when": "size(outputs.found) > 9",
            "input_from": ["found"]},
        {"id": "ask", "mode": "parallel", "steps": [
            {"id": "asks", "agent_id": "writer", "task_description": said("nested"),
                    "fallback": {"agent_id": "critic", "task_description": said("fallback")}}]},
    ]}));
    for item in ["each-1", "each-2"] {
        let lease = world.claim(item);
        world.pay(&lease, "c", cents(3)).unwrap();
        world.complete(&lease, said("result").as_str()).unwrap();
    }
    let lease = world.claim("asks");
    let (key, value) = ("asks.note".parse().unwrap(), Json::from(said("value").as_str()));
    world.handle(Command::SetValue { lease: lease.clone(), key, value }).unwrap();
    world.ask_human(&lease, &said("question")).unwrap();
    world.answer("asks", 1, &said("answer")).unwrap();
    let lease = world.claim("asks");
    let failure = Failure::lasting(domain::wire::FailureKind::Agent, said("error"));
    world.report(&lease, domain::wire::Verdict::Failed(failure)).unwrap();
    assert!(stored(&world.trace).contains(SECRET));
    world.delete(None, true).unwrap();
    assert!(!stored(&world.trace).contains(SECRET), "{}", stored(&world.trace));
    let log = log(&world);
    assert!(serde_json::to_string(&log).unwrap().contains(SECRET));
    let bare: Vec<LoggedEvents> = log.into_iter().map(LoggedEvents::without_content).collect();
    let text = serde_json::to_string(&bare).unwrap();
    assert!(!text.contains(SECRET), "{text}");
    let (bare, _) = Replay::all(Trace::new(world.trace.id()), bare);
    assert_eq!(format!("{:?}", bare.contexts()), format!("{:?}", world.trace.contexts()));
    assert_eq!(world.spent_cents("root"), 6, "the booked costs remain");
    world.rest();
}

#[test]
fn w6_why_a_step_failed_in_the_words_of_a_human_or_an_agent_goes_with_a_delete() {
    let said = |what: &str| format!("{SECRET} {what}");
    let writer = |id: &str| json!({"id": id, "agent_id": "writer", "task_description": "t"});
    let mut world = World::with_graph(json!({"child_id": "root", "mode": "parallel",
        "on_partial_success": "continue", "steps": [{"id": "ok", "approve": {"who": "w"}}, writer("a"), writer("b")]}));
    world.answer_by("ok", &format!("deny: {}", said("reason")), "Ann").unwrap();
    let lease = world.claim("a");
    let failure = Failure::lasting(domain::wire::FailureKind::Agent, said("error"));
    world.report(&lease, domain::wire::Verdict::Failed(failure)).unwrap();
    let reason = Some(said("cancel"));
    world
        .handle(Command::Cancel { child_id: Some("b".parse().unwrap()), reason, without_undo: false })
        .unwrap();
    world.delete(None, true).unwrap();
    assert!(!stored(&world.trace).contains(SECRET), "{}", stored(&world.trace));
    let bare: Vec<LoggedEvents> = log(&world).into_iter().map(LoggedEvents::without_content).collect();
    let text = serde_json::to_string(&bare).unwrap();
    assert!(!text.contains(SECRET) && !text.contains("Ann"), "{text}");
}

/// A graph inside an ended run may still undo its steps. The delete removes their writes too.
#[test]
fn w6_g14_nothing_is_left_of_what_an_undo_wrote_after_the_end_of_its_run() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    let writer = |id: &str| json!({"id": id, "agent_id": "writer", "task_description": "t"});
    let mut first = writer("a");
    first["undo"] = json!({"agent_id": "writer", "max_cost_usd": 0.1});
    world.spawn_graph(&root, json!({"child_id": "p", "steps": [first, writer("b")]})).unwrap();
    world.wait(&root, &["p"]).unwrap();
    world.run("a", "ok");
    world.cancel(None).unwrap();
    let lease = world.claim("a-undo");
    let (key, value) = ("a-undo.note".parse().unwrap(), Json::from(SECRET));
    world.handle(Command::SetValue { lease: lease.clone(), key, value }).unwrap();
    world.complete(&lease, "done").unwrap();
    assert!(world.trace.is_over() && stored(&world.trace).contains(SECRET));
    world.delete(None, true).unwrap();
    assert!(!stored(&world.trace).contains(SECRET), "{}", stored(&world.trace));
    world.rest();
}
