//! The result of a graph (G5, G17): every step, for readers of the outcome and for the agent that
//! ran the graph.

use domain::wire::{ChildResult, EndStatus, GraphAnswer, Payload, StepReport};
use serde_json::{Value, json};
use trace::Command;
use world::{World, cents, id};

use super::step;

fn reports(world: &World) -> Vec<StepReport> {
    world.trace.graph_outcome(world.node("graph")).unwrap().steps
}

/// A step as an agent sees it, without the fields that every step has.
fn brief(steps: &Value) -> Value {
    let brief = |step: &Value| {
        let mut step = step.clone();
        let fields = step.as_object_mut().unwrap();
        for always in ["cost_usd", "tokens", "attempts"] {
            fields.remove(always).unwrap();
        }
        if let Some(inner) = fields.remove("steps") {
            fields.insert("steps".into(), brief(&inner));
        }
        step
    };
    steps.as_array().unwrap().iter().map(brief).collect()
}

/// An agent that runs a graph and waits for it.
fn with_pipeline(graph: Value) -> World {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let mut graph = graph;
    graph["child_id"] = json!("graph");
    world.spawn_graph(&root, graph).unwrap();
    world.wait(&root, &["graph"]).unwrap();
    world
}

/// The result that the agent receives when the graph has ended.
fn answered(world: &mut World) -> (ChildResult, GraphAnswer) {
    let work = world.work(&id("root")).unwrap();
    let child = work.children[0].clone();
    let Some(Payload::Inline(value)) = &child.result else { panic!("{child:?}") };
    let answer = serde_json::from_value(value.value().clone()).unwrap();
    (child, answer)
}

fn shown(answer: &GraphAnswer) -> Value {
    brief(&serde_json::to_value(&answer.steps).unwrap())
}

#[test]
fn g5_the_agent_that_ran_a_graph_gets_every_step_under_every_policy() {
    for policy in ["fail", "continue", "best_effort"] {
        let mut world = with_pipeline(json!({"mode": "parallel", "on_partial_success": policy, "steps": [
            step("keyed", json!({"output_to": "facts"})),
            step("plain", json!({})),
            step("bad", json!({})),
            step("after-bad", json!({"depends_on": ["bad"]})),
        ]}));
        let keyed = world.claim("keyed");
        world.pay(&keyed, "1-1", cents(3)).unwrap();
        world.complete(&keyed, "many ants").unwrap();
        world.run("plain", json!({"n": 7}));
        world.break_it("bad");
        let (child, answer) = answered(&mut world);
        let fails = policy == "fail";
        assert_eq!(child.status, if fails { EndStatus::Failed } else { EndStatus::Completed }, "{policy}");
        let reason = reports(&world)[2].reason.clone().unwrap();
        let skipped = if fails { "`bad` failed" } else { "`bad` did not succeed" };
        let expected = json!([
            {"id": "keyed", "status": "succeeded", "output_to": "facts", "result": "many ants"},
            {"id": "plain", "status": "succeeded", "result": {"n": 7}},
            {"id": "bad", "status": "failed", "reason": reason},
            {"id": "after-bad", "status": "skipped", "reason": skipped},
        ]);
        assert_eq!(shown(&answer), expected, "{policy}");
        assert_eq!((answer.steps[0].cost_usd, answer.steps[0].attempts), (cents(3).cost_usd, 1));
        let outcome = world.trace.outcome(&id("graph")).unwrap();
        assert_eq!(outcome.context.result, None, "each result is stored once, with its context");
        let results: Vec<_> =
            reports(&world).into_iter().map(|step| step.result.map(|r| r.value().clone())).collect();
        assert_eq!(results, [Some(json!("many ants")), Some(json!({"n": 7})), None, None], "{policy}");
    }
}

#[test]
fn g5_the_value_that_an_agent_wrote_itself_is_the_result_of_its_step() {
    let mut world = with_pipeline(json!({"steps": [step("look", json!({"output_to": "facts"}))]}));
    let look = world.claim("look");
    let (lease, key) = (look.clone(), "facts".parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: json!({"ants": 3}).into() }).unwrap();
    world.complete(&look, "I wrote it down").unwrap();
    let (_, answer) = answered(&mut world);
    assert_eq!(answer.steps[0].result.as_ref().unwrap().value(), &json!({"ants": 3}));
}

