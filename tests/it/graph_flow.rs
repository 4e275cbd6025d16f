//! Section G, running: order, policies, conditions, items, races, loops, fallbacks, aggregation.

use coordinator::trace::{Command, Effect, Event, Refusal, effects};
use serde_json::{Value, json};
use shared::wire::{GraphVerdict, StepStatus};
use trellis_tests::{
    World,
    world::{cents, id, with},
};

fn step(name: &str, more: Value) -> Value {
    with(json!({"id": name, "agent_id": "writer", "task_description": format!("do {name}")}), more)
}

/// Each step's status in a word, `succeeded` and the like.
fn statuses(world: &World, graph: &str) -> Vec<(String, String)> {
    let outcome = world.trace.graph_outcome(world.node(graph)).unwrap();
    let word = |status: StepStatus| serde_json::to_value(status).unwrap().as_str().unwrap().to_owned();
    outcome.steps.iter().map(|step| (step.id.to_string(), word(step.status))).collect()
}

fn expect(world: &World, graph: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    assert_eq!(statuses(world, graph), expected);
}

fn verdict(world: &World) -> GraphVerdict {
    world.trace.graph_outcome(world.trace.root().unwrap()).unwrap().verdict
}

fn queued(world: &World) -> Vec<String> {
    world.queued().iter().map(ToString::to_string).collect()
}

#[test]
fn g1_sequential_steps_run_one_after_another_and_hand_on_their_output() {
    let mut world = World::with_graph(json!({"steps": [
        step("research", json!({"output_to": "facts"})),
        step("write", json!({"input_from": ["facts"], "output_to": "text"})),
    ]}));
    assert_eq!(queued(&world), ["research"]);
    world.run("research", json!(["ants fly"]));
    assert_eq!(queued(&world), ["write"]);
    let work = world.work(&id("write")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"facts": ["ants fly"]}));
    world.run("write", "a story");
    let outcome = serde_json::to_value(world.trace.outcome(&id("graph")).unwrap()).unwrap();
    assert_eq!(outcome["status"], "completed");
    assert_eq!(outcome["outputs"], json!({"facts": ["ants fly"], "text": "a story"}));
    assert_eq!(outcome["graph"]["verdict"], "succeeded");
    assert_eq!(outcome["graph"]["succeeded"], json!(["research", "write"]));
    world.rest();
}

#[test]
fn g1_parallel_steps_run_at_once_and_t4_nothing_starts_before_what_it_needs() {
    let mut world = World::with_graph(json!({"mode": "parallel", "steps": [
        step("join", json!({"input_from": ["a", "b"]})),
        step("one", json!({"output_to": "a"})),
        step("two", json!({"output_to": "b"})),
    ]}));
    assert_eq!(queued(&world), ["one", "two"]);
    world.run("two", 2);
    assert_eq!(queued(&world), ["one"]);
    world.run("one", 1);
    assert_eq!(queued(&world), ["join"]);
    world.run("join", 3);
    expect(&world, "graph", &[("join", "succeeded"), ("one", "succeeded"), ("two", "succeeded")]);
    world.rest();
}

#[test]
fn l_a_graph_starts_no_more_at_once_than_max_children() {
    let mut world = World::new();
    world.settings.limits.max_children = 3;
    let steps: Vec<Value> = (0..10).map(|n| step(&format!("s{n}"), json!({}))).collect();
    world.submit_graph(json!({"mode": "parallel", "steps": steps})).unwrap();
    for done in 0..10 {
        assert_eq!(queued(&world).len(), 3.min(10 - done));
        let next = queued(&world)[0].clone();
        world.run(&next, "ok");
    }
    assert_eq!(verdict(&world), GraphVerdict::Succeeded);
    world.rest();
}

#[test]
fn l_a_graph_with_more_steps_than_contexts_allowed_is_refused() {
    let mut world = World::new();
    world.settings.limits.max_contexts = 3;
    let steps: Vec<Value> = (0..3).map(|n| step(&format!("s{n}"), json!({}))).collect();
    let refused = world.submit_graph(json!({"steps": steps})).unwrap_err();
    assert_eq!(refused, Refusal::MaxContexts { asked: 4, have: 0, max: 3 });
}

