//! The start of steps: modes, inputs, conditions, groups, pipelines, limits and an exhausted
//! budget.

use domain::wire::GraphVerdict;
use serde_json::{Value, json};
use trace::{Command, Event, Refusal};
use world::{World, cents, id};

use super::{expect, queued, step, verdict};

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
    let Refusal::MaxContexts { asked: 4, have: 0, limit } = refused else { panic!("{refused}") };
    assert_eq!((limit.name, limit.value.as_str()), ("max_contexts", "3"));
}

#[test]
fn g3_when_false_skips_the_step_and_its_dependants_and_the_event_shows_the_values() {
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
    assert_eq!(verdict(&world), GraphVerdict::Succeeded, "a skipped step is not a failure");
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

#[test]
fn g1_nested_groups_run_in_their_own_mode_with_their_own_budget() {
    let mut world = World::with_graph(json!({"max_cost_usd": 1, "steps": [
        {"id": "both", "mode": "parallel", "max_cost_usd": 0.3, "output_to": "all", "steps": [
            step("one", json!({})), step("two", json!({})),
        ]},
        step("last", json!({"input_from": ["all"]})),
    ]}));
    assert_eq!(queued(&world), ["one", "two"]);
    assert_eq!(["both", "one"].map(|c| world.node(c).identity.depth), [0, 1], "a group is not an agent");
    let (one, two) = (world.claim("one"), world.claim("two"));
    world.pay(&one, "c1", cents(20)).unwrap();
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
fn g10_a_pipeline_is_a_child_of_the_agent_that_runs_it() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world
        .spawn_graph(
            &root,
            json!({"child_id": "p", "max_cost_usd": 0.2, "steps": [step("a", json!({"output_to": "x"}))]}),
        )
        .unwrap();
    assert_eq!(["p", "a"].map(|c| world.node(c).identity.depth), [0, 1]);
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
        // Under `fail`, the abort of the queued step has already stopped the whole graph.
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
            ("steps[0].agent_id", "did you mean `writer`?"),
            ("steps[1].fallback.agent_id", "apply its profile first, with `trellis agents apply`")
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