#[test]
fn g5_steps_of_groups_are_reported_inside_their_group() {
    let mut world = with_pipeline(json!({"on_partial_success": "continue", "steps": [
        {"id": "outer", "on_partial_success": "continue", "steps": [
            {"id": "inner", "steps": [step("deep", json!({}))]},
            step("bad", json!({})),
        ]},
        {"id": "rounds", "loop": {"max_rounds": 2}, "steps": [step("again", json!({}))]},
    ]}));
    world.run("deep", "found");
    world.break_it("bad");
    world.run("again", "first");
    let second = world.queued()[0].clone();
    world.run(second.as_str(), "second");
    let reason = reports(&world)[0].steps[1].reason.clone().unwrap();
    let (_, answer) = answered(&mut world);
    assert_eq!(
        shown(&answer),
        json!([
            {"id": "outer", "status": "succeeded", "partial": true, "steps": [
                {"id": "inner", "status": "succeeded", "steps": [
                    {"id": "deep", "status": "succeeded", "result": "found"}]},
                {"id": "bad", "status": "failed", "reason": reason},
            ]},
            {"id": "rounds", "status": "succeeded", "steps": [
                {"id": "again", "status": "succeeded", "result": "second"}]},
        ])
    );
}

#[test]
fn g5_a_race_and_a_synthesis_show_their_result_once() {
    let mut world =
        with_pipeline(json!({"race": true, "steps": [step("slow", json!({})), step("fast", json!({}))]}));
    world.run("fast", "first");
    let (_, answer) = answered(&mut world);
    assert_eq!(answer.result.as_ref().unwrap().value(), &json!("first"));
    let expected = json!([
        {"id": "slow", "status": "cancelled", "reason": "`graph` has ended"},
        {"id": "fast", "status": "succeeded"},
    ]);
    assert_eq!(shown(&answer), expected);

    let mut world =
        with_pipeline(json!({"agent_id": "critic", "task_description": "sum up", "aggregate": {},
        "steps": [step("a", json!({}))]}));
    world.run("a", "a long finding");
    world.run("graph", "in short");
    let (_, answer) = answered(&mut world);
    assert_eq!(answer.result.as_ref().unwrap().value(), &json!("in short"));
    assert_eq!(
        shown(&answer),
        json!([{"id": "a", "status": "succeeded"}]),
        "the synthesis replaces the result"
    );
    let in_outcome = reports(&world)[0].result.clone().unwrap();
    assert_eq!(in_outcome.value(), &json!("a long finding"), "the outcome has the result");
}

#[test]
fn g5_the_failures_of_items_rounds_and_before_a_fallback_are_named() {
    let mut world =
        with_pipeline(json!({"on_partial_success": "continue", "inputs": {"list": [1, 2, 3]}, "steps": [
            step("each", json!({"for_each": "list"})),
            step("main", json!({"fallback": "critic"})),
        ]}));
    world.run("each-1", "one");
    world.break_it("each-2");
    world.run("each-3", "three");
    world.break_it("main");
    world.run("main-fallback", "made do");
    let (_, answer) = answered(&mut world);
    let each = &answer.steps[0];
    assert_eq!(each.result.as_ref().unwrap().value(), &json!(["one", null, "three"]));
    assert_eq!(serde_json::to_value(each.items).unwrap(), json!({"total": 3, "succeeded": 2}));
    let failed = |step: usize| -> Vec<&str> {
        answer.steps[step].failures.iter().map(|failure| failure.child_id.as_str()).collect()
    };
    assert_eq!((failed(0), failed(1)), (vec!["each-2"], vec!["main"]));
    assert!(answer.steps[1].failures[0].reason.is_some());
}

#[test]
fn g5_a_report_is_bounded_and_says_what_it_leaves_out() {
    let large = "x".repeat(200 * 1024);
    let steps: Vec<Value> = (0..8).map(|n| step(&format!("s{n}"), json!({}))).collect();
    let mut world = with_pipeline(json!({"mode": "parallel", "steps": steps}));
    for n in 0..8 {
        world.run(&format!("s{n}"), large.clone());
    }
    let reports = reports(&world);
    let inline = reports.iter().filter(|step| step.result.is_some()).count();
    let left_out: Vec<_> = reports.iter().filter_map(|step| step.result_bytes).collect();
    assert_eq!((inline, left_out.as_slice()), (5, [200 * 1024 + 2; 3].as_slice()));

    let steps: Vec<Value> = (0..1_200).map(|n| step(&format!("s{n}"), json!({}))).collect();
    let mut world = with_pipeline(json!({"on_partial_success": "continue", "steps": steps}));
    world.measured();
    for n in 0..1_200 {
        if n == 1_100 { world.break_it(&format!("s{n}")) } else { world.run(&format!("s{n}"), n) }
    }
    let (_, answer) = answered(&mut world);
    assert_eq!((answer.steps.len(), answer.left_out), (1_000, 200));
    let last = answer.steps.last().unwrap();
    assert_eq!(last.id.as_str(), "s1100", "failed steps are listed before succeeded ones");
}