#[test]
fn g3_when_false_skips_the_step_and_what_needs_it_and_the_event_shows_what_it_saw() {
    let mut world = World::with_graph(json!({"mode": "parallel", "steps": [
        step("review", json!({"output_to": "review"})),
        step("publish", json!({"when": "outputs.review.score > 0.5", "output_to": "page"})),
        step("announce", json!({"input_from": ["page"]})),
        step("cheer", json!({"depends_on": ["announce"]})),
        step("mend", json!({"when": "outputs.review.score <= 0.5"})),
        step("rich", json!({"when": "budget.remaining_usd > 5.0"})),
    ]}));
    let lease = world.claim("review");
    let events = world.complete(&lease, json!({"score": 0.4})).unwrap();
    let saw: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::ConditionAsked { answer, saw, .. } => {
                Some((answer.clone(), saw.value()["outputs"]["review"].clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(saw, [(Ok(false), json!({"score": 0.4})), (Ok(true), json!({"score": 0.4}))]);
    world.run("mend", "ok");
    expect(
        &world,
        "graph",
        &[
            ("review", "succeeded"),
            ("publish", "skipped"),
            ("announce", "skipped"),
            ("cheer", "skipped"),
            ("mend", "succeeded"),
            ("rich", "skipped"),
        ],
    );
    assert_eq!(verdict(&world), GraphVerdict::Succeeded, "skipping is not failing");
    world.rest();
}

#[test]
fn g3_a_condition_that_can_not_be_asked() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "on_partial_success": "continue", "steps": [
            step("a", json!({"output_to": "x"})),
            step("typed", json!({"when": "outputs.x > 3"})),
            step("absent", json!({"when": "outputs.x.y.z == 1"})),
        ]}));
    world.run("a", json!({"y": {}}));
    expect(&world, "graph", &[("a", "succeeded"), ("typed", "failed"), ("absent", "skipped")]);
    world.rest();
}

fn five(policy: &str) -> World {
    World::with_graph(json!({"mode": "parallel", "on_partial_success": policy, "steps": [
        step("good", json!({"output_to": "g"})),
        step("bad", json!({"output_to": "b"})),
        step("needs-good", json!({"input_from": ["g"]})),
        step("needs-bad", json!({"input_from": ["b"]})),
        step("slow", json!({})),
    ]}))
}

#[test]
fn g4_fail_cancels_what_runs_and_skips_the_rest() {
    let mut world = five("fail");
    let slow = world.claim("slow");
    world.hold(&slow, "c1", cents(1)).unwrap();
    world.break_it("bad");
    expect(
        &world,
        "graph",
        &[
            ("good", "cancelled"),
            ("bad", "failed"),
            ("needs-good", "skipped"),
            ("needs-bad", "skipped"),
            ("slow", "cancelled"),
        ],
    );
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("failed", GraphVerdict::Failed));
    world.rest();
}

#[test]
fn g4_continue_runs_everything_whose_inputs_exist_and_is_partial() {
    let mut world = five("continue");
    world.break_it("bad");
    for name in ["good", "slow", "needs-good"] {
        world.run(name, "ok");
    }
    expect(
        &world,
        "graph",
        &[
            ("good", "succeeded"),
            ("bad", "failed"),
            ("needs-good", "succeeded"),
            ("needs-bad", "skipped"),
            ("slow", "succeeded"),
        ],
    );
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Partial));
    world.rest();
}

#[test]
fn g4_best_effort_gives_null_for_missing_inputs_and_one_success_is_enough() {
    let mut world = five("best_effort");
    world.break_it("bad");
    let work = world.work(&id("needs-bad")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"b": null}));
    for name in ["good", "slow", "needs-good"] {
        world.break_it_if_queued(name);
    }
    world.run("needs-bad", "made do");
    while let Some(next) = world.queued().first().cloned() {
        world.break_it(next.as_str());
    }
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Succeeded));
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(report.failed.len(), 4, "and what failed is still named");
    world.rest();
}

trait BreakIfQueued {
    fn break_it_if_queued(&mut self, name: &str);
}

impl BreakIfQueued for World {
    fn break_it_if_queued(&mut self, name: &str) {
        if self.queued().contains(&id(name)) {
            self.break_it(name);
        }
    }
}

