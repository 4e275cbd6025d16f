//! Amending a graph that runs (G13): steps that have not begun are replaced, added or removed.

use serde_json::{Value, json};
use trace::{Command, Event, Refusal, Trace};
use world::{World, cents, id, with};

use super::{expect, queued, step};

/// The code of a refusal, or its list of problems.
fn refused(result: Result<Vec<Event>, Refusal>) -> String {
    match result.unwrap_err() {
        Refusal::Malformed(problems) => problems.to_string(),
        refusal => refusal.code().0.to_owned(),
    }
}

/// The trace, read back from its stored form.
fn stored(world: &mut World) -> Trace {
    let changes = {
        let mut copy = world.trace.clone();
        copy.mark_all_changed();
        copy.take_changes()
    };
    let some = |(name, text): (String, Option<String>)| Some((name, text?));
    let fields = changes.fields.into_iter().filter_map(some).collect();
    let values = changes.values.into_iter().filter_map(some).collect();
    Trace::from_stored(world.trace.id(), world.trace.version(), &fields, &values).unwrap()
}

/// The stored trace and the replayed log both equal the trace.
fn check(world: &mut World) {
    world.check_replay();
    assert!(stored(world) == world.trace, "the stored trace differs");
}

fn three() -> Value {
    json!({"steps": [step("a", json!({"output_to": "x"})), step("b", json!({})), step("c", json!({}))]})
}

#[test]
fn g13_steps_that_have_not_begun_are_replaced_added_and_removed() {
    let mut world = World::with_graph(three());
    world.run("a", "found");
    world.claim("b");
    let (_, revision, mut graph) = definition(&world);
    assert_eq!(revision, 0);
    let steps = graph["steps"].as_array_mut().unwrap();
    steps[2] = step("d", json!({"agent_id": "critic", "input_from": ["x"]}));
    steps.push(step("e", json!({})));
    world.amend(None, "am-1", 0, graph).unwrap();
    check(&mut world);
    expect(&world, "graph", &[("a", "succeeded"), ("b", "running"), ("d", "pending"), ("e", "pending")]);
    let b = world.lease(&id("b"));
    world.complete(&b, "ok").unwrap();
    assert_eq!(queued(&world), ["d"]);
    let work = world.work(&id("d")).unwrap();
    assert_eq!((work.agent.agent_id.as_str(), work.inputs.len()), ("critic", 1));
    world.run("d", "ok");
    world.run("e", "ok");
    assert_eq!(world.status("graph"), "completed");
    check(&mut world);
    world.rest();
}

fn definition(world: &World) -> (String, u32, Value) {
    let (node, revision, graph) = world.trace.definition_of(&id("graph")).unwrap();
    (node.id.to_string(), revision, serde_json::to_value(graph).unwrap())
}

#[test]
fn g13_steps_before_and_between_others_may_go_and_come() {
    let steps: Vec<Value> = ["a", "b", "c", "d"].iter().map(|name| step(name, json!({}))).collect();
    let mut world =
        World::with_graph(json!({"mode": "parallel", "limits": {"max_children": 2}, "steps": steps}));
    assert_eq!(queued(&world), ["a", "b"]);
    world.run("a", 1);
    assert_eq!(queued(&world), ["b", "c"]);
    // `a` has ended, `b` and `c` have begun; the new steps come before them.
    let (_, _, mut graph) = definition(&world);
    graph["steps"] =
        json!([step("e", json!({})), step("c", json!({})), step("b", json!({})), step("a", json!({}))]);
    world.amend(None, "am-1", 0, graph).unwrap();
    expect(&world, "graph", &[("e", "pending"), ("c", "running"), ("b", "running"), ("a", "succeeded")]);
    check(&mut world);
    world.run("b", 2);
    world.run("c", 3);
    world.run("e", 4);
    let outcome = world.trace.graph_outcome(world.node("graph")).unwrap();
    let shown: Vec<_> =
        outcome.steps.iter().map(|step| (step.id.as_str(), step.result.clone().unwrap())).collect();
    let expected = [("e", 4), ("c", 3), ("b", 2), ("a", 1)].map(|(id, n)| (id, json!(n).into()));
    assert_eq!(shown, expected);
    check(&mut world);
    world.rest();
}

