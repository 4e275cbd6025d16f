//! L: the content of a trace outside its shared store is bounded. The counter of its bytes is
//! checked after every command, with the other invariants.

use domain::{
    Json,
    wire::{EndStatus, FailureKind, Payload, UndoStatus, Verdict},
};
use serde_json::{Value, json};
use trace::{Command, Event, Refusal, Trace};
use world::{World, cents, id, with};

use super::graph_flow::{expect, queued, statuses, step};

/// A world whose traces may store this many bytes.
fn small(max_trace_bytes: u64) -> World {
    let mut world = World::new();
    world.settings.limits.max_trace_bytes = max_trace_bytes;
    world
}

/// A running root whose trace may store this many bytes.
fn root(max_trace_bytes: u64) -> (World, domain::wire::Lease) {
    let mut world = small(max_trace_bytes);
    world.submit(json!({"goal": "g", "child_id": "root", "max_cost_usd": 100})).unwrap();
    let lease = world.claim("root");
    (world, lease)
}

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// Sends messages to an agent until less than `left` bytes are free.
fn fill(world: &mut World, child: &str, left: u64) {
    loop {
        let room = world.node(child).limits.max_trace_bytes - world.trace.content_bytes();
        if room < left {
            return;
        }
        let bytes = usize::try_from(room.min(60_000)).unwrap().saturating_sub(100).max(1);
        let id = format!("fill-{}", world.trace.version());
        world.tell_as(&id, Some(child), &text(bytes)).unwrap();
    }
}

#[track_caller]
fn refused(refusal: &Refusal, trace: &Trace) {
    assert_eq!(refusal.code(), ("max_trace_bytes", "L"), "{refusal}");
    let Refusal::MaxTraceBytes { asked, have, max, .. } = *refusal else { panic!("{refusal}") };
    assert_eq!(have, trace.content_bytes());
    assert!(have <= max && have + asked > max, "{refusal}");
    // The hint names `input_from` and `undo`, because each run of a step with an undo stores the
    // values that it read.
    let told = refusal.to_string();
    assert!(told.contains("hint: ") && told.contains("`input_from`") && told.contains("`undo`"), "{told}");
}

fn end_of(world: &World, child: &str) -> (EndStatus, Option<(FailureKind, String)>) {
    let end = world.node(child).end().unwrap_or_else(|| panic!("{child} is live"));
    (end.status, end.details.error.as_ref().map(|error| (error.kind, error.message.clone())))
}

#[test]
fn l_a_spawn_for_which_a_trace_has_no_room_is_refused() {
    let (mut world, root) = root(100_000);
    let spawn = |world: &mut World, n: usize| {
        world.spawn(&root, json!({"goal": text(9_000), "child_id": format!("c{n}")}))
    };
    let admitted = (0..).take_while(|n| spawn(&mut world, *n).is_ok()).count();
    assert!((7..=9).contains(&admitted), "{admitted} orders of 9,000 bytes and their ends in 100,000");
    let refusal = spawn(&mut world, 100).unwrap_err();
    refused(&refusal, &world.trace);
    // A second delivery of the same spawn is accepted and takes no room.
    assert_eq!(spawn(&mut world, 0), Ok(Vec::new()));
    // A short spawn still fits: the long one was refused only for its size.
    world.spawn(&root, json!({"goal": "short", "child_id": "short"})).unwrap();
    // Deleting the content of a context frees its room.
    world.run("c0", "ok");
    world.delete(Some("c0"), true).unwrap();
    spawn(&mut world, 101).unwrap();
    world.check_replay();
}

#[test]
fn l_a_submission_must_have_room_for_its_plan_and_its_order() {
    let mut world = small(30_000);
    let refusal = world.submit(json!({"goal": text(40_000), "child_id": "root"})).unwrap_err();
    refused(&refusal, &world.trace);
    let long = |n: u32| step(&format!("s{n}"), json!({"task_description": text(9_000)}));
    let steps: Vec<Value> = (0..4).map(long).collect();
    refused(&world.submit_graph(json!({"steps": steps})).unwrap_err(), &world.trace);
    assert_eq!(world.trace.content_bytes(), 0);
    world.submit_graph(json!({"steps": [step("a", json!({}))]})).unwrap();
}

#[test]
fn l_a_message_an_answer_and_a_graph_for_which_there_is_no_room_are_refused() {
    let (mut world, root) = root(200_000);
    world.spawn(&root, json!({"goal": "asks", "child_id": "asks"})).unwrap();
    let asks = world.claim("asks");
    world.ask_human(&asks, "which?").unwrap();
    fill(&mut world, "root", 2_000);
    refused(&world.tell("root", &text(2_000)).unwrap_err(), &world.trace);
    refused(&world.answer("asks", 1, &text(3_000)).unwrap_err(), &world.trace);
    let graph = json!({"child_id": "p", "steps": [step("a", json!({})), step("b", json!({}))]});
    refused(&world.spawn_graph(&root, graph).unwrap_err(), &world.trace);
    // The question is still open, and a short answer fits.
    world.answer("asks", 1, "this").unwrap();
    assert_eq!(world.status("asks"), "working");
    world.check_replay();
}