#[test]
fn g4_nothing_succeeded_is_a_failure_under_every_policy() {
    for policy in ["fail", "continue", "best_effort"] {
        let mut world =
            World::with_graph(json!({"on_partial_success": policy, "steps": [step("a", json!({}))]}));
        world.break_it("a");
        assert_eq!(world.status("graph"), "failed", "{policy}");
    }
}

#[test]
fn g4_a_step_that_is_not_required_never_counts_as_failure() {
    let mut world = World::with_graph(json!({"steps": [
        step("extra", json!({"required": false})),
        step("main", json!({})),
    ]}));
    world.break_it("extra");
    world.run("main", "ok");
    assert_eq!((world.status("graph").as_str(), verdict(&world)), ("completed", GraphVerdict::Succeeded));
    world.rest();
}

#[test]
fn g4_seven_of_ten_succeed() {
    for (policy, status, expected) in [
        ("continue", "completed", GraphVerdict::Partial),
        ("best_effort", "completed", GraphVerdict::Succeeded),
        ("fail", "failed", GraphVerdict::Failed),
    ] {
        let steps: Vec<Value> =
            (0..10).map(|n| step(&format!("s{n}"), json!({"output_to": format!("o{n}")}))).collect();
        let mut world =
            World::with_graph(json!({"mode": "parallel", "on_partial_success": policy, "steps": steps}));
        for n in 0..7 {
            world.run(&format!("s{n}"), n);
        }
        for n in 7..10 {
            world.break_it_if_queued(&format!("s{n}"));
        }
        assert_eq!((world.status("graph").as_str(), verdict(&world)), (status, expected), "{policy}");
        let report = world.trace.graph_outcome(world.node("graph")).unwrap();
        assert_eq!((report.succeeded.len(), report.failed.len()), (7, 3), "{policy}");
        assert_eq!(report.outputs.len(), 7);
        world.rest();
    }
}

#[test]
fn g5_every_step_is_reported_with_cost_attempts_and_attribution() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "steps": [step("a", json!({})), step("b", json!({}))]}));
    let a = world.claim("a");
    world.pay(&a, "c1", cents(7)).unwrap();
    world.pass(10_000);
    let again = world.claim("a");
    world.pay(&again, "c2", cents(2)).unwrap();
    world.complete(&again, "ok").unwrap();
    world.run("b", "ok");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    let a = &report.steps[0];
    assert_eq!((a.cost_usd, a.attempts, a.contexts.as_slice()), (cents(9).cost_usd, 2, [id("a")].as_slice()));
    assert_eq!(a.agent_id.as_ref().unwrap().as_str(), "writer");
    assert_eq!(report.trace_id, world.trace.id());
    assert_eq!(world.spent_cents("graph"), 9);
}

#[test]
fn g1_nested_groups_run_in_their_own_mode_with_their_own_budget() {
    let mut world = World::with_graph(json!({"max_cost_usd": 1, "steps": [
        {"id": "both", "mode": "parallel", "max_cost_usd": 0.3, "output_to": "all", "steps": [
            step("one", json!({})), step("two", json!({})),
        ]},
        step("last", json!({"input_from": ["all"]})),
    ]}));
    assert_eq!(queued(&world), ["one", "two"]);
    assert_eq!(["both", "one"].map(|c| world.node(c).depth), [0, 1], "a group is not an agent");
    let (one, two) = (world.claim("one"), world.claim("two"));
    world.hold(&one, "c1", cents(20)).unwrap();
    let denied = world.hold(&two, "c1", cents(11)).unwrap_err();
    assert!(matches!(denied, Refusal::Denied(ref d) if d.context == id("both")), "{denied}");
    world.complete(&one, 1).unwrap();
    world.complete(&two, 2).unwrap();
    let work = world.work(&id("last")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"all": {"one": 1, "two": 2}}));
    world.run("last", "ok");
    world.rest();
}

#[test]
fn g1_a_partial_group_makes_its_graph_partial() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "some", "mode": "parallel", "on_partial_success": "continue", "steps": [step("one", json!({})), step("two", json!({}))]},
        step("last", json!({})),
    ]}));
    world.run("one", "ok");
    world.break_it("two");
    world.run("last", "ok");
    assert_eq!(verdict(&world), GraphVerdict::Partial);
    assert!(world.trace.graph_outcome(world.node("graph")).unwrap().steps[0].partial);
}