#[test]
fn g5_a_large_group_leaves_room_for_what_failed_after_it() {
    let inner: Vec<Value> = (0..1_200).map(|n| step(&format!("s{n}"), json!({}))).collect();
    let steps = json!([{"id": "group", "steps": inner}, step("last", json!({}))]);
    let mut world = with_pipeline(json!({"on_partial_success": "continue", "steps": steps}));
    world.measured();
    for n in 0..1_200 {
        world.run(&format!("s{n}"), n);
    }
    world.break_it("last");
    let (_, answer) = answered(&mut world);
    let listed: Vec<(&str, usize)> =
        answer.steps.iter().map(|step| (step.id.as_str(), step.steps.len())).collect();
    assert_eq!((listed, answer.left_out), (vec![("group", 998), ("last", 0)], 202));
}

#[test]
fn g5_thousands_of_items_are_one_row_with_the_first_failures() {
    let mut world = World::new();
    let items: Vec<u32> = (0..2_000).collect();
    let graph = json!({"child_id": "graph", "inputs": {"list": items}, "on_partial_success": "continue",
        "limits": {"max_children": 100}, "steps": [step("each", json!({"for_each": "list"}))]});
    world.submit_graph(graph).unwrap();
    world.measured();
    for n in 1..=2_000 {
        if n % 10 == 0 {
            world.break_it(&format!("each-{n}"))
        } else {
            world.run(&format!("each-{n}"), "found")
        }
    }
    let each = &reports(&world)[0];
    assert_eq!(each.failures.len(), 16, "the first of 200");
    assert_eq!(each.items.unwrap().succeeded, 1_800);
    assert_eq!(each.result.as_ref().unwrap().elements().unwrap().len(), 2_000);
}

#[test]
fn g5_the_outcome_of_a_deleted_graph_keeps_no_content_of_its_steps() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "on_partial_success": "continue", "steps": [
            step("a", json!({})),
            {"id": "group", "steps": [step("deep", json!({}))]},
            step("main", json!({"fallback": "critic"})),
        ]}));
    world.run("a", "secret-a");
    world.run("deep", "secret-deep");
    world.break_it("main");
    world.run("main-fallback", "secret-fallback");
    let outcome = world.trace.outcome(&id("graph")).unwrap();
    assert!(serde_json::to_string(&outcome).unwrap().contains("secret-deep"));
    let bare = serde_json::to_string(&outcome.without_content()).unwrap();
    assert!(!bare.contains("secret"), "{bare}");
    world.delete(None, true).unwrap();
    let again = serde_json::to_string(&world.trace.outcome(&id("graph")).unwrap()).unwrap();
    assert!(!again.contains("secret"), "{again}");
    world.check_replay();
}

#[test]
fn g5_steps_in_groups_that_are_left_out_are_counted() {
    let group = |n: usize| {
        let inner = [step(&format!("p{n}"), json!({})), step(&format!("q{n}"), json!({}))];
        json!({"id": format!("g{n}"), "mode": "parallel", "steps": inner})
    };
    let steps: Vec<Value> = (0..400).map(group).collect();
    let mut world = with_pipeline(json!({"on_partial_success": "continue", "steps": steps}));
    world.measured();
    for n in 0..400 {
        world.run(&format!("p{n}"), n);
        world.run(&format!("q{n}"), n);
    }
    let (_, answer) = answered(&mut world);
    let listed: usize = answer.steps.iter().map(|step| 1 + step.steps.len()).sum();
    assert_eq!(listed + answer.left_out as usize, 1_200);
}

#[test]
fn g4_values_of_a_stopped_step_are_not_outputs_of_its_run() {
    for (graph, ends) in [(json!({"race": true}), "completed"), (json!({"mode": "parallel"}), "failed")] {
        let mut graph = graph;
        graph["steps"] =
            json!([step("slow", json!({"output_to": "x"})), step("fast", json!({"output_to": "y"}))]);
        let mut world = World::with_graph(graph);
        let slow = world.claim("slow");
        let (key, value) = ("x".parse().unwrap(), json!("half a sentence").into());
        world.handle(Command::SetValue { lease: slow, key, value }).unwrap();
        if ends == "completed" {
            world.run("fast", "done")
        } else {
            world.break_it("fast")
        }
        assert_eq!((world.status("graph").as_str(), world.status("slow").as_str()), (ends, "cancelled"));
        let outcome = world.trace.outcome(&id("graph")).unwrap();
        assert!(!outcome.outputs.contains_key(&"x".parse::<domain::ContextKey>().unwrap()), "{ends}");
        assert!(!outcome.graph.unwrap().outputs.contains_key(&"x".parse::<domain::ContextKey>().unwrap()));
        world.rest();
    }
}
