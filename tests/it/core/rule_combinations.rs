//! Where rules meet: pauses and graphs, races and money, humans and clocks, loops and old values.

use coordinator::trace::{Command, Refusal};
use serde_json::{Value, json};
use shared::{
    Json, Usd,
    wire::{FailureKind, GraphVerdict, Progress, StepStatus, Verdict},
};
use trellis_tests::{
    World,
    world::{cents, id, with},
};

fn step(name: &str, more: Value) -> Value {
    with(json!({"id": name, "agent_id": "researcher", "task_description": format!("do {name}")}), more)
}

/// A graph on ten cents that pauses when they are spent.
fn pausing(steps: Value, more: Value) -> World {
    World::with_graph(with(json!({"max_cost_usd": 0.1, "on_exhausted": "pause", "steps": steps}), more))
}

fn verdict(world: &World) -> GraphVerdict {
    world.trace.graph_outcome(world.trace.root().unwrap()).unwrap().verdict
}

#[test]
fn b8_a_step_that_uses_up_a_pausing_graph_pauses_and_follows_the_raise() {
    for paid in [9, 10] {
        let mut world = pausing(json!([step("a", json!({})), step("b", json!({}))]), json!({}));
        let a = world.claim("a");
        world.pay(&a, "c1", cents(paid)).unwrap();
        let no = world.hold(&a, "c2", cents(5)).unwrap_err();
        assert!(matches!(no, Refusal::Denied(_) | Refusal::Halted { pause: true, .. }), "{no}");
        world.report(&a, Verdict::OutOfBudget).unwrap();
        assert_eq!(["a", "graph"].map(|c| world.status(c)), ["paused", "working"]);
        world.raise("graph", 100).unwrap();
        assert_eq!(
            world.node("a").budget.limit.cost_usd,
            Usd::from_cents(100),
            "its ceiling was the graph's"
        );
        let again = world.claim("a");
        world.pay(&again, "c2", cents(5)).unwrap();
        world.complete(&again, "ok").unwrap();
        world.run("b", "ok");
        assert_eq!(world.status("graph"), "completed");
        world.rest();
    }
}

#[test]
fn b8_a_ceiling_of_its_own_does_not_follow_a_raise() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "own", "max_cost_usd": 0.5})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "left"})).unwrap();
    world.raise("root", 300).unwrap();
    let limit = |c: &str| world.node(c).budget.limit.cost_usd;
    assert_eq!(["own", "left"].map(limit), [50, 300].map(Usd::from_cents));
}

#[test]
fn b8_another_round_or_a_fallback_waits_for_the_raise_like_any_step() {
    for (name, extra) in [("a-r1", json!({"loop": {"max_rounds": 2}})), ("a", json!({"fallback": "writer"}))]
    {
        let mut world = pausing(json!([step("a", extra)]), json!({}));
        let lease = world.claim(name);
        world.charge("graph", "k", cents(10)).unwrap();
        if name == "a" { world.fail(&lease, false) } else { world.complete(&lease, "x") }.unwrap();
        assert_eq!(world.status("graph"), "paused", "{name}");
        world.raise("graph", 100).unwrap();
        let next = world.queued()[0].clone();
        world.run(next.as_str(), "ok");
        assert_eq!(world.status("graph"), "completed");
        world.rest();
    }
}

#[test]
fn b8_a_graph_down_to_its_reserve_pauses_too() {
    let steps = json!([step("a", json!({"max_cost_usd": 0.06})), step("b", json!({}))]);
    let mut world = pausing(steps, json!({"closing_reserve_usd": 0.05}));
    let a = world.claim("a");
    world.pay(&a, "c", cents(5)).unwrap();
    world.complete(&a, "x").unwrap();
    assert_eq!(world.status("graph"), "paused");
    world.raise("graph", 100).unwrap();
    world.run("b", "ok");
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn b8_b10_a_correction_that_leaves_something_resumes_what_paused() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let zombie = world.claim("root");
    world.hold(&zombie, "c", cents(10)).unwrap();
    world.pass(10_000);
    let lease = world.claim("root");
    world.resume(&lease, &[]).unwrap();
    world.report(&lease, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("root"), "paused");
    world.settle(&zombie, "c", cents(1)).unwrap();
    assert_eq!((world.status("root").as_str(), world.spent_cents("root")), ("working", 1));
}