#[test]
fn g13_items_go_on_under_their_step_when_it_moves() {
    let mut world = World::with_graph(json!({"mode": "parallel", "inputs": {"list": ["p", "q", "r"]},
        "limits": {"max_children": 2}, "steps": [
            step("first", json!({})),
            step("each", json!({"for_each": "list", "output_to": "found"})),
            step("last", json!({"depends_on": ["each"]})),
    ]}));
    world.run("first", 0);
    let (_, _, mut graph) = definition(&world);
    let steps = graph["steps"].as_array().unwrap().clone();
    graph["steps"] = json!([steps[1], steps[0], step("more", json!({"input_from": ["found"]}))]);
    world.amend(None, "am-1", 0, graph).unwrap();
    check(&mut world);
    for name in ["each-1", "each-2", "each-3"] {
        world.run(name, name);
    }
    assert_eq!(queued(&world), ["more"]);
    let inputs = serde_json::to_value(world.work(&id("more")).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"found": ["each-1", "each-2", "each-3"]}));
    world.run("more", 1);
    assert_eq!(world.status("graph"), "completed");
    check(&mut world);
}

#[test]
fn g13_steps_that_move_before_they_begin_still_read_and_ask() {
    let mut world = World::with_graph(json!({"steps": [
        step("a", json!({})),
        step("gone", json!({})),
        step("reads", json!({"input_from": ["a.note"]})),
        {"id": "ok", "approve": {"who": "the editor"}},
    ]}));
    world.claim("a");
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().remove(1);
    world.amend(None, "am-1", 0, graph).unwrap();
    let a = world.lease(&id("a"));
    let (key, value) = ("a.note".parse().unwrap(), json!("found").into());
    world.handle(Command::SetValue { lease: a.clone(), key, value }).unwrap();
    world.complete(&a, "ok").unwrap();
    let inputs = serde_json::to_value(world.work(&id("reads")).unwrap().inputs).unwrap();
    assert_eq!(inputs, json!({"a.note": "found"}));
    world.run("reads", 1);
    assert_eq!(world.status("ok"), "input_required");
    world.answer("ok", 1, "approve").unwrap();
    assert_eq!(world.status("graph"), "completed");
    check(&mut world);
    world.rest();
}

#[test]
fn g13_steps_that_began_ended_or_were_skipped_can_not_change() {
    let mut world = World::with_graph(json!({"steps": [
        step("done", json!({})),
        step("never", json!({"when": "false"})),
        step("runs", json!({})),
        step("waits", json!({})),
    ]}));
    world.run("done", 1);
    let (_, _, graph) = definition(&world);
    let change = |place: usize, more: Value| {
        let mut graph = graph.clone();
        graph["steps"][place] = with(graph["steps"][place].clone(), more);
        graph
    };
    let mut moved = graph.clone();
    moved["steps"].as_array_mut().unwrap().swap(2, 3);
    let mut gone = graph.clone();
    gone["steps"] = json!([step("waits", json!({}))]);
    let mut raised = graph.clone();
    raised["max_cost_usd"] = json!(5);
    raised["mode"] = json!("parallel");
    for (graph, says) in [
        (change(0, json!({"required": false})), "`done` has ended and can't change: `required`"),
        (change(1, json!({"when": "true"})), "`never` was skipped and can't change: `when`"),
        (change(2, json!({"agent_id": "critic"})), "steps[2]: `runs` has begun and can't change: `agent_id`"),
        (gone, "`runs` has begun and can't be removed"),
        (moved, "`runs` has begun and can't wait for `waits`, which has not begun"),
        (
            raised,
            "max_cost_usd: an amend changes steps, not the graph itself\n  hint: use `trellis budgets raise`",
        ),
        (change(3, json!({"agent_id": "nobody"})), "there is no agent `nobody`"),
        (change(3, json!({"tools": ["fs.raed"]})), "fs.raed"),
    ] {
        let told = refused(world.amend(None, "am-1", 0, graph.clone()));
        assert!(told.contains(says), "{says}\n{told}");
    }
    world.amend(None, "am-1", 0, change(3, json!({"agent_id": "critic"}))).unwrap();
    check(&mut world);
}

#[test]
fn g13_an_amend_is_made_once_and_only_of_its_revision() {
    let mut world = World::with_graph(three());
    let (_, _, graph) = definition(&world);
    let mut longer = graph.clone();
    longer["steps"].as_array_mut().unwrap().push(step("d", json!({})));
    assert_eq!(world.amend(None, "am-1", 0, longer.clone()).unwrap().len(), 1);
    assert_eq!(
        world.amend(None, "am-1", 0, longer.clone()).unwrap(),
        [],
        "the second delivery changes nothing"
    );
    assert_eq!(refused(world.amend(None, "am-1", 0, graph.clone())), "amend_conflict");
    assert_eq!(refused(world.amend(None, "am-2", 0, graph.clone())), "graph_moved");
    let original = world.orders[0].1.clone();
    assert_eq!(world.handle(original).unwrap(), [], "the same submission again changes nothing");
    for name in ["a", "b", "c", "d"] {
        world.run(name, 1);
    }
    assert_eq!(world.amend(None, "am-1", 0, longer.clone()).unwrap(), [], "a late delivery changes nothing");
    assert_eq!(refused(world.amend(None, "am-3", 1, longer)), "ended");
    assert_eq!(refused(World::with_root(json!({})).amend(None, "am-1", 0, graph)), "runs_no_graph");
}