#[test]
fn g1_for_each_runs_once_for_every_item_and_gathers_the_results_in_order() {
    let mut world = World::with_graph(json!({"inputs": {"topics": ["ants", "bees", "cats"]}, "steps": [
        step("each", json!({"for_each": {"in": "topics", "max_parallel": 2}, "output_to": "found"})),
        step("reduce", json!({"input_from": ["found"]})),
    ]}));
    assert_eq!(queued(&world), ["each-1", "each-2"]);
    let work = world.work(&id("each-2")).unwrap();
    let inputs = serde_json::to_value(&work.inputs).unwrap();
    assert_eq!((inputs["item"].clone(), inputs["index"].clone()), (json!("bees"), json!(1)));
    world.run("each-2", "B");
    assert_eq!(queued(&world), ["each-1", "each-3"]);
    world.run("each-3", "C");
    world.run("each-1", "A");
    let work = world.work(&id("reduce")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"found": ["A", "B", "C"]}));
    world.run("reduce", "ABC");
    world.rest();
}

#[test]
fn g1_for_each_over_nothing_over_no_list_and_over_too_much() {
    let run = |value: Value| {
        let mut world = World::new();
        world.settings.limits.max_contexts = 10;
        world
            .submit_graph(json!({"inputs": {"items": value}, "on_partial_success": "continue", "steps": [
                step("each", json!({"for_each": "items", "output_to": "found"})),
            ]}))
            .unwrap();
        (statuses(&world, "graph")[0].1.clone(), world)
    };
    let (status, world) = run(json!([]));
    assert_eq!(status, "succeeded");
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap()["found"], json!([]));
    assert_eq!(run(json!("not a list")).0, "failed");
    assert_eq!(run(json!([1, 2, 3, 4, 5, 6, 7, 8, 9])).0, "running");
    assert_eq!(run(json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])).0, "failed");
}

#[test]
fn g1_for_each_over_nothing_with_steps_beside_and_after_it() {
    for mode in ["sequential", "parallel"] {
        let mut world = World::with_graph(json!({"mode": mode, "inputs": {"items": []}, "steps": [
            step("each", json!({"for_each": "items", "output_to": "found"})),
            step("after", json!({"input_from": ["found"]})),
            step("beside", json!({})),
        ]}));
        while let Some(next) = world.queued().first().cloned() {
            world.run(next.as_str(), "ok");
        }
        expect(&world, "graph", &[("each", "succeeded"), ("after", "succeeded"), ("beside", "succeeded")]);
        world.rest();
    }
}

#[test]
fn g1_the_result_of_a_group_is_there_for_whoever_reads_it() {
    let inner = |name: &str| json!({"id": format!("in-{name}"), "steps": [step(name, json!({}))]});
    let mut world = World::with_graph(json!({"steps": [
        {"id": "outer", "output_to": "all", "steps": [inner("a"), step("b", json!({}))]},
        step("reads", json!({"input_from": ["all"]})),
    ]}));
    world.run("a", "A");
    world.run("b", "B");
    let work = world.work(&id("reads")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"all": {"in-a": {"a": "A"}, "b": "B"}}));

    let mut world = World::with_graph(json!({
        "agent_id": "editor", "aggregate": {}, "steps": [inner("a"), step("b", json!({}))],
    }));
    world.run("a", "A");
    world.run("b", "B");
    let goal = world.work(&id("graph")).unwrap().goal.to_string();
    assert!(goal.contains("Group: {\"a\":\"A\"}") && goal.contains("Writer: B"), "{goal}");
}

#[test]
fn g4_failed_items_are_null_and_the_step_is_partial_or_failed_by_the_policy() {
    let graph = |policy: &str| {
        json!({"inputs": {"items": [1, 2, 3]}, "on_partial_success": policy, "steps": [
            step("each", json!({"for_each": "items", "output_to": "found"})),
        ]})
    };
    let mut world = World::with_graph(graph("continue"));
    world.run("each-1", "A");
    world.break_it("each-2");
    world.run("each-3", "C");
    assert_eq!(verdict(&world), GraphVerdict::Partial);
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap()["found"], json!(["A", null, "C"]));

    let mut world = World::with_graph(graph("fail"));
    world.run("each-1", "A");
    world.break_it("each-2");
    assert_eq!(["each-3", "graph"].map(|c| world.status(c)), ["cancelled", "failed"]);
    world.rest();
}