#[test]
fn b8_raising_an_overspent_grant_asks_for_what_its_claim_grows_by() {
    let mut world = World::with_root(json!({"max_cost_usd": 2}));
    let root = world.claim("root");
    let grant = json!({"goal": "a", "child_id": "a", "max_cost_usd": 1, "funding": "granted", "on_exhausted": "pause"});
    world.spawn(&root, grant).unwrap();
    world.charge("a", "k", cents(150)).unwrap();
    world.raise("a", 200).unwrap();
    assert_eq!(world.node("root").budget.held, cents(50));
}

#[test]
fn b12_an_abort_above_reaches_what_is_paused() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    let child = json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.1, "on_exhausted": "pause"});
    world.spawn(&root, child).unwrap();
    world.wait(&root, &["a"]).unwrap();
    let a = world.claim("a");
    world.pay(&a, "c", cents(10)).unwrap();
    world.report(&a, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("a"), "paused");
    world.charge("root", "k", cents(90)).unwrap();
    assert_eq!(["a", "root"].map(|c| world.status(c)), ["aborted", "aborted"]);
    world.rest();
}

#[test]
fn b12_what_is_aborted_does_not_park_for_a_human() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    world.pay(&root, "c", cents(10)).unwrap();
    world.ask_human(&root, "more?").unwrap();
    assert_eq!(world.status("root"), "aborted");
}

#[test]
fn b9_a_resume_that_tells_of_a_call_twice_is_refused() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.hold(&root, "c", cents(10)).unwrap();
    let twice = world.resume(&root, &[("c", cents(5)), ("c", cents(7))]).unwrap_err();
    assert!(matches!(twice, Refusal::CallConflict(_)));
}

#[test]
fn b2_a_resume_whose_costs_fit_one_by_one_but_not_together_is_refused() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let names: Vec<String> = (0..9).map(|n| format!("c{n}")).collect();
    let million = shared::Amount::cost(Usd::MAX);
    let costs: Vec<_> = names.iter().map(|name| (name.as_str(), million)).collect();
    assert_eq!(world.resume(&root, &costs).unwrap_err(), Refusal::BooksFull);
    // Nor where it is what was spent before that makes it too much.
    for n in 0..4 {
        world.charge("root", &format!("k{n}"), million).unwrap();
    }
    assert_eq!(world.resume(&root, &costs[..5]).unwrap_err(), Refusal::BooksFull);
    world.resume(&root, &costs[..4]).unwrap();
}

#[test]
fn l_a_graph_that_may_have_no_children_is_refused() {
    let mut world = World::new();
    let refused = world
        .submit_graph(json!({"limits": {"max_children": 0}, "steps": [step("a", json!({}))]}))
        .unwrap_err();
    assert!(matches!(refused, Refusal::MaxChildren { max: 0, .. }));
}

