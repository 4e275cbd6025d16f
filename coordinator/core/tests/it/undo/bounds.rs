//! Undo with something missing: its agent, its tokens, a worker, or the time to wait for one.

use domain::{
    Amount, Tokens, Usd,
    wire::{UndoReport, UndoStatus},
};
use serde_json::{Value, json};
use trace::Refusal;
use world::World;

use super::{
    super::graph_flow::{expect, queued, step},
    broken_trip, report, undo_status, undoable,
};

fn problems_of(refusal: Refusal) -> Vec<(String, String)> {
    let Refusal::Malformed(problems) = refusal else { panic!("{refusal}") };
    assert!(problems.iter().all(|problem| problem.hint.is_some()), "{problems}");
    problems.iter().map(|problem| (problem.path.clone(), problem.message.clone())).collect()
}

/// A graph that succeeds in part: `a` can be undone, `f` fails.
fn partial(undo: Value) -> World {
    let mut world = World::new();
    world.agent(json!({"agent_id": "gone", "max_cost_usd": 0.1}));
    world
        .submit_graph(json!({"mode": "parallel", "on_partial_success": "continue", "inputs": {"x": 1}, "steps": [
            step("a", json!({"input_from": ["x"], "undo": undo})), step("f", json!({})), step("w", json!({"input_from": ["x"]})),
        ]}))
        .unwrap();
    world.run("a", "ok");
    world.break_it("f");
    world.run("w", "ok");
    world.rest();
    world.agents.retain(|agent| agent.agent_id.as_str() != "gone");
    world
}

#[test]
fn g14_a_step_whose_undo_can_not_run_does_not_run_in_a_rerun_either() {
    for undo in [json!("gone"), json!({"agent_id": "gone", "max_cost_usd": 0.2})] {
        // A step that is taken over needs no undo.
        let mut again = partial(undo.clone()).rerun(json!({})).unwrap();
        assert_eq!(queued(&again), ["f"]);
        again.run("f", "ok");
        assert_eq!(again.status("root"), "completed");
        again.rest();

        // The step reads another value, so it would have to run.
        let mut again = partial(undo).rerun(json!({"inputs": {"x": 2}})).unwrap();
        assert_eq!(queued(&again), ["f", "w"]);
        expect(&again, "root", &[("a", "failed"), ("f", "running"), ("w", "running")]);
        let steps = again.trace.graph_outcome(again.trace.root().unwrap()).unwrap().steps;
        let reason = steps[0].reason.as_deref().unwrap();
        assert!(reason.contains("there is no agent `gone`"), "{reason}");
        again.run("f", "ok");
        again.run("w", "ok");
        again.rest();
    }
}

#[test]
fn g15_nothing_is_taken_from_a_run_while_a_graph_in_it_undoes() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "on_partial_success": "continue", "steps": [
            {"id": "trip", "on_partial_success": "fail", "mode": "sequential",
                "steps": [undoable("a", json!({})), undoable("b", json!({})), step("c", json!({}))]},
            step("other", json!({})),
        ]}));
    ["a", "b"].into_iter().for_each(|name| world.run(name, name));
    world.break_it("c");
    world.claim("other");
    let lease = world.claim("b-undo");
    world.cancel(None).unwrap();
    assert_eq!((world.status("graph").as_str(), world.status("trip").as_str()), ("cancelled", "working"));
    let refused = problems_of(world.rerun(json!({})).map(drop).unwrap_err());
    assert_eq!(refused[0].0, "rerun.trace_id");
    assert!(refused[0].1.contains("is still undoing"), "{refused:?}");
    world.complete(&lease, "ok").unwrap();
    assert!(world.rerun(json!({})).is_err(), "`a` is undone next");
    world.run("a-undo", "ok");
    world.rest();
    let again = world.rerun(json!({})).unwrap();
    assert_eq!(queued(&again), ["a", "other"]);
}

