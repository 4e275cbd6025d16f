//! Aggregation (G6) and steps that ask a human (G7).

use domain::{
    Json,
    wire::{Answer, GraphVerdict, Hold, Payload, Verdict},
};
use serde_json::{Value, json};
use trace::{Effect, Event, effects};
use world::{World, cents, id, with};

use super::{expect, queued, step, verdict};

fn research(more: Value) -> World {
    let researcher = |n: u32| json!({"agent_id": "researcher", "task_description": format!("aspect {n}")});
    World::with_graph(with(
        json!({
            "mode": "parallel", "agent_id": "editor", "task_description": "Report on ants.", "aggregate": {},
            "on_partial_success": "continue",
            "steps": [researcher(1), researcher(2), researcher(3), researcher(4)],
        }),
        more,
    ))
}

#[test]
fn g6_aggregate_merges_duplicates_with_their_authors_and_the_graphs_agent_synthesises() {
    let mut world = research(json!({}));
    world.run("researcher-1", "ants dig");
    world.run("researcher-2", "ants fly");
    world.run("researcher-3", "ants dig");
    assert_eq!(queued(&world), ["researcher-4"]);
    let lease = world.claim("researcher-4");
    let failure = domain::wire::Failure {
        kind: domain::wire::FailureKind::Agent,
        message: "no".into(),
        retryable: false,
    };
    let events = world.report(&lease, domain::wire::Verdict::Failed(failure)).unwrap();
    let sent = effects(&world.trace, &events);
    assert!(sent.contains(&Effect::Execute { child_id: id("graph"), attempt: 1 }), "{sent:?}");
    let work = world.work(&id("graph")).unwrap();
    assert_eq!(work.agent.agent_id.as_str(), "editor");
    assert_eq!(
        work.goal.as_str(),
        "Report on ants.\n\nSynthesize these findings:\nResearcher 1 (also Researcher 3): ants dig\n\n\
         Researcher 2: ants fly\n\nMissing, with no result: researcher-4"
    );
    assert!(work.inputs.is_empty() && work.children.is_empty(), "the synthesis has only its own context");
    world.run("graph", "ants dig and fly");
    let outcome = serde_json::to_value(world.trace.outcome(&id("graph")).unwrap()).unwrap();
    assert_eq!(outcome["result"], "ants dig and fly");
    assert_eq!(outcome["graph"]["verdict"], "partial");
    world.rest();
}

#[test]
fn g6_aggregate_waits_for_all_or_its_timeout() {
    let mut world = research(json!({"aggregate": {"timeout_ms": 5000}, "on_partial_success": "fail"}));
    world.run("researcher-2", "ants fly");
    world.pass(5000);
    let expected = [
        ("researcher-1", "timed_out"),
        ("researcher-2", "succeeded"),
        ("researcher-3", "timed_out"),
        ("researcher-4", "timed_out"),
    ];
    expect(&world, "graph", &expected);
    let goal = world.work(&id("graph")).unwrap().goal.to_string();
    assert!(
        goal.contains("Researcher 2: ants fly") && goal.contains("Missing, with no result: researcher-1"),
        "{goal}"
    );
    world.run("graph", "what there is");
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Partial));
    world.rest();

    let mut world = research(json!({"aggregate": {"timeout_ms": 5000}}));
    world.pass(5000);
    assert_eq!(world.status("graph"), "failed", "no step succeeded in time");
    world.rest();
}

#[test]
fn g7_a_step_that_asks_parks_and_the_others_go_on() {
    let mut world = World::with_graph(
        json!({"mode": "parallel", "steps": [step("asks", json!({})), step("works", json!({}))]}),
    );
    let asks = world.claim("asks");
    world.ask_human(&asks, "red or blue?").unwrap();
    world.run("works", "ok");
    world.pass(1_000_000);
    assert_eq!(world.trace.question(&id("asks")).unwrap().path, [id("graph"), id("asks")]);
    world.answer("asks", 1, "blue").unwrap();
    world.run("asks", "blue it is");
    assert_eq!(world.status("graph"), "completed");
    world.rest();

    let mut world = World::with_graph(
        json!({"hitl": "fail", "on_partial_success": "continue", "steps": [step("asks", json!({})), step("works", json!({}))]}),
    );
    let asks = world.claim("asks");
    world.ask_human(&asks, "red or blue?").unwrap();
    world.run("works", "ok");
    expect(&world, "graph", &[("asks", "failed"), ("works", "succeeded")]);
}