#[test]
fn l_what_a_graph_brings_into_the_store_is_bounded() {
    let mut world = World::new();
    world.settings.limits.max_context_value_bytes = 1000;
    world.settings.limits.max_context_store_bytes = 1500;
    world.submit(json!({"goal": "g", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    let mut run = |name: &str, size: usize| {
        let inputs = json!({"x": "y".repeat(size)});
        world.spawn_graph(
            &root,
            json!({"child_id": name, "inputs": inputs, "steps": [step(&format!("s-{name}"), json!({}))]}),
        )
    };
    assert!(matches!(
        run("large", 1000).unwrap_err(),
        Refusal::TooLarge { limit: "max_context_value_bytes", .. }
    ));
    run("one", 900).unwrap();
    assert!(matches!(
        run("two", 900).unwrap_err(),
        Refusal::TooLarge { limit: "max_context_store_bytes", .. }
    ));
}

#[test]
fn g1_a_fallback_keeps_its_place_when_places_are_few() {
    let mut world = World::new();
    world.settings.limits.max_children = 2;
    let fallback = json!({"agent_id": "writer", "task_description": "instead"});
    world
        .submit_graph(json!({"mode": "parallel", "on_partial_success": "continue", "steps": [
            step("a", json!({"timeout_ms": 1000})),
            {"id": "i", "on_partial_success": "fail", "fallback": fallback, "steps": [step("z", json!({"timeout_ms": 1000}))]},
            step("c", json!({})),
            step("d", json!({})),
        ]}))
        .unwrap();
    world.pass(1000);
    while let Some(next) = world.queued().first().cloned() {
        world.run(next.as_str(), "ok");
    }
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert!(
        report.steps[1].fallback && report.steps[1].status == StepStatus::Succeeded,
        "{:?}",
        report.steps[1]
    );
    world.rest();
}

#[test]
fn g1_results_are_there_for_whoever_reads_them() {
    let items = json!({"inputs": {"list": [1, 2]}, "steps": [{"id": "g", "output_to": "out", "steps": [step("e", json!({"for_each": "list"}))]}]});
    let mut world = World::with_graph(items);
    world.run("e-1", "A");
    world.run("e-2", "B");
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap()["out"], json!({"e": ["A", "B"]}));

    let group = |name: &str| json!({"id": format!("g-{name}"), "steps": [step(name, json!({}))]});
    let mut world = World::with_graph(json!({"race": true, "steps": [group("a"), group("b")]}));
    world.run("a", "A");
    let outcome = serde_json::to_value(world.trace.outcome(&id("graph")).unwrap()).unwrap();
    assert_eq!(outcome["result"], json!({"a": "A"}));
}

#[test]
fn g10_an_agent_gets_what_its_pipeline_wrote() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world
        .spawn_graph(&root, json!({"child_id": "p", "steps": [step("a", json!({"output_to": "x"}))]}))
        .unwrap();
    world.wait(&root, &["p"]).unwrap();
    world.run("a", "found");
    let work = world.work(&id("root")).unwrap();
    let children = serde_json::to_value(&work.children).unwrap();
    assert_eq!(children[0]["result"]["inline"], json!({"x": "found"}));
}

#[test]
fn g10_a_result_that_was_handed_over_must_fit_the_schema_too() {
    let mut world = World::with_root(json!({"output_schema": {"type": "object"}}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.report(&root, Verdict::Waiting { children: vec![id("a")], hand_over: true }).unwrap();
    world.run("a", "a string");
    assert_eq!(world.node("root").end().unwrap().error.as_ref().unwrap().kind, FailureKind::OutputSchema);
}

#[test]
fn c_a_spawned_agents_result_is_written_and_what_it_did_not_complete_is_not() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    for child in ["good", "bad"] {
        world.spawn(&root, json!({"goal": child, "child_id": child, "output_to": child})).unwrap();
        let lease = world.claim(child);
        let (writer, key) = (lease.clone(), child.parse().unwrap());
        world.handle(Command::SetValue { lease: writer, key, value: Json::from("half") }).unwrap();
        if child == "good" { world.complete(&lease, "whole") } else { world.fail(&lease, false) }.unwrap();
    }
    assert_eq!(world.trace.values()["good"].value.value(), "whole");
    assert!(!world.trace.values().contains_key("bad"));
}

#[test]
fn g4_what_a_failed_step_wrote_is_nobodys_input_and_no_output() {
    let graph = json!({"on_partial_success": "continue", "steps": [
        {"id": "g", "steps": [step("w", json!({"output_to": "x"}))]},
        step("r", json!({"input_from": ["x"]})),
        step("c", json!({"when": "outputs.x == 'half'"})),
        step("other", json!({})),
    ]});
    let mut world = World::with_graph(graph);
    let w = world.claim("w");
    let (lease, key) = (w.clone(), "x".parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: Json::from("half") }).unwrap();
    world.fail(&w, false).unwrap();
    world.run("other", "ok");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    let statuses: Vec<_> = report.steps.iter().map(|step| step.status).collect();
    assert_eq!(
        statuses,
        [StepStatus::Failed, StepStatus::Skipped, StepStatus::Skipped, StepStatus::Succeeded]
    );
    assert!(report.outputs.is_empty() && world.trace.outputs().is_empty());
}

#[test]
fn g1_a_when_may_look_back_at_the_round_before() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "loop": {"max_rounds": 2}, "steps": [
            step("author", json!({"when": "!has(outputs.review) || outputs.review == 'bad'"})),
            step("critic", json!({"output_to": "review"})),
        ]},
    ]}));
    world.run("author", "a draft");
    world.run("critic", "good");
    assert!(
        world.queued()[0].as_str().starts_with("critic"),
        "the author is not needed again: {:?}",
        world.queued()
    );
}