#[test]
fn g14_an_undo_that_no_worker_takes_times_out_and_the_graph_ends() {
    let why = |report: Option<UndoReport>| {
        let report = report.unwrap();
        assert_eq!(report.status, UndoStatus::Failed);
        report.reason.unwrap()
    };
    let mut world = broken_trip();
    world.pass(59_999);
    assert_eq!(world.status("hotel-undo"), "submitted");
    world.pass(1);
    assert_eq!(world.status("hotel-undo"), "timed_out", "the default timeout is 60 seconds");
    assert_eq!(queued(&world), ["flight-undo"], "the timeout of an undo begins with its own turn");
    world.pass(59_999);
    let lease = world.claim("flight-undo");
    // Its timeout begins with its first attempt.
    for _ in 0..10 {
        world.pass(5_000);
        world.tick(&lease, Default::default()).unwrap();
    }
    world.complete(&lease, "ok").unwrap();
    assert_eq!(world.status("graph"), "failed");
    let said = "no worker of the pool `default` took `hotel-undo` within timeout_ms = 60000 (the default); set `timeout_ms` in the `undo` of the step";
    let why_not = why(report(&world, "hotel"));
    assert!(why_not.starts_with(said), "{why_not}");
    assert_eq!(undo_status(&world, "flight"), Some(UndoStatus::Undone));
    world.rest();

    // A shorter bound of the run applies instead.
    let mut graph = super::trip();
    graph["limits"] = json!({"max_queue_ms": 3_000});
    let mut world = World::with_graph(graph);
    world.run("flight", "ok");
    world.break_it("hotel");
    world.pass(3_000);
    let why_not = why(report(&world, "flight"));
    let said = "no worker of the pool `default` took `flight-undo` within max_queue_ms = 3000 (the submission); raise `limits.max_queue_ms` in the submission";
    assert_eq!(why_not, said);
    world.rest();

    // The outcome of a race waits for the undo of the loser, but not for ever.
    let undo = json!({"undo": {"agent_id": "editor", "max_cost_usd": 0.1, "timeout_ms": 2_000}});
    let mut world = World::with_graph(json!({"race": true, "mode": "parallel", "steps": [
        {"id": "slow", "mode": "sequential", "steps": [step("a", undo), step("b", json!({}))]},
        step("fast", json!({})),
    ]}));
    world.run("a", "ok");
    world.run("fast", "won");
    assert_eq!(
        (world.status("graph").as_str(), world.node("graph").lifecycle.outcome_due),
        ("completed", true)
    );
    world.pass(2_000);
    assert_eq!(
        (world.status("a-undo").as_str(), world.node("graph").lifecycle.outcome_due),
        ("timed_out", false)
    );
    let said = "no worker of the pool `default` took `a-undo` within timeout_ms = 2000 (the `undo` of the step); raise `timeout_ms` in the `undo` of the step";
    assert_eq!(why(report(&world, "a")), said);
    world.rest();
}

#[test]
fn g14_an_undo_names_its_tokens_if_any_above_its_graph_are_bounded() {
    let graph = || json!({"child_id": "p", "steps": [undoable("a", json!({})), step("b", json!({}))]});
    let needs_tokens = |refusal: Refusal| {
        let problems = problems_of(refusal);
        assert_eq!(problems[0].0, "steps[0].undo.max_tokens");
        assert_eq!(problems.len(), 1, "{problems:?}");
    };
    // The ceiling of the caller, then that of the agent above it.
    let mut world = World::with_root(json!({"max_tokens": 6_000}));
    let root = world.claim("root");
    needs_tokens(world.spawn_graph(&root, graph()).unwrap_err());
    world.spawn(&root, json!({"child_id": "helper", "goal": "help"})).unwrap();
    let helper = world.claim("helper");
    needs_tokens(world.spawn_graph(&helper, graph()).unwrap_err());
    // Without a token ceiling no reserve is needed, even if tokens were spent already.
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.pay(&root, "call", Amount::new(Usd::from_cents(1), Tokens::new(500))).unwrap();
    world.spawn(&root, json!({"child_id": "helper", "goal": "help"})).unwrap();
    let helper = world.claim("helper");
    world.spawn_graph(&helper, graph()).unwrap();

    // The deployment's ceiling.
    let mut world = World::new();
    world.settings.root_budget.tokens = Tokens::new(100_000);
    needs_tokens(world.submit_graph(graph()).unwrap_err());
    let mut world = World::new();
    world.settings.maximum.max_tokens = Some(Tokens::new(100_000));
    needs_tokens(world.submit_graph(graph()).unwrap_err());
    // The profile of the undo's agent may name the tokens.
    world.agent(json!({"agent_id": "editor", "max_tokens": 500}));
    world.submit_graph(graph()).unwrap();
    assert_eq!(world.node("p").budget.held.tokens, Tokens::new(500));
    world.run("a", "ok");
    world.break_it("b");
    world.run("a-undo", "ok");
    world.rest();
}