#[test]
fn g13_groups_that_run_are_amended_too_and_rounds_that_ended_stay() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "rounds", "loop": {"max_rounds": 2}, "steps": [step("draft", json!({})), step("check", json!({}))]},
        {"id": "later", "steps": [step("deep", json!({}))]},
    ]}));
    world.run("draft", 1);
    world.run("check", 1);
    assert_eq!(queued(&world).len(), 1, "the second round");
    let second = queued(&world)[0].clone();
    let (graph_context, _, mut graph) = definition(&world);
    assert_eq!(graph_context, "graph");
    graph["steps"][0]["steps"].as_array_mut().unwrap().insert(1, step("polish", json!({})));
    graph["steps"][1]["steps"] = json!([step("deeper", json!({}))]);
    world.amend(Some("rounds-r2"), "am-1", 0, graph.clone()).unwrap();
    check(&mut world);
    world.run(&second, 2);
    assert_eq!(queued(&world), ["polish"]);
    world.run("polish", 2);
    let third = queued(&world)[0].clone();
    world.run(&third, 2);
    assert_eq!(queued(&world), ["deeper"]);
    expect(&world, "rounds-r1", &[("draft", "succeeded"), ("check", "succeeded")]);
    expect(&world, "rounds-r2", &[("draft", "succeeded"), ("polish", "succeeded"), ("check", "succeeded")]);
    let mut ended = graph.clone();
    ended["steps"][0]["steps"][1]["agent_id"] = json!("critic");
    let told = refused(world.amend(None, "am-2", 1, ended));
    assert!(told.contains("`rounds` has ended and can't change: `steps`"), "{told}");
    check(&mut world);
    world.run("deeper", 1);
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

#[test]
fn g13_the_steps_of_the_next_round_may_change_between_rounds() {
    let mut world = World::with_graph(json!({"mode": "parallel", "limits": {"max_children": 1}, "steps": [
        {"id": "rounds", "loop": {"max_rounds": 2}, "steps": [step("draft", json!({}))]},
        step("other", json!({})),
    ]}));
    world.run("draft", 1);
    // `other` takes the only free place: the second round waits.
    assert_eq!(queued(&world), ["other"]);
    let (_, _, mut graph) = definition(&world);
    graph["steps"][0]["steps"] = json!([step("rewrite", json!({}))]);
    world.amend(None, "am-1", 0, graph).unwrap();
    check(&mut world);
    world.run("other", 1);
    assert_eq!(queued(&world), ["rewrite"]);
    world.run("rewrite", 2);
    assert_eq!(world.status("graph"), "completed");
    check(&mut world);
}

#[test]
fn g13_a_race_takes_more_contenders_until_it_is_won() {
    let mut world = World::with_graph(json!({"race": true, "steps": [step("a", json!({}))]}));
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().insert(0, step("b", json!({})));
    world.amend(None, "am-1", 0, graph.clone()).unwrap();
    assert_eq!(queued(&world), ["a", "b"]);
    check(&mut world);
    world.run("b", "first");
    let outcome = serde_json::to_value(world.trace.outcome(&id("graph")).unwrap()).unwrap();
    assert_eq!(outcome["result"], json!("first"));
    check(&mut world);
    assert_eq!(refused(world.amend(None, "am-2", 1, graph)), "ended");
}

#[test]
fn g13_a_synthesis_that_has_begun_takes_no_amend() {
    let mut world =
        World::with_graph(json!({"agent_id": "critic", "task_description": "sum up", "aggregate": {},
        "steps": [step("a", json!({})), step("b", json!({}))]}));
    world.run("a", 1);
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().push(step("c", json!({})));
    world.amend(None, "am-1", 0, graph.clone()).unwrap();
    world.run("b", 1);
    world.run("c", 1);
    assert_eq!(queued(&world), ["graph"], "the synthesis of all three");
    assert!(world.work(&id("graph")).unwrap().goal.as_str().contains("Writer 3"));
    assert_eq!(refused(world.amend(None, "am-2", 1, graph)), "synthesis_begun");
    check(&mut world);
}