/// The profile of a graph's own agent bounds money, limits and time of its synthesis, but not of
/// its steps.
#[test]
fn b17_the_profile_of_a_graphs_own_agent_binds_its_synthesis() {
    let mut world = World::new();
    world.agent(json!({
        "agent_id": "editor", "max_cost_usd": 0.1, "timeout_ms": 5000, "limits": {"max_steps": 3},
    }));
    let step = |n: u32| json!({"agent_id": "researcher", "task_description": format!("aspect {n}")});
    world
        .submit_graph(json!({
            "child_id": "graph", "mode": "parallel", "agent_id": "editor", "aggregate": {}, "max_cost_usd": 1,
            "task_description": "Report.", "on_exhausted": "pause", "steps": [step(1), step(2)],
        }))
        .unwrap();
    let lease = world.claim("researcher-1");
    world.hold(&lease, "1", cents(30)).unwrap();
    world.settle(&lease, "1", cents(30)).unwrap();
    world.complete(&lease, "found").unwrap();
    assert_eq!(world.node("graph").limits.max_steps, 20, "the steps have their own limit");
    world.run("researcher-2", "found too");

    let node = world.node("graph");
    let own = node.lifecycle.own_limit.map(|own| own.cost_usd);
    assert_eq!((node.budget.ceilings.limit.cost_usd, own), (cents(100).cost_usd, Some(cents(10).cost_usd)));
    assert_eq!(node.limits.max_steps, 3);
    let lease = world.claim("graph");
    assert_eq!(world.node("graph").lifecycle.deadline, Some(world.now.plus_millis(5000)));
    world.hold(&lease, "1", cents(11)).unwrap_err();
    world.hold(&lease, "1", cents(6)).unwrap();
    let (lease_of_it, call_id) = (lease.clone(), "2".parse().unwrap());
    let answer =
        world.ask_hold(Hold { lease: lease_of_it, call_id, amount: cents(5), closing: false, seen: None });
    assert!(matches!(answer, Answer::Wait(_)), "the hold does not wait for the call in flight: {answer:?}");
    world.settle(&lease, "1", cents(6)).unwrap();
    let events = world.hold(&lease, "2", cents(5)).unwrap();
    assert!(
        matches!(events[..], [Event::PlaceLost { .. }]),
        "the hold keeps its place, although it can't fit: {events:?}"
    );
    world.hold(&lease, "3", cents(4)).unwrap();
    world.settle(&lease, "3", cents(4)).unwrap();
    world.raise("graph", 120).unwrap();
    world.hold(&lease, "4", cents(21)).unwrap_err();
    world.hold(&lease, "5", cents(20)).unwrap();
    world.settle(&lease, "5", cents(5)).unwrap();
    world.complete(&lease, "all").unwrap();
    world.rest();
}

/// The closing reserve in the profile of a graph's own agent is not available to the steps or to
/// ordinary calls of the synthesis, also within a ceiling of that profile. A reserve in the graph
/// replaces it.
#[test]
fn b7_a_synthesis_has_the_closing_reserve_of_its_agents_profile() {
    let step = |n: u32| json!({"agent_id": "researcher", "task_description": format!("aspect {n}")});
    for (profile_usd, graph_reserve, kept) in
        [(None, None, 20), (Some(0.5), None, 20), (Some(0.5), Some(0.1), 10), (None, Some(0.3), 30)]
    {
        let mut world = World::new();
        world.agent(json!({"agent_id": "editor", "max_cost_usd": profile_usd, "closing_reserve_usd": 0.2}));
        world
            .submit_graph(json!({
                "child_id": "graph", "agent_id": "editor", "aggregate": {}, "max_cost_usd": 1,
                "task_description": "Report.", "closing_reserve_usd": graph_reserve, "steps": [step(1)],
            }))
            .unwrap();
        let lease = world.claim("researcher");
        world.hold(&lease, "1", cents(101 - kept)).unwrap_err();
        let spent = if profile_usd.is_some() { 30 } else { 95 - kept };
        world.pay(&lease, "2", cents(spent)).unwrap();
        world.complete(&lease, "found").unwrap();

        let lease = world.claim("graph");
        let left = if profile_usd.is_some() { 50 } else { 100 - spent };
        world.hold(&lease, "1", cents(left - kept + 1)).unwrap_err();
        world.pay(&lease, "2", cents(left - kept)).unwrap();
        world.hold(&lease, "3", cents(1)).unwrap_err();
        world.hold_to_close(&lease, "4", cents(kept)).unwrap();
        world.settle(&lease, "4", cents(kept)).unwrap();
        world.report(&lease, Verdict::LastReport(Payload::Inline(Json::from("half")))).unwrap();
        assert_eq!(world.status("graph"), "aborted");
        world.rest();
    }
}