#[test]
fn b6_items_that_can_not_be_paid_for_are_refused_one_by_one() {
    let mut world = World::with_graph(json!({
        "inputs": {"items": [1, 2, 3, 4, 5]}, "max_cost_usd": 0.3, "on_partial_success": "continue", "steps": [
            step("each", json!({"for_each": "items", "max_cost_usd": 0.1, "funding": "granted", "output_to": "found"})),
        ],
    }));
    assert_eq!(queued(&world), ["each-1", "each-2", "each-3"], "exactly the affordable number runs");
    for name in queued(&world) {
        let lease = world.claim(&name);
        world.pay(&lease, "c1", cents(10)).unwrap();
        world.complete(&lease, name).unwrap();
    }
    let found = &serde_json::to_value(world.trace.outputs()).unwrap()["found"];
    assert_eq!(*found, json!(["each-1", "each-2", "each-3", null, null]));
    assert_eq!(verdict(&world), GraphVerdict::Partial);
    world.rest();
}

#[test]
fn g1_the_first_success_wins_a_race_and_the_rest_is_cancelled() {
    let race = || {
        World::with_graph(json!({"steps": [
            {"id": "r", "race": true, "output_to": "won", "steps": [step("a", json!({})), step("b", json!({})), step("c", json!({}))]},
            step("after", json!({"input_from": ["won"]})),
        ]}))
    };
    let mut world = race();
    assert_eq!(queued(&world), ["a", "b", "c"]);
    let slow = world.claim("c");
    world.hold(&slow, "c1", cents(3)).unwrap();
    world.break_it("a");
    world.run("b", "B");
    expect(&world, "r", &[("a", "failed"), ("b", "succeeded"), ("c", "cancelled")]);
    let work = world.work(&id("after")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"won": "B"}));
    world.run("after", "ok");
    assert_eq!(world.status("graph"), "completed");
    world.rest();

    let mut world = race();
    for name in ["a", "b", "c"] {
        world.break_it(name);
    }
    assert_eq!(["r", "graph"].map(|c| world.status(c)), ["failed", "failed"]);
}

#[test]
fn g1_a_loop_runs_until_its_condition_holds_or_its_bound_is_reached() {
    let graph = || {
        World::with_graph(json!({"steps": [
            {"id": "polish", "loop": {"max_rounds": 3, "until": "outputs.review.good"}, "steps": [
                step("author", json!({"input_from": ["review"], "output_to": "draft"})),
                step("critic", json!({"input_from": ["draft"], "output_to": "review"})),
            ]},
            step("publish", json!({"input_from": ["draft"]})),
        ]}))
    };
    let round = |world: &mut World, good: bool| {
        let author = queued(world)[0].clone();
        let inputs = serde_json::to_value(world.work(&id(&author)).unwrap().inputs).unwrap();
        world.run(&author, format!("draft of {author}"));
        let critic = queued(world)[0].clone();
        world.run(&critic, json!({"good": good}));
        inputs
    };
    let mut world = graph();
    assert_eq!(round(&mut world, false), json!({"review": null}), "the first round has no review yet");
    assert_eq!(round(&mut world, true), json!({"review": {"good": false}}));
    assert_eq!(queued(&world), ["publish"]);
    world.run("publish", "ok");
    world.rest();

    let mut world = graph();
    for _ in 0..3 {
        round(&mut world, false);
    }
    assert_eq!(queued(&world), ["publish"], "the last round stands");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert_eq!(report.steps[0].reason.as_deref(), Some("ended at its bound of 3 rounds"));
    assert_eq!(report.steps[0].contexts.len(), 3);
}

#[test]
fn g1_a_single_step_may_loop_over_its_own_output() {
    let mut world = World::with_graph(json!({"steps": [
        step("grow", json!({"input_from": ["n"], "output_to": "n", "loop": {"max_rounds": 5, "until": "outputs.n >= 2"}})),
    ]}));
    for (name, value) in [("grow-r1", 0), ("grow-r2", 1), ("grow-r3", 2)] {
        world.run(name, value);
    }
    assert_eq!(world.status("graph"), "completed");
    assert_eq!(serde_json::to_value(world.trace.outputs()).unwrap(), json!({"n": 2}));
}