#[test]
fn g13_a_paused_graph_goes_on_if_what_it_could_not_start_is_gone() {
    let terms = json!({"on_exhausted": "pause", "max_cost_usd": 0.10});
    let graph = with(terms, json!({"steps": [step("a", json!({})), step("b", json!({}))]}));
    let mut world = World::with_graph(graph);
    let a = world.claim("a");
    world.pay(&a, "1-1", cents(10)).unwrap();
    world.complete(&a, "ok").unwrap();
    assert_eq!(world.status("graph"), "paused");
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().pop();
    world.amend(None, "am-1", 0, graph).unwrap();
    assert_eq!(world.status("graph"), "completed");
    check(&mut world);
    world.rest();
}

#[test]
fn g13_the_graph_of_an_agent_is_amended_by_its_context() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn_graph(&root, with(three(), json!({"child_id": "graph"}))).unwrap();
    world.wait(&root, &["graph"]).unwrap();
    world.run("a", 1);
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().pop();
    world.amend(Some("graph"), "am-1", 0, graph).unwrap();
    world.run("b", 2);
    let work = world.work(&id("root")).unwrap();
    assert_eq!(work.children.len(), 1);
    check(&mut world);
}

#[test]
fn g13_an_amend_counts_its_steps_for_max_contexts() {
    let mut world = World::new();
    world.settings.limits.max_contexts = 5;
    world.submit_graph(with(three(), json!({"child_id": "graph"}))).unwrap();
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().push(step("d", json!({})));
    world.amend(None, "am-1", 0, graph.clone()).unwrap();
    graph["steps"].as_array_mut().unwrap().push(step("e", json!({})));
    assert_eq!(refused(world.amend(None, "am-2", 1, graph)), "max_contexts");
}

#[test]
fn g13_the_size_of_an_amend_is_bounded_by_the_definition() {
    let items: Vec<u32> = (0..500).collect();
    let mut world = World::new();
    let graph = json!({"child_id": "graph", "mode": "parallel", "inputs": {"list": items}, "steps": [
        step("each", json!({"for_each": "list"})), step("last", json!({"depends_on": ["each"]}))]});
    world.submit_graph(graph).unwrap();
    world.measured();
    for n in 1..=50 {
        world.run(&format!("each-{n}"), "x".repeat(1_000));
    }
    let (_, _, mut graph) = definition(&world);
    let mut written = Vec::new();
    for n in 0..100 {
        let name = format!("new-{n}");
        graph["steps"].as_array_mut().unwrap()[1..].rotate_right(1);
        graph["steps"][1] = step(&name, json!({"depends_on": ["each"]}));
        world.amend(None, &format!("am-{n}"), n, graph.clone()).unwrap();
        written.push(world.written());
    }
    let bytes = serde_json::to_string(&graph).unwrap().len();
    assert!(
        written[0] < 4 * bytes + 8_000,
        "the first amend wrote {} bytes, the definition has {bytes}",
        written[0]
    );
    assert!(written[99] < written[0] + 8_000, "{} and then {}", written[0], written[99]);
    assert_eq!(refused(world.amend(None, "am-100", 100, graph)), "too_many_amends");
}

#[test]
fn g13_an_amended_graph_that_is_deleted_replays_without_its_content() {
    let mut world = World::with_graph(three());
    let (_, _, mut graph) = definition(&world);
    graph["steps"][2]["task_description"] = json!("a secret task");
    world.amend(None, "am-1", 0, graph).unwrap();
    world.handle(Command::Cancel { child_id: None, reason: None, without_undo: false }).unwrap();
    world.delete(None, true).unwrap();
    let kept = format!("{:?}", serde_json::to_string(&world.trace.definition_of(&id("graph")).unwrap().2));
    assert!(!kept.contains("secret"), "{kept}");
    world.check_replay();
}

#[test]
fn g13_the_items_of_a_group_all_run_the_steps_that_the_first_ran() {
    let mut world = World::with_graph(json!({"mode": "parallel", "inputs": {"list": [1, 2]}, "steps": [
        {"id": "each", "for_each": "list", "steps": [step("deep", json!({})), step("deeper", json!({}))]},
        step("last", json!({"depends_on": ["each"]})),
    ]}));
    world.run("deep-1", 1);
    let (_, _, mut graph) = definition(&world);
    let mut changed = graph.clone();
    changed["steps"][0]["steps"][1]["agent_id"] = json!("critic");
    let told = refused(world.amend(None, "am-1", 0, changed));
    assert!(told.contains("`each` has begun and can't change: `steps`"), "{told}");
    graph["steps"].as_array_mut().unwrap().insert(0, step("other", json!({})));
    world.amend(None, "am-1", 0, graph).unwrap();
    check(&mut world);
    for name in ["deeper-1", "deep-2", "deeper-2", "last", "other"] {
        world.run(name, name);
    }
    assert_eq!(world.status("graph"), "completed");
    check(&mut world);
    world.rest();
}