#[test]
fn g14_a_step_that_reads_result_has_no_undo() {
    let graph = json!({"inputs": {"result": 1}, "steps": [
        undoable("a", json!({"input_from": ["result"]})), step("b", json!({"input_from": ["result"]})),
    ]});
    let problems = problems_of(World::new().submit_graph(graph).unwrap_err());
    assert_eq!(problems.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["steps[0].undo"]);
}

#[test]
fn g14_a_success_within_the_loser_of_a_race_is_not_undone_and_the_report_says_so() {
    let mut world = World::with_graph(json!({"mode": "sequential", "inputs": {"list": [1, 2]}, "steps": [
        {"id": "race", "race": true, "mode": "parallel", "steps": [
            undoable("each", json!({"for_each": "list"})), undoable("fast", json!({})),
        ]},
        step("after", json!({})),
    ]}));
    world.run("each-1", "one");
    world.run("fast", "won");
    assert_eq!((world.status("race").as_str(), undo_status(&world, "each")), ("completed", None));
    world.run("after", "ok");
    assert_eq!(world.status("graph"), "completed");
    let undo = report(&world, "each").unwrap();
    assert_eq!(undo.status, UndoStatus::Dropped);
    assert!(undo.reason.as_deref().unwrap().contains("its step did not succeed"), "{undo:?}");
    assert_eq!(undo_status(&world, "fast"), None);
    let outcome = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(outcome.undo_failed.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["each"]);
    world.rest();

    // A round of a loop, and a step that is undone later with the graph around it.
    let mut world = World::with_graph(json!({"mode": "sequential", "steps": [
        {"id": "race", "race": true, "mode": "parallel", "steps": [
            undoable("rounds", json!({"loop": {"max_rounds": 3}})), step("fast", json!({})),
        ]},
        step("after", json!({})),
    ]}));
    let first = queued(&world)[0].clone();
    world.run(&first, "one");
    world.run("fast", "won");
    world.break_it("after");
    assert_eq!(undo_status(&world, "rounds"), Some(UndoStatus::Running));
    world.run(&format!("{first}-undo"), "ok");
    assert_eq!(
        (world.status("graph").as_str(), undo_status(&world, "rounds")),
        ("failed", Some(UndoStatus::Undone))
    );
    world.rest();

    // A surrounding group undoes.
    let mut world = World::with_graph(
        json!({"race": true, "mode": "parallel", "inputs": {"list": [1, 2]}, "steps": [
            {"id": "group", "steps": [undoable("each", json!({"for_each": "list"}))]}, step("fast", json!({})),
        ]}),
    );
    world.run("each-1", "one");
    world.run("fast", "won");
    assert_eq!(queued(&world), ["each-1-undo"]);
    world.run("each-1-undo", "ok");
    assert_eq!(undo_status(&world, "each"), Some(UndoStatus::Undone));
    world.rest();

    // A step that `aggregate` did not wait for.
    let mut world = World::with_graph(
        json!({"mode": "parallel", "inputs": {"list": [1, 2]}, "aggregate": {"timeout_ms": 5_000}, "agent_id": "critic",
        "steps": [undoable("each", json!({"for_each": "list"})), step("c", json!({}))]}),
    );
    world.run("each-1", "one");
    world.run("c", "ok");
    world.pass(5_000);
    world.run("graph", "what there is");
    assert_eq!(undo_status(&world, "each"), Some(UndoStatus::Dropped));
    world.rest();
}