#[test]
fn l_an_agent_whose_question_has_no_room_ends() {
    let (mut world, root) = root(100_000);
    fill(&mut world, "root", 2_000);
    world.ask_human(&root, &text(5_000)).unwrap();
    let (status, error) = end_of(&world, "root");
    let (kind, message) = error.unwrap();
    assert_eq!((status, kind), (EndStatus::Failed, FailureKind::LimitExceeded));
    assert!(message.contains("max_trace_bytes"), "{message}");
    world.rest();
}

#[test]
fn l_an_amend_for_which_there_is_no_room_is_refused() {
    let graph = |more: usize| {
        let more = (0..more).map(|n| step(&format!("s{n}"), json!({"task_description": text(5_000)})));
        json!({"steps": Vec::from_iter([step("a", json!({}))].into_iter().chain(more))})
    };
    let mut world = small(40_000);
    world.submit_graph(graph(1)).unwrap();
    let refusal = world.amend(None, "am-1", 0, graph(8)).unwrap_err();
    refused(&refusal, &world.trace);
    world.amend(None, "am-1", 0, graph(2)).unwrap();
    world.run("a", "ok");
    world.check_replay();
}

#[test]
fn g15_l_a_rerun_must_have_room_for_what_it_takes_over() {
    let mut world = World::with_graph(json!({"steps": [
        step("a", json!({"output_to": "x"})), step("b", json!({"input_from": ["x"]})),
    ]}));
    world.run("a", text(20_000));
    world.break_it("b");
    world.rest();
    let rerun = json!({"rerun": {"trace_id": world.trace.id()}});
    assert_eq!(world.rerun(rerun.clone()).unwrap().status("a"), "completed");
    world.settings.limits.max_trace_bytes = 20_000;
    let refusal = world.rerun(rerun).map(|_| ()).unwrap_err();
    assert_eq!(refusal.code().0, "max_trace_bytes", "{refusal}");
}

#[test]
fn l_ten_thousand_items_with_a_long_goal_are_refused_at_once_and_their_graph_ends() {
    let items: Vec<u32> = (0..9_990).collect();
    let graph = |policy: &str| {
        json!({"inputs": {"items": items}, "on_partial_success": policy, "mode": "parallel", "max_cost_usd": 5, "steps": [
            step("each", json!({"for_each": "items", "task_description": text(60_000), "output_to": "found"})),
            step("beside", json!({})),
        ]})
    };
    for (policy, ends) in [("continue", "completed"), ("fail", "failed")] {
        let mut world = World::with_graph(graph(policy));
        assert_eq!(statuses(&world, "graph")[0].1, "failed");
        let outcome = world.trace.graph_outcome(world.node("graph")).unwrap();
        let reason = outcome.steps[0].reason.clone().unwrap();
        assert!(
            reason.starts_with("9990 items of ") && reason.contains("refused (max_trace_bytes): "),
            "{reason}"
        );
        if policy == "continue" {
            let lease = world.claim("beside");
            world.pay(&lease, "call", cents(7)).unwrap();
            world.complete(&lease, "ok").unwrap();
            assert_eq!(world.spent_cents("graph"), 7);
        }
        assert_eq!(world.status("graph"), ends);
        assert!(world.trace.content_bytes() < 1_000_000, "{}", world.trace.content_bytes());
        world.rest();
    }
}

#[test]
fn l_items_run_until_the_room_is_used_up_and_the_graph_ends_with_the_others() {
    let items: Vec<u32> = (0..60).collect();
    let mut world = small(1_000_000);
    // The room that the steps of an item need is unknown when the items begin.
    world
        .submit_graph(json!({"inputs": {"items": items}, "max_cost_usd": 50, "steps": [
            {"id": "each", "for_each": "items", "output_to": "found", "on_partial_success": "continue", "steps": [
                step("long", json!({"task_description": text(40_000)})),
            ]},
        ], "on_partial_success": "continue"}))
        .unwrap();
    let (mut ran, mut spent) = (0, 0);
    while let Some(next) = queued(&world).first().cloned() {
        let lease = world.claim(&next);
        world.pay(&lease, &format!("call-{ran}"), cents(3)).unwrap();
        world.complete(&lease, "ok").unwrap();
        (ran, spent) = (ran + 1, spent + 3);
    }
    assert!((15..25).contains(&ran), "{ran} of 60 texts were stored");
    assert_eq!((world.status("graph").as_str(), world.spent_cents("graph")), ("completed", spent));
    assert!(world.trace.content_bytes() <= 1_000_000);
    let found = serde_json::to_value(world.trace.outputs()).unwrap()["found"].clone();
    assert_eq!(found.as_array().unwrap().iter().filter(|value| !value.is_null()).count(), ran as usize);
    world.rest();
}