// The shard also calls `Trace::amended` for its reply after a refused amend, so it must not panic
// here.
#[test]
fn g13_an_amend_of_an_unknown_run_is_refused_and_ends_no_coordinator() {
    use trace::Amend;
    let world = World::new();
    let graph: domain::graph::TaskGraph = domain::decode::value(&three()).unwrap();
    let plan = domain::graph::Plan::compile(&graph).unwrap().into();
    let amend = Amend {
        child_id: None,
        id: "am-1".parse().unwrap(),
        revision: 0,
        plan,
        by: None,
        agents: world.agents.clone().into(),
        unresolved: None,
        unverified: Vec::new(),
    };
    let mut trace = world.trace.clone();
    let refused = trace.handle(Command::Amend(Box::new(amend.clone())), world.now);
    assert_eq!(refused.unwrap_err().code().0, "no_trace");
    assert!(trace.amended(&amend).is_none());
}

/// `second`, inside an item, requires a step of the outer graph; the amend moves that step.
fn item_that_requires(before: &[&str]) -> World {
    let waits = |id: &&str| step(id, json!({"depends_on": ["each"]}));
    let mut steps: Vec<Value> = before.iter().map(waits).collect();
    steps.push(step("a", json!({})));
    steps.push(json!({"id": "each", "for_each": "list", "steps": [
        step("first", json!({})), step("second", json!({"depends_on": ["a"]}))]}));
    let mut world = World::with_graph(json!({"mode": "parallel", "inputs": {"list": [1]}, "steps": steps}));
    world.run("a", 1);
    assert_eq!(queued(&world), ["first-1"]);
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().retain(|step| step["id"] == "a" || step["id"] == "each");
    world.amend(None, "am-1", 0, graph).unwrap();
    world
}

#[test]
fn g13_an_item_that_runs_still_finds_the_step_that_it_depends_on() {
    let mut world = item_that_requires(&["x"]);
    world.run("first-1", 1);
    assert_eq!(queued(&world), ["second-1"]);
    check(&mut world);
}

#[test]
fn g13_an_item_that_runs_survives_that_steps_around_it_are_removed() {
    let mut world = item_that_requires(&["x", "y"]);
    world.run("first-1", 1);
    assert_eq!(queued(&world), ["second-1"]);
    check(&mut world);
}

#[test]
fn g13_steps_of_a_group_that_has_ended_are_not_counted_again() {
    let mut world = World::new();
    world.settings.limits.max_contexts = 6;
    world
        .submit_graph(json!({"child_id": "graph", "steps": [
            {"id": "g", "mode": "parallel", "steps": [step("p", json!({})), step("q", json!({}))]},
            step("b", json!({})), ]}))
        .unwrap();
    world.run("p", 1);
    world.run("q", 1);
    assert_eq!(world.trace.contexts().len(), 5);
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().push(step("c", json!({})));
    world.amend(None, "am-1", 0, graph).unwrap();
    world.run("b", 1);
    world.run("c", 1);
    assert_eq!(world.trace.contexts().len(), 6);
}

/// An amend is checked like a submission: all mistakes are reported at once.
#[test]
fn g13_all_mistakes_of_an_amend_are_named_at_once() {
    let mut world = World::with_graph(three());
    world.claim("a");
    let (_, _, mut graph) = definition(&world);
    graph["steps"][0]["agent_id"] = json!("critic");
    graph["steps"][2]["agent_id"] = json!("nobody");
    let told = refused(world.amend(None, "am-1", 0, graph));
    assert!(told.contains("`a` has begun") && told.contains("there is no agent `nobody`"), "{told}");
}

#[test]
fn g13_the_steps_of_a_sequential_graph_still_run_one_after_another() {
    let mut world = World::with_graph(three());
    world.run("a", 1);
    world.claim("b");
    let (_, _, mut graph) = definition(&world);
    graph["steps"].as_array_mut().unwrap().swap(0, 1);
    // The new order is b (runs), a (has ended), c. The amend is refused or `c` waits for `b`; never
    // does `c` start beside `b`.
    let _ = world.amend(None, "am-1", 0, graph);
    assert_eq!(queued(&world), Vec::<String>::new());
}