#[test]
fn b6_who_was_granted_all_can_use_it() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world
        .spawn(&root, json!({"goal": "a", "child_id": "a", "max_cost_usd": 1, "funding": "granted"}))
        .unwrap();
    let a = world.claim("a");
    world.spawn(&a, json!({"goal": "b", "child_id": "b"})).unwrap();
    let b = world.claim("b");
    world.pay(&b, "c", cents(99)).unwrap();
    assert!(matches!(world.spawn(&root, json!({"goal": "c"})).unwrap_err(), Refusal::NothingLeft { .. }));

    let group = json!({"id": "g", "max_cost_usd": 1, "funding": "granted", "steps": [step("s", json!({}))]});
    let mut world = World::with_graph(json!({"max_cost_usd": 1, "on_exhausted": "pause", "steps": [group]}));
    world.run("s", "ok");
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn b8_a_graph_that_paused_for_what_was_carved_out_goes_on_when_that_returns() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "max_cost_usd": 1, "on_exhausted": "pause", "steps": [
            {"id": "g", "steps": [step("x1", json!({})), step("x2", json!({}))]},
            step("c", json!({"max_cost_usd": 1, "funding": "granted"})),
        ]}));
    world.run("x1", "ok");
    assert_eq!(world.status("g"), "paused", "all is carved out for `c`");
    world.run("c", "ok");
    world.run("x2", "ok");
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

#[test]
fn b8_a_graph_down_to_its_reserve_goes_on_when_a_correction_leaves_something() {
    let steps = json!([step("a", json!({"max_cost_usd": 0.06})), step("b", json!({}))]);
    let mut world = pausing(steps, json!({"closing_reserve_usd": 0.05}));
    let zombie = world.claim("a");
    world.hold(&zombie, "c", cents(5)).unwrap();
    world.pass(10_000);
    let a = world.claim("a");
    world.resume(&a, &[]).unwrap();
    world.complete(&a, "x").unwrap();
    assert_eq!(world.status("graph"), "paused");
    world.settle(&zombie, "c", cents(1)).unwrap();
    world.run("b", "ok");
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn b5_after_a_raise_of_one_dimension_the_other_is_named() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "max_tokens": 10, "on_exhausted": "pause"}));
    let root = world.claim("root");
    world.pay(&root, "c", shared::Amount::new(Usd::from_cents(10), shared::Tokens::new(10))).unwrap();
    world.raise("root", 100).unwrap();
    let halted = world.hold(&root, "d", cents(1)).unwrap_err();
    assert!(matches!(halted, Refusal::Halted { dimension: shared::Dimension::Tokens, .. }), "{halted}");
}

#[test]
fn g5_a_refused_fallback_leaves_the_status_the_step_had() {
    let mut world =
        World::with_graph(json!({"max_cost_usd": 0.1, "on_partial_success": "continue", "steps": [
            step("a", json!({"fallback": "writer"})),
        ]}));
    let a = world.claim("a");
    world.pay(&a, "c", cents(10)).unwrap();
    world.fail(&a, false).unwrap();
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(report.steps[0].status, StepStatus::Aborted);
    assert!(
        report.steps[0].reason.as_ref().unwrap().contains("its fallback was refused"),
        "{:?}",
        report.steps[0]
    );
}

#[test]
fn c_a_pipeline_can_not_reach_the_keys_of_others() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let (lease, key) = (root.clone(), "root.secret".parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: Json::from("mine") }).unwrap();
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    let steps = json!([
        step("thief", json!({"output_to": "root.secret"})),
        step("reads", json!({"input_from": ["root.secret"]}))
    ]);
    world.spawn_graph(&a, json!({"child_id": "p", "steps": steps})).unwrap();
    world.run("thief", "stolen");
    let seen = world.work(&id("reads")).unwrap().inputs;
    assert_eq!(serde_json::to_value(seen).unwrap(), json!({"root.secret": "stolen"}), "its own, under p");
    assert_eq!(world.trace.values()["root.secret"].value.value(), "mine");
}