#[test]
fn g1_a_fallback_tries_when_the_step_has_failed_for_good() {
    let mut world = World::with_graph(json!({"steps": [
        step("main", json!({"retries": 1, "output_to": "x", "fallback": {"agent_id": "editor", "task_description": "try harder"}})),
        step("last", json!({"input_from": ["x"]})),
    ]}));
    let lease = world.claim("main");
    world.fail(&lease, true).unwrap();
    world.pass(500);
    let lease = world.claim("main");
    world.fail(&lease, true).unwrap();
    assert_eq!(queued(&world), ["main-fallback"]);
    let work = world.work(&id("main-fallback")).unwrap();
    assert_eq!((work.agent.agent_id.as_str(), work.goal.as_str()), ("editor", "try harder"));
    world.run("main-fallback", "saved");
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    assert!(report.steps[0].fallback && report.steps[0].status == StepStatus::Succeeded);
    world.run("last", "ok");
    world.rest();

    let mut world = World::with_graph(json!({"steps": [step("main", json!({"fallback": "editor"}))]}));
    world.break_it("main");
    world.break_it("main-fallback");
    assert_eq!(world.status("graph"), "failed");
}

#[test]
fn g1_a_result_that_does_not_fit_its_schema_is_tried_again() {
    let schema =
        json!({"type": "object", "required": ["score"], "properties": {"score": {"type": "number"}}});
    let mut world =
        World::with_graph(json!({"steps": [step("a", json!({"retries": 1, "output_schema": schema}))]}));
    world.run("a", "no object");
    world.pass(500);
    world.run("a", json!({"score": "high"}));
    let reason = world.trace.graph_outcome(world.node("graph")).unwrap().steps[0].reason.clone().unwrap();
    assert!(reason.contains("high"), "{reason}");
    assert_eq!(world.status("graph"), "failed");

    let mut world =
        World::with_graph(json!({"steps": [step("a", json!({"output_schema": {"type": "number"}}))]}));
    world.run("a", 7);
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn g1_a_steps_timeout_is_its_own() {
    let mut world =
        World::with_graph(json!({"on_partial_success": "continue", "mode": "parallel", "steps": [
            step("slow", json!({"timeout_ms": 1000})), step("other", json!({})),
        ]}));
    world.pass(1000);
    expect(&world, "graph", &[("slow", "timed_out"), ("other", "running")]);
    world.run("other", "ok");
    assert_eq!(verdict(&world), GraphVerdict::Partial);
}

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
fn g6_aggregate_drops_duplicates_keeps_who_found_what_and_the_graphs_agent_synthesises() {
    let mut world = research(json!({}));
    world.run("researcher-1", "ants dig");
    world.run("researcher-2", "ants fly");
    world.run("researcher-3", "ants dig");
    assert_eq!(queued(&world), ["researcher-4"]);
    let lease = world.claim("researcher-4");
    let failure = shared::wire::Failure {
        kind: shared::wire::FailureKind::Agent,
        message: "no".into(),
        retryable: false,
    };
    let events = world.report(&lease, shared::wire::Verdict::Failed(failure)).unwrap();
    let sent = effects(&world.trace, &events);
    assert!(sent.contains(&Effect::Execute { child_id: id("graph"), attempt: 1 }), "{sent:?}");
    let work = world.work(&id("graph")).unwrap();
    assert_eq!(work.agent.agent_id.as_str(), "editor");
    assert_eq!(
        work.goal.as_str(),
        "Report on ants.\n\nSynthesize these findings:\nResearcher 1 (also Researcher 3): ants dig\n\n\
         Researcher 2: ants fly\n\nMissing, with no result: researcher-4"
    );
    assert!(work.inputs.is_empty() && work.children.is_empty(), "its own context only");
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
    assert_eq!(world.status("graph"), "failed", "nothing was found in time");
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

#[test]
fn g8_a_cancelled_step_counts_as_a_failure_and_gets_no_fallback() {
    let mut world =
        World::with_graph(json!({"steps": [step("a", json!({"fallback": "editor"})), step("b", json!({}))]}));
    world.cancel(Some("a")).unwrap();
    expect(&world, "graph", &[("a", "cancelled"), ("b", "skipped")]);
    assert_eq!(world.status("graph"), "failed");
    world.rest();
}

#[test]
fn g10_a_pipeline_is_a_child_of_the_agent_that_runs_it() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world
        .spawn_graph(
            &root,
            json!({"child_id": "p", "max_cost_usd": 0.2, "steps": [step("a", json!({"output_to": "x"}))]}),
        )
        .unwrap();
    assert_eq!(["p", "a"].map(|c| world.node(c).depth), [0, 1]);
    world.wait(&root, &["p"]).unwrap();
    let a = world.claim("a");
    world.pay(&a, "c1", cents(20)).unwrap();
    world.complete(&a, "found").unwrap();
    assert_eq!(world.queued(), [id("root")]);
    assert_eq!(world.spent_cents("root"), 20);
    let outcome = world.trace.outcome(&id("p")).unwrap();
    assert_eq!(serde_json::to_value(outcome.graph.unwrap().outputs).unwrap(), json!({"x": "found"}));
    world.run("root", "ok");
    world.rest();
}

#[test]
fn b4_a_graph_whose_budget_is_used_up_starts_nothing_more() {
    for (policy, status) in [("continue", "completed"), ("fail", "aborted")] {
        let mut world = World::new();
        world.settings.limits.max_children = 2;
        let steps: Vec<Value> = (0..5).map(|n| step(&format!("s{n}"), json!({}))).collect();
        world.submit_graph(json!({"mode": "parallel", "max_cost_usd": 0.1, "on_partial_success": policy, "steps": steps})).unwrap();
        let s0 = world.claim("s0");
        world.pay(&s0, "c1", cents(10)).unwrap();
        // Under `fail` the step that was queued and is aborted has stopped everything by now.
        assert_eq!(world.complete(&s0, "the one that was paid for").is_ok(), policy == "continue");
        assert_eq!(world.status("graph"), status, "{policy}");
        let report = world.trace.graph_outcome(world.node("graph")).unwrap();
        assert_eq!(report.succeeded.len(), usize::from(policy == "continue"), "{policy}: {report:?}");
        assert!(world.trace.snapshot(world.node("graph")).aborted);
        world.rest();
    }
}

#[test]
fn b8_a_graph_pauses_and_goes_on_when_raised() {
    let mut world = World::with_graph(
        json!({"max_cost_usd": 0.1, "on_exhausted": "pause", "steps": [step("a", json!({})), step("b", json!({}))]}),
    );
    let a = world.claim("a");
    world.pay(&a, "c1", cents(10)).unwrap();
    world.complete(&a, "ok").unwrap();
    assert_eq!(world.status("graph"), "paused");
    assert!(world.queued().is_empty());
    world.pass(1_000_000);
    world.raise("graph", 50).unwrap();
    assert_eq!(queued(&world), ["b"]);
    world.run("b", "ok");
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

#[test]
fn g1_unknown_agents_are_named_with_their_steps_all_at_once() {
    let mut world = World::new();
    let refused = world
        .submit_graph(json!({"steps": [step("a", json!({"agent_id": "wirter"})), step("b", json!({"fallback": "nobody"}))]}))
        .unwrap_err();
    let Refusal::Malformed(problems) = refused else { panic!("{refused}") };
    let shown: Vec<_> = problems.iter().map(|p| (p.path.as_str(), p.hint.as_deref().unwrap())).collect();
    assert_eq!(
        shown,
        [
            ("steps[id=a].agent_id", "did you mean `writer`?"),
            ("steps[id=b].agent_id", "apply its profile first, with `trellis agents apply`")
        ]
    );
}

#[test]
fn every_command_after_the_end_of_a_graph_changes_nothing() {
    let mut world = World::with_graph(json!({"steps": [step("a", json!({}))]}));
    let a = world.claim("a");
    world.complete(&a, "ok").unwrap();
    let version = world.trace.version();
    world.cancel(None).unwrap();
    world.handle(Command::Wake).unwrap();
    assert!(world.complete(&a, "again").is_err());
    assert!(world.hold(&a, "c", cents(1)).is_err());
    assert_eq!(world.trace.version(), version);
}