/// The reserve of a group's own agent is not available to the group's steps either.
#[test]
fn b7_the_synthesis_of_a_group_has_its_agents_closing_reserve() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "editor", "closing_reserve_usd": 0.2}));
    let inner = json!({"id": "a", "agent_id": "researcher", "task_description": "look"});
    let group = json!({"id": "group", "agent_id": "editor", "task_description": "Report.", "aggregate": {},
        "max_cost_usd": 0.5, "steps": [inner]});
    world.submit_graph(json!({"child_id": "graph", "max_cost_usd": 1, "steps": [group]})).unwrap();
    let lease = world.claim("a");
    world.hold(&lease, "1", cents(31)).unwrap_err();
    world.pay(&lease, "2", cents(30)).unwrap();
    world.complete(&lease, "found").unwrap();
    let lease = world.claim("group");
    world.hold(&lease, "1", cents(1)).unwrap_err();
    world.hold_to_close(&lease, "2", cents(20)).unwrap();
}

/// The first success wins and the other steps are cancelled. The graph's own agent gets only the
/// winner's result.
#[test]
fn g6_the_synthesis_of_a_race_has_the_winners_finding() {
    let race = || {
        World::with_graph(json!({
            "race": true, "agent_id": "editor", "task_description": "Write it up.", "aggregate": {"timeout_ms": 1000},
            "inputs": {"items": [1, 2]},
            "steps": [step("many", json!({"for_each": "items"})), step("slow", json!({})), step("fast", json!({}))],
        }))
    };
    let mut world = race();
    let slow = world.claim("slow");
    world.hold(&slow, "c1", cents(3)).unwrap();
    world.run("many-1", "half of it");
    world.run("fast", "F");
    expect(&world, "graph", &[("many", "cancelled"), ("slow", "cancelled"), ("fast", "succeeded")]);
    assert_eq!(["many-2", "slow"].map(|c| world.status(c)), ["cancelled", "cancelled"]);
    let goal = world.work(&id("graph")).unwrap().goal.to_string();
    assert_eq!(goal, "Write it up.\n\nSynthesize these findings:\nWriter: F");
    world.settle(&slow, "c1", cents(2)).ok();
    world.run("graph", "written up");
    assert_eq!(verdict(&world), GraphVerdict::Succeeded);
    world.rest();

    let mut world = race();
    world.pass(1000);
    assert_eq!(world.status("graph"), "failed", "without a winner the synthesis does not run");
}

#[test]
fn g6_a_long_list_of_missing_steps_leaves_room_for_the_findings() {
    let name = |n: usize| format!("a-step-with-a-name-that-people-would-give-it-{n:05}");
    let steps: Vec<Value> = (0..1_500).map(|n| step(&name(n), json!({}))).collect();
    let mut world = World::new();
    world
        .submit_graph(json!({"child_id": "graph", "mode": "parallel", "agent_id": "editor", "task_description": "Report.",
            "aggregate": {"timeout_ms": 5000}, "on_partial_success": "continue", "steps": steps}))
        .unwrap();
    world.measured();
    world.run(&name(0), "ants dig");
    world.pass(5000);
    let goal = world.work(&id("graph")).unwrap().goal.to_string();
    assert!(goal.contains("ants dig"), "{} bytes, without the finding", goal.len());
}