#[test]
fn c_an_agent_can_not_give_a_child_keys_it_may_not_use_itself() {
    let mut world = World::with_graph(
        json!({"mode": "parallel", "steps": [step("a", json!({"output_to": "x"})), step("b", json!({}))]}),
    );
    world.run("a", "truth");
    let b = world.claim("b");
    let spawn = |world: &mut World, more: Value| {
        world.spawn(&b, with(json!({"goal": "evil", "child_id": "evil"}), more))
    };
    assert_eq!(spawn(&mut world, json!({"output_to": "x"})).unwrap_err().code().0, "not_writable");
    assert_eq!(spawn(&mut world, json!({"input_from": ["x"]})).unwrap_err().code().0, "not_readable");
    spawn(&mut world, json!({"child_id": "kid", "output_to": "kid.notes"})).unwrap();
    spawn(&mut world, json!({"output_to": "b.notes"})).unwrap();
    world.run("evil", "mine to give");
    assert!(world.trace.read_value(&id("b"), &"b.notes".parse().unwrap()).unwrap().is_some());
}

#[test]
fn g2_a_race_has_nothing_to_aggregate() {
    let mut world = World::new();
    let graph = json!({"race": true, "aggregate": {}, "agent_id": "writer", "steps": [step("a", json!({}))]});
    assert!(world.submit_graph(graph).unwrap_err().to_string().contains("a race can't have `aggregate`"));
}

#[test]
fn g4_a_round_never_reads_what_an_older_one_wrote_unless_it_says_so() {
    // The writer is a sibling, and inputs may be missing: null, not round 1's.
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "on_partial_success": "best_effort", "loop": {"max_rounds": 2}, "steps": [
            step("w", json!({"output_to": "draft"})), step("r", json!({"input_from": ["draft"]})),
        ]},
    ]}));
    world.run("w", "draft of round 1");
    world.run("r", "ok");
    let writer = world.queued()[0].clone();
    world.break_it(writer.as_str());
    let reader = world.queued()[0].clone();
    let inputs = serde_json::to_value(world.work(&reader).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"draft": null}));

    // The same where another step does read the round before's, so that the old value is still there.
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "on_partial_success": "best_effort", "loop": {"max_rounds": 2}, "steps": [
            step("looks-back", json!({"input_from": ["draft"]})),
            step("w", json!({"output_to": "draft"})),
            step("r", json!({"input_from": ["draft"]})),
        ]},
    ]}));
    for name in ["looks-back", "w", "r"] {
        world.run(name, format!("{name} of round 1"));
    }
    let inputs = |world: &World, child| serde_json::to_value(world.work(child).unwrap().inputs).unwrap();
    let looks_back = world.queued()[0].clone();
    assert_eq!(inputs(&world, &looks_back), json!({"draft": "w of round 1"}));
    world.run(looks_back.as_str(), "ok");
    let writer = world.queued()[0].clone();
    world.break_it(writer.as_str());
    let reader = world.queued()[0].clone();
    assert_eq!(inputs(&world, &reader), json!({"draft": null}));

    // The writer is inside a group beside it, and the input is needed: skipped, not run on round 1's.
    let mut world = World::with_graph(json!({"on_partial_success": "continue", "steps": [
        {"id": "g", "loop": {"max_rounds": 2}, "steps": [
            {"id": "in", "required": false, "steps": [step("w", json!({"output_to": "draft"}))]},
            step("r", json!({"input_from": ["draft"]})),
        ]},
    ]}));
    world.run("w", "draft of round 1");
    world.run("r", "ok");
    let writer = world.queued()[0].clone();
    world.break_it(writer.as_str());
    assert!(world.queued().is_empty(), "round 2's reader has no draft");
    world.rest();
}

#[test]
fn g3_until_may_ask_about_the_steps_of_the_round() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "g", "loop": {"max_rounds": 3, "until": "steps.c.status == \"succeeded\""}, "steps": [step("c", json!({}))]},
    ]}));
    world.run("c", "ok");
    assert_eq!(world.status("graph"), "completed");
    assert_eq!(world.trace.contexts().len(), 3, "one round was enough");
}