#[test]
fn l_a_result_for_which_there_is_no_room_ends_its_context_and_a_short_one_always_has_room() {
    let (mut world, root) = root(100_000);
    for name in ["long", "short"] {
        world.spawn(&root, json!({"goal": name, "child_id": name})).unwrap();
    }
    fill(&mut world, "root", 500);
    world.run("long", text(5_000));
    let (status, error) = end_of(&world, "long");
    let (kind, message) = error.unwrap();
    assert_eq!((status, kind), (EndStatus::Failed, FailureKind::LimitExceeded));
    assert!(message.contains("max_trace_bytes"), "{message}");
    fill(&mut world, "root", 150);
    world.run("short", text(1_900));
    assert_eq!(world.status("short"), "completed");
    world.complete(&root, "done").unwrap();
    assert_eq!(world.status("root"), "completed");
    assert!(world.trace.content_bytes() <= 100_000);
    world.rest();
}

/// proves: a context that failed because its result was too large leaves that result out of its
/// output; a value that another context wrote there stays.
#[test]
fn l_a_result_for_which_there_is_no_room_is_not_written_to_its_output() {
    let (mut world, root) = root(100_000);
    for name in ["long", "short"] {
        let spawn = json!({"goal": name, "child_id": name, "output_to": format!("of_{name}")});
        world.spawn(&root, spawn).unwrap();
    }
    fill(&mut world, "root", 500);
    for (name, bytes, written) in [("long", 5_000, 0), ("short", 1_900, 1)] {
        let lease = world.claim(name);
        let events = world.complete(&lease, text(bytes)).unwrap();
        let values = events.iter().filter(|event| matches!(event, Event::ValueSet { .. })).count();
        assert_eq!(values, written, "{name}");
    }
    assert_eq!((world.status("long").as_str(), world.status("short").as_str()), ("failed", "completed"));
    world.complete(&root, "done").unwrap();
    world.rest();
}

/// proves: a context that ends by its budget keeps that end and its reason, even if its last report
/// does not fit; so does the context that handed over to it.
#[test]
fn b7_l_a_last_report_for_which_there_is_no_room_is_left_out_and_the_end_stays() {
    let (mut world, root) = root(100_000);
    for name in ["first", "second"] {
        world.spawn(&root, json!({"goal": name, "child_id": name})).unwrap();
    }
    let report = || Verdict::LastReport(Payload::Inline(Json::from(text(5_000).as_str())));
    let (first, second) = (world.claim("first"), world.claim("second"));
    world.report(&first, report()).unwrap();
    assert!(world.node("first").end().unwrap().details.result.is_some());
    fill(&mut world, "root", 500);
    world.report(&second, report()).unwrap();
    world.report(&root, Verdict::Waiting { children: vec![id("first")], hand_over: true }).unwrap();
    for (name, of_report) in
        [("second", "its last report is left out"), ("root", "its last report is the result")]
    {
        let end = world.node(name).end().unwrap();
        assert_eq!(
            (end.status, &end.details.result, &end.details.error),
            (EndStatus::Aborted, &None, &None),
            "{name}"
        );
        let reason = end.details.reason.as_deref().unwrap();
        assert!(reason.starts_with("its budget is too small") && reason.contains(of_report), "{reason}");
    }
    assert!(world.trace.content_bytes() <= 100_000);
    world.rest();
}

fn undoable(name: &str, more: Value) -> Value {
    step(name, with(json!({"undo": {"agent_id": "editor", "max_cost_usd": 0.1}}), more))
}

#[test]
fn g14_l_an_undo_has_room_from_when_its_step_begins_and_is_never_refused() {
    let long = text(3_000);
    let mut world = small(60_000);
    world
        .submit_graph(
            json!({"mode": "sequential", "max_cost_usd": 5, "inputs": {"city": long, "note": "n"}, "steps": [
                undoable("flight", json!({"input_from": ["city", "note"], "output_to": "seat"})),
                undoable("hotel", json!({"input_from": ["seat", "city"], "output_to": "room"})),
                step("pay", json!({"input_from": ["room"]})),
            ]}),
        )
        .unwrap();
    world.run("flight", text(1_500));
    world.run("hotel", text(1_500));
    // No further message fits.
    fill(&mut world, "pay", 150);
    world.break_it("pay");
    for name in ["hotel-undo", "flight-undo"] {
        let inputs = serde_json::to_value(world.work(&id(name)).unwrap().inputs).unwrap();
        assert_eq!(inputs["city"], json!(long), "{name}");
        world.run(name, "undone");
        assert!(world.trace.content_bytes() <= 60_000, "{}", world.trace.content_bytes());
    }
    assert_eq!(world.status("graph"), "failed");
    let outcome = world.trace.graph_outcome(world.node("graph")).unwrap();
    let undone = outcome.steps[..2].iter().map(|step| step.undo.as_ref().unwrap().status);
    assert_eq!(undone.collect::<Vec<_>>(), [UndoStatus::Undone, UndoStatus::Undone]);
    world.rest();
}