#[test]
fn g6_the_profile_of_the_synthesis_does_not_govern_the_steps() {
    let mut world = World::new();
    world
        .agent(json!({"agent_id": "writer", "tools": ["fs.read"], "timeout_ms": 1000, "max_cost_usd": 0.01}));
    let steps = json!([step("a", json!({"tools": ["web.search"]})), {"id": "b", "agent_id": "writer", "task_description": "Name it"}]);
    world
        .submit_graph(json!({"mode": "parallel", "task_description": "Name it", "aggregate": {}, "agent_id": "writer", "steps": steps}))
        .unwrap();
    assert_eq!(world.node("graph").budget.limit.cost_usd, Usd::from_cents(100));
    assert_eq!(world.trace.deadline(world.node("graph")), None);
    world.run("a", "A");
    world.run("b", "B");
    let tools = world.work(&id("graph")).unwrap().tools.unwrap();
    assert_eq!(tools.iter().map(ToString::to_string).collect::<Vec<_>>(), ["fs.read"]);
}

#[test]
fn g5_what_was_stopped_did_not_succeed() {
    let mut world = World::new();
    world.cancel(None).unwrap();
    world.submit_graph(json!({"steps": [step("a", json!({}))]})).unwrap();
    assert_eq!(verdict(&world), GraphVerdict::Failed);

    let graph = json!({"timeout_ms": 1000, "on_partial_success": "best_effort", "steps": [step("a", json!({})), step("b", json!({}))]});
    let mut world = World::with_graph(graph);
    world.run("a", "ok");
    world.pass(1000);
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("timed_out", GraphVerdict::Failed));

    let group = json!({"id": "g", "on_partial_success": "continue", "steps": [step("a", json!({})), step("b", json!({}))]});
    let mut world = World::with_graph(json!({"race": true, "steps": [group]}));
    world.break_it("a");
    world.run("b", "B");
    assert_eq!(verdict(&world), GraphVerdict::Partial, "a race won in part");
}

#[test]
fn g6_g7_gathering_does_not_time_out_while_a_human_is_asked() {
    let steps = json!([step("a", json!({})), step("b", json!({}))]);
    let mut world = World::with_graph(
        json!({"mode": "parallel", "aggregate": {"timeout_ms": 10_000}, "agent_id": "writer", "steps": steps}),
    );
    world.run("a", "A");
    let b = world.claim("b");
    world.ask_human(&b, "which?").unwrap();
    world.pass(3_600_000);
    assert_eq!(world.status("b"), "input_required");
    world.answer("b", 1, "that").unwrap();
    world.pass(9_999);
    assert_eq!(world.status("b"), "working");
    world.pass(1);
    assert_eq!(world.status("b"), "timed_out");
}

#[test]
fn g7_a_clock_that_stands_stands_for_the_siblings_too() {
    let steps = json!([step("a", json!({"timeout_ms": 0})), step("b", json!({"timeout_ms": 0}))]);
    let mut world = World::with_graph(json!({"mode": "parallel", "timeout_ms": 100_000, "steps": steps}));
    let a = world.claim("a");
    world.ask_human(&a, "?").unwrap();
    let b = world.claim("b");
    for _ in 0..20 {
        world.pass(9_000);
        world.tick(&b, Progress::default()).unwrap();
    }
    assert_eq!(world.status("b"), "working");
}

#[test]
fn i6_a_thread_id_is_handed_down_unchanged() {
    let mut world = World::with_root(json!({"thread_id": "t1"}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b", "thread_id": "another"})).unwrap();
    for child in ["a", "b"] {
        assert_eq!(world.work(&id(child)).unwrap().thread_id.unwrap().as_str(), "t1");
    }
}

#[test]
fn g2_a_thousand_unknown_keys_are_refused_in_a_moment() {
    let steps: Vec<Value> = (0..5_000)
        .map(|n| step(&format!("s{n}"), json!({"input_from": [format!("misspelt-key-number-{n}")], "output_to": format!("correct-key-number-{n}")})))
        .collect();
    let refused =
        World::new().submit_graph(json!({"mode": "parallel", "steps": steps})).unwrap_err().to_string();
    assert!(refused.contains("and 4950 more"), "{}", &refused[refused.len() - 100..]);
}