#[test]
fn g14_l_a_step_whose_undo_would_have_no_room_does_not_begin() {
    let run = |undo: bool| {
        let book = if undo { undoable } else { step };
        let mut world = small(90_000);
        world
            .submit_graph(
                json!({"mode": "sequential", "max_cost_usd": 5, "inputs": {"text": text(30_000)}, "steps": [
                    step("first", json!({})), book("book", json!({"input_from": ["text"]})),
                ]}),
            )
            .unwrap();
        world.run("first", "ok");
        world
    };
    assert_eq!(run(false).status("book"), "submitted");
    let mut world = run(true);
    expect(&world, "graph", &[("first", "succeeded"), ("book", "failed")]);
    let reason = world.trace.graph_outcome(world.node("graph")).unwrap().steps[1].reason.clone().unwrap();
    assert!(reason.starts_with("refused (max_trace_bytes): "), "{reason}");
    world.rest();
}

#[test]
fn g14_l_a_step_that_leaves_no_room_for_its_undo_fails_with_the_reason() {
    let mut world = small(60_000);
    world.submit_graph(json!({"max_cost_usd": 5, "steps": [undoable("book", json!({}))]})).unwrap();
    world.run("book", text(40_000));
    let (status, error) = end_of(&world, "book");
    let (kind, message) = error.unwrap();
    assert_eq!((status, kind), (EndStatus::Failed, FailureKind::LimitExceeded));
    assert!(
        message.starts_with("its work is not undone, because the input of the undo does not fit"),
        "{message}"
    );
    world.rest();
}

#[test]
fn g14_l_the_room_of_undos_returns_when_nothing_will_be_undone() {
    // An agent runs ten graphs, one after the other, each with a step that could be undone.
    let (mut world, root) = root(150_000);
    for n in 0..10 {
        let book = undoable(&format!("book{n}"), json!({"input_from": ["text"]}));
        let graph = json!({"child_id": format!("p{n}"), "inputs": {"text": text(5_000)}, "steps": [book]});
        world.spawn_graph(&root, graph).unwrap_or_else(|refusal| panic!("{n}: {refusal}"));
        world.run(&format!("book{n}"), "ok");
        assert_eq!(world.status(&format!("p{n}")), "completed");
    }
    world.complete(&root, "done").unwrap();
    world.rest();
}

#[test]
fn l_a_long_reason_is_not_kept_with_every_context_that_it_ends() {
    let (mut world, root) = root(256_000_000);
    for n in 0..20 {
        world.spawn(&root, json!({"goal": n.to_string(), "child_id": format!("c{n}")})).unwrap();
    }
    let before = world.trace.content_bytes();
    let reason = Some(text(60_000));
    world.handle(Command::Cancel { child_id: None, reason, without_undo: false }).unwrap();
    assert!(world.trace.content_bytes() < before + 21 * 2_100, "{}", world.trace.content_bytes());
    let reason = world.node("c7").end().unwrap().details.reason.clone().unwrap();
    assert!(reason.starts_with("ended with `root`: xxx") && reason.ends_with('…'), "{reason}");
    world.rest();
}

#[test]
fn l_a_trace_that_is_read_has_the_default_and_its_count() {
    let (mut world, root) = root(256_000_000);
    world.spawn(&root, json!({"goal": text(1_000), "child_id": "c"})).unwrap();
    world.tell("root", "hello").unwrap();
    let mut trace = world.trace.clone();
    trace.mark_all_changed();
    let changes = trace.take_changes();
    let stored = |all: Vec<(String, Option<String>)>| {
        all.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
    };
    let (fields, values): (std::collections::HashMap<_, _>, _) =
        (stored(changes.fields), stored(changes.values));
    // A default is not stored.
    assert!(fields.values().all(|text: &String| !text.contains("max_trace_bytes")));
    let read = Trace::from_stored(trace.id(), trace.version(), &fields, &values).unwrap();
    assert_eq!(read.content_bytes(), world.trace.content_bytes());
    assert_eq!(read.root().unwrap().limits.max_trace_bytes, 256_000_000);
}
