//! Reruns (G15): the results that a new run takes over from an earlier one, and the steps that it
//! runs again.

use domain::wire::{ObjectReference, Payload, StepReport, Verdict};
use serde_json::{Value, json};
use trace::{Command, Event, Refusal, Trace};
use world::{World, cents, id};

use super::graph_flow::{expect, queued, step};

/// Three steps; each reads the output of the one before, and the last has failed.
fn chain() -> Value {
    json!({"mode": "sequential", "inputs": {"topic": "ants"}, "steps": [
        step("a", json!({"input_from": ["topic"], "output_to": "found"})),
        step("b", json!({"input_from": ["found"], "output_to": "text"})),
        step("c", json!({"input_from": ["text"], "output_to": "review"})),
    ]})
}

fn broken_chain() -> World {
    let mut world = World::with_graph(chain());
    for (name, result) in [("a", "facts"), ("b", "draft")] {
        let lease = world.claim(name);
        world.pay(&lease, &format!("call-{name}"), cents(10)).unwrap();
        world.complete(&lease, result).unwrap();
    }
    world.break_it("c");
    world.rest();
    world
}

fn rerun(world: &World, asked: Value) -> World {
    world.rerun(asked).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn reports(world: &World) -> Vec<StepReport> {
    world.trace.graph_outcome(world.trace.root().unwrap()).unwrap().steps
}

/// The steps that were taken over.
fn taken(world: &World) -> Vec<String> {
    let taken = |step: &StepReport| (!step.taken_from.is_empty()).then(|| step.id.to_string());
    reports(world).iter().filter_map(taken).collect()
}

#[test]
fn g15_succeeded_steps_are_taken_and_failed_ones_run() {
    let earlier = broken_chain();
    let mut world = rerun(&earlier, json!({}));
    assert_eq!((taken(&world), queued(&world)), (vec!["a".into(), "b".into()], vec!["c".to_owned()]));
    let text = world.work(&id("c")).expect("the context is queued").inputs;
    assert_eq!(serde_json::to_value(&text).unwrap()["text"], json!("draft"));
    world.run("c", "good");
    expect(&world, "root", &[("a", "succeeded"), ("b", "succeeded"), ("c", "succeeded")]);
    assert_eq!(world.spent_cents("root"), 0, "taken results are not paid again");
    let outcome = world.trace.outcome(&id("root")).unwrap();
    assert_eq!(serde_json::to_value(&outcome.outputs).unwrap()["found"], json!("facts"));
    let from = &reports(&world)[0].taken_from[0];
    assert_eq!((from.trace_id, from.child_id.as_str()), (earlier.trace.id(), "a"));
    world.rest();
}

#[test]
fn g15_from_a_step_runs_it_and_all_after_it() {
    let earlier = broken_chain();
    let world = rerun(&earlier, json!({"rerun": {"from": ["b"]}}));
    assert_eq!((taken(&world), queued(&world)), (vec!["a".to_owned()], vec!["b".to_owned()]));

    // Also steps that only follow in sequence.
    let mut order = World::with_graph(json!({"mode": "sequential", "steps": [
        step("a", json!({})), step("b", json!({})), step("c", json!({})),
    ]}));
    ["a", "b", "c"].into_iter().for_each(|name| order.run(name, name));
    let mut world = rerun(&order, json!({"rerun": {"from": ["b"]}}));
    assert_eq!((taken(&world), queued(&world)), (vec!["a".to_owned()], vec!["b".to_owned()]));
    world.run("b", "b");
    assert_eq!(queued(&world), ["c"]);
}

#[test]
fn g15_a_step_that_would_read_other_values_runs_again() {
    let earlier = broken_chain();
    let world = rerun(&earlier, json!({"inputs": {"topic": "bees"}}));
    assert_eq!((taken(&world), queued(&world)), (vec![], vec!["a".to_owned()]));
    // The step returns the same value again, so its reader is taken over.
    let mut world = rerun(&earlier, json!({"rerun": {"from": ["a"]}}));
    world.run("a", "facts");
    assert_eq!(queued(&world), ["b"], "`from` also runs all later steps");
    let mut earlier =
        World::with_graph(json!({"mode": "parallel", "on_partial_success": "best_effort", "steps": [
            step("a", json!({"output_to": "x"})),
            step("b", json!({"input_from": ["x"], "output_to": "y"})),
        ]}));
    earlier.break_it("a");
    earlier.run("b", "without x");
    let mut world = rerun(&earlier, json!({"rerun": {"from": ["a"]}}));
    world.run("a", "x");
    assert_eq!(queued(&world), ["b"]);
    let mut world = rerun(&earlier, json!({"rerun": {}, "max_cost_usd": 2}));
    world.break_it("a");
    assert_eq!(
        (taken(&world), queued(&world)),
        (vec!["b".to_owned()], vec![]),
        "the step reads nothing, as in the first run"
    );
}

#[test]
fn g15_a_group_is_taken_whole_or_step_by_step() {
    let graph = json!({"mode": "sequential", "steps": [
        {"id": "g", "mode": "parallel", "output_to": "all", "steps": [
            step("x", json!({"output_to": "xs"})), step("y", json!({"output_to": "ys"})),
        ]},
        {"id": "h", "mode": "sequential", "steps": [
            step("p", json!({"input_from": ["xs"], "output_to": "ps"})),
            step("q", json!({"input_from": ["ps", "ys"], "output_to": "qs"})),
        ]},
    ]});
    let mut earlier = World::with_graph(graph);
    for name in ["x", "y", "p"] {
        earlier.run(name, name);
    }
    earlier.break_it("q");
    let mut world = rerun(&earlier, json!({}));
    expect(&world, "g", &[("x", "succeeded"), ("y", "succeeded")]);
    assert!(world.trace.context(&id("x")).is_none(), "the group is taken, not its steps");
    assert_eq!(queued(&world), ["q"]);
    assert_eq!(world.node("p").identity.taken.as_ref().unwrap().child_id.as_str(), "p");
    world.run("q", "q");
    expect(&world, "root", &[("g", "succeeded"), ("h", "succeeded")]);
    let outputs = world.trace.outcome(&id("root")).unwrap().outputs;
    let outputs = serde_json::to_value(&outputs).unwrap();
    assert_eq!(outputs["all"], json!({"x": "x", "y": "y"}));
    assert_eq!((&outputs["xs"], &outputs["ys"], &outputs["ps"]), (&json!("x"), &json!("y"), &json!("p")));
    world.rest();

    // `from` inside a group runs the rest of that group and all steps after the group.
    let world = rerun(&world, json!({"rerun": {"from": ["y"]}}));
    assert_eq!(queued(&world), ["x", "y"], "the group was taken as a whole, without contexts of its steps");
    let world = rerun(&earlier, json!({"rerun": {"from": ["y"]}}));
    assert_eq!(queued(&world), ["y"]);
    assert_eq!(world.node("x").identity.taken.as_ref().unwrap().child_id.as_str(), "x");
}

fn items(list: Value) -> Value {
    json!({"mode": "sequential", "on_partial_success": "continue", "inputs": {"list": list}, "steps": [
        step("each", json!({"for_each": "list", "output_to": "all"})),
        step("sum", json!({"input_from": ["all"], "output_to": "sum"})),
    ]})
}

#[test]
fn g15_items_with_the_same_element_are_taken() {
    let mut earlier = World::with_graph(items(json!([1, 2, 3])));
    earlier.run("each-1", "one");
    earlier.break_it("each-2");
    earlier.run("each-3", "three");
    earlier.run("sum", "1+3");
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(queued(&world), ["each-2"], "a missing element runs");
    world.run("each-2", "two");
    assert_eq!(queued(&world), ["sum"], "a changed list is read again");
    let world = rerun(&earlier, json!({"inputs": {"list": [1, 3, 3]}}));
    assert_eq!(queued(&world), ["each-2"], "the elements at the same places are the same");
    let world = rerun(&earlier, json!({"inputs": {"list": [3, 1]}}));
    assert_eq!(queued(&world), ["each-1", "each-2"]);
}

#[test]
fn g15_items_that_are_groups_are_taken_whole_or_not_at_all() {
    let graph = json!({"mode": "sequential", "on_partial_success": "continue", "inputs": {"list": [1, 2]}, "steps": [
        {"id": "each", "for_each": "list", "mode": "sequential", "output_to": "all", "steps": [
            step("p", json!({"input_from": ["item"], "output_to": "ps"})),
            step("q", json!({"input_from": ["ps"], "output_to": "qs"})),
        ]},
    ]});
    let mut earlier = World::with_graph(graph);
    for name in ["p-1", "p-2", "q-1"] {
        earlier.run(name, name);
    }
    earlier.break_it("q-2");
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(queued(&world), ["p-2"]);
    assert_eq!(world.node("each-1").identity.taken.as_ref().unwrap().child_id.as_str(), "each-1");
    world.run("p-2", "p-2");
    world.run("q-2", "good");
    let all = serde_json::to_value(&world.trace.outcome(&id("root")).unwrap().outputs["all"]).unwrap();
    let mut whole = earlier.rerun(json!({"rerun": {"from": ["each"]}})).unwrap();
    for name in ["p-1", "p-2", "q-1"] {
        whole.run(name, name);
    }
    whole.run("q-2", "good");
    let expected = serde_json::to_value(&whole.trace.outcome(&id("root")).unwrap().outputs["all"]).unwrap();
    assert_eq!(all, expected, "the outputs are those of a complete run");
    world.rest();
}

#[test]
fn g15_items_that_read_something_else_now_all_run() {
    let graph = json!({"mode": "sequential", "on_partial_success": "continue", "inputs": {"list": [1, 2], "how": "short"}, "steps": [
        step("each", json!({"for_each": "list", "input_from": ["how"], "output_to": "all"})),
    ]});
    let mut earlier = World::with_graph(graph);
    earlier.run("each-1", "one");
    earlier.break_it("each-2");
    assert_eq!(queued(&rerun(&earlier, json!({}))), ["each-2"]);
    let world = rerun(&earlier, json!({"inputs": {"how": "long"}}));
    assert_eq!(queued(&world), ["each-1", "each-2"]);
}

#[test]
fn g15_loops_races_and_fallbacks_are_taken_as_they_ended() {
    let graph = json!({"mode": "parallel", "on_partial_success": "continue", "steps": [
        step("l", json!({"loop": {"max_rounds": 2}, "output_to": "looped"})),
        {"id": "r", "race": true, "mode": "parallel", "output_to": "won", "steps": [step("r1", json!({})), step("r2", json!({}))]},
        step("f", json!({"output_to": "fell", "fallback": {"agent_id": "editor", "task_description": "instead"}})),
        step("late", json!({"depends_on": ["l"]})),
    ]});
    let mut earlier = World::with_graph(graph);
    earlier.run("r2", "second");
    earlier.break_it("f");
    earlier.run("f-fallback", "from the fallback");
    earlier.run("l-r1", "once");
    earlier.run("l-r2", "twice");
    earlier.break_it("late");
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(
        (taken(&world), queued(&world)),
        (vec!["l".into(), "r".into(), "f".into()], vec!["late".to_owned()])
    );
    assert!(reports(&world)[2].fallback);
    world.run("late", "done");
    let outputs = serde_json::to_value(world.trace.outcome(&id("root")).unwrap().outputs).unwrap();
    assert_eq!(
        (&outputs["looped"], &outputs["won"], &outputs["fell"]),
        (&json!("twice"), &json!("second"), &json!("from the fallback"))
    );
    world.rest();
}

#[test]
fn g15_the_winner_of_a_race_is_taken_before_others_begin() {
    let mut earlier =
        World::with_graph(json!({"race": true, "mode": "parallel", "inputs": {"x": 1}, "steps": [
            step("a", json!({})), step("b", json!({})), step("c", json!({"input_from": ["x"]})),
        ]}));
    earlier.run("b", "fast");
    let world = rerun(&earlier, json!({"rerun": {"from": ["a"]}}));
    assert_eq!(queued(&world), Vec::<String>::new());
    assert!(world.trace.context(&id("a")).is_none());
    assert_eq!(world.status("root"), "completed");
}

#[test]
fn g15_a_rerun_can_be_run_again() {
    let first = broken_chain();
    let mut second = rerun(&first, json!({}));
    second.break_it("c");
    let mut third = second.rerun(json!({})).unwrap();
    assert_eq!(queued(&third), ["c"]);
    let from = &reports(&third)[1].taken_from[0];
    assert_eq!(from.trace_id, first.trace.id(), "the result names its run");
    third.run("c", "good");
    third.rest();
}

#[test]
fn g15_values_under_its_own_id_are_there_again() {
    let mut earlier = World::with_graph(json!({"mode": "sequential", "steps": [
        step("a", json!({"output_to": "x"})), step("b", json!({"input_from": ["a.notes", "x"]})),
    ]}));
    let lease = earlier.claim("a");
    for (key, value) in [("a.notes", "kept"), ("x", "its own words")] {
        let (key, value) = (key.parse().unwrap(), domain::Json::from(value));
        earlier.handle(Command::SetValue { lease: lease.clone(), key, value }).unwrap();
    }
    earlier.complete(&lease, "the result").unwrap();
    earlier.break_it("b");
    let world = rerun(&earlier, json!({}));
    let read = |key: &str| {
        let entry = world.trace.read_value(&id("b"), &key.parse().unwrap()).unwrap().unwrap();
        (entry.value.value().clone(), entry.writer.clone())
    };
    assert_eq!(read("a.notes"), (json!("kept"), Some(id("a"))));
    assert_eq!(read("x"), (json!("its own words"), Some(id("a"))));
}

#[test]
fn g15_a_second_delivery_changes_nothing_even_if_the_earlier_run_is_gone() {
    let earlier = broken_chain();
    let submit = earlier.rerun_of(json!({})).unwrap();
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(world.handle(Command::Submit(Box::new(submit))), Ok(Vec::new()));
    let mut gone = earlier.clone();
    gone.delete(None, false).unwrap();
    let late = gone.rerun_of(json!({})).unwrap();
    assert!(matches!(late.rerun, Some(Err(_))));
    assert_eq!(world.handle(Command::Submit(Box::new(late))), Ok(Vec::new()));
    let other = earlier.rerun_of(json!({"rerun": {"from": ["b"]}})).unwrap();
    assert!(matches!(world.handle(Command::Submit(Box::new(other))), Err(Refusal::Conflict { .. })));
}

#[test]
fn g15_a_large_result_is_taken_by_reference_with_its_run() {
    let mut earlier = World::with_graph(chain());
    let lease = earlier.claim("a");
    let object = format!("{}result", ObjectReference::prefix(earlier.trace.id(), &id("a")));
    let result = ObjectReference { object, size_bytes: 1 << 20, sha256: "0".repeat(64) };
    earlier.report(&lease, Verdict::Completed(Payload::Reference(result.clone()))).unwrap();
    earlier.break_it("b");
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(world.node("a").end().unwrap().details.result, Some(Payload::Reference(result)));
    let needs = |world: &World| {
        let needs = world.trace.rerun_of().unwrap().needs.iter();
        needs.map(|needed| (needed.trace_id, needed.child_id.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(needs(&world), [(earlier.trace.id(), "a".to_owned())]);
    world.break_it("b");
    let again = world.rerun(json!({})).unwrap();
    assert_eq!(needs(&again), [(earlier.trace.id(), "a".to_owned())]);
    world.delete(None, false).unwrap();
    assert_eq!(needs(&world), []);

    // If the object may have been deleted, its step runs again.
    let asked = domain::decode::value(&json!({"rerun": {"trace_id": earlier.trace.id()}})).unwrap();
    let request = trace::RerunOrder::new(&asked, &id("root"));
    let (_, _, found) = earlier.trace.rerun(&asked, id("root"), request, false).unwrap();
    assert_eq!(found.kept, []);
}

#[test]
fn g15_a_step_with_deleted_values_runs_again() {
    let mut earlier = broken_chain();
    earlier.delete(Some("b"), true).unwrap();
    let world = rerun(&earlier, json!({}));
    assert_eq!((taken(&world), queued(&world)), (vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[test]
fn g15_taking_costs_nothing_and_needs_no_budget() {
    let mut earlier = World::with_graph(json!({"mode": "sequential", "max_cost_usd": 1, "steps": [
        step("a", json!({"funding": "granted", "max_cost_usd": "0.9"})), step("b", json!({})),
    ]}));
    let lease = earlier.claim("a");
    earlier.pay(&lease, "1", cents(90)).unwrap();
    earlier.complete(&lease, "dear").unwrap();
    earlier.break_it("b");
    let world = rerun(&earlier, json!({"max_cost_usd": "0.05"}));
    assert_eq!(queued(&world), ["b"]);
    assert_eq!(world.node("root").budget.ceilings.limit.cost_usd, cents(5).cost_usd);
    assert_eq!(world.node("root").budget.held.cost_usd, domain::Usd::default());
}

#[test]
fn g15_a_run_that_can_not_be_rerun_is_refused_with_all_problems() {
    let refused = |world: &World, asked: Value| match world.rerun(asked) {
        Err(refusal) => refusal.to_string(),
        Ok(_) => panic!("the rerun was admitted"),
    };
    let live = World::with_graph(chain());
    let mut deleted = broken_chain();
    deleted.delete(None, false).unwrap();
    let mut agent = World::with_root(json!({}));
    agent.run("root", "done");
    let mut whole = World::with_graph(chain());
    ["a", "b", "c"].into_iter().for_each(|name| whole.run(name, name));
    let all = [
        refused(&live, json!({})),
        refused(&deleted, json!({})),
        refused(&agent, json!({})),
        refused(&whole, json!({})),
        refused(&broken_chain(), json!({"rerun": {"from": ["aa", "b"]}, "inputs": {"topics": 1}})),
        trace::Earlier::unknown(live.trace.id()).to_string(),
    ];
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn g15_a_stored_rerun_is_read_back() {
    let earlier = broken_chain();
    let mut group = World::with_graph(json!({"mode": "sequential", "steps": [
        step("a", json!({})), {"id": "g", "mode": "sequential", "steps": [step("x", json!({})), step("y", json!({}))]},
    ]}));
    group.run("a", "a");
    group.run("x", "x");
    group.break_it("y");
    for mut world in [rerun(&earlier, json!({})), rerun(&group, json!({"rerun": {"from": ["a"]}}))] {
        let changes = world.trace.take_changes();
        let fields = changes.fields.into_iter().filter_map(|(name, text)| Some((name, text?)));
        let values = changes.values.into_iter().filter_map(|(name, text)| Some((name, text?)));
        let (fields, values) = (fields.collect(), values.collect());
        let read = Trace::from_stored(world.trace.id(), world.trace.version(), &fields, &values).unwrap();
        assert_eq!(read, world.trace);
        world.cancel(None).unwrap();
        let gone = world.trace.take_changes().fields;
        assert!(gone.iter().filter(|(name, _)| name.starts_with("u.")).all(|(_, text)| text.is_none()));
        world.check_replay();
    }
}

#[test]
fn g15_taking_one_more_step_writes_no_more_than_that() {
    let written = |steps: usize| {
        let all: Vec<Value> = (0..steps).map(|n| step(&format!("s{n}"), json!({}))).collect();
        let mut earlier =
            World::with_graph(json!({"mode": "parallel", "on_partial_success": "continue", "steps": all}));
        (1..steps).for_each(|n| earlier.run(&format!("s{n}"), "result"));
        earlier.break_it("s0");
        let world = rerun(&earlier, json!({}));
        let events =
            world.log.iter().map(|(_, event)| serde_json::to_string(event).unwrap().len()).sum::<usize>();
        let kept = world.log.iter().filter(|(_, event)| matches!(event, Event::ResultKept { .. })).count();
        (events, kept)
    };
    let ((few, _), (many, kept)) = (written(10), written(80));
    assert_eq!(kept, 79);
    assert!(many < 9 * few, "{few} bytes for 10 steps, {many} for 80");
}

#[test]
fn g15_no_field_of_a_rerun_has_a_name_of_the_stores_own() {
    let mut world = rerun(&waiting(), json!({}));
    let fields = world.trace.take_changes().fields;
    assert!(fields.iter().any(|(name, _)| name == "u.b"), "the trace stores the taken result");
    let of_store = |(name, _): &&(String, Option<String>)| name == "v" || name.starts_with('x');
    assert_eq!(
        fields.iter().find(of_store),
        None,
        "a replace leaves these fields, which are deleted with the outboxes"
    );
}

/// A graph in which `a` fails and the others run without its output. A rerun keeps their results
/// until `a` has ended.
fn waits_for_a() -> Vec<Value> {
    vec![
        step("a", json!({"output_to": "x"})),
        step("b", json!({"input_from": ["x"], "output_to": "bs"})),
        step("c", json!({"input_from": ["x"], "output_to": "cs"})),
        step("d", json!({"input_from": ["cs"], "output_to": "ds"})),
        {
            let inner = [step("p", json!({"input_from": ["x"]})), step("q", json!({"input_from": ["x"]}))];
            json!({"id": "g", "mode": "parallel", "on_partial_success": "best_effort", "steps": inner})
        },
    ]
}

fn best_effort(steps: &[Value]) -> Value {
    json!({"mode": "parallel", "on_partial_success": "best_effort", "steps": steps})
}

fn waiting() -> World {
    let mut earlier = World::with_graph(best_effort(&waits_for_a()));
    earlier.break_it("a");
    for name in ["b", "c", "d", "p", "q"] {
        earlier.run(name, name);
    }
    earlier.rest();
    earlier
}

#[test]
fn g15_an_amend_of_a_rerun_keeps_what_it_does_not_change() {
    let earlier = waiting();
    // New steps move all others; `c` is now a different step, and `d` comes after it.
    let mut steps = waits_for_a();
    steps[2]["task_description"] = json!("do it otherwise");
    steps.insert(0, step("new", json!({})));
    steps.insert(2, step("newer", json!({})));
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(queued(&world), ["a"]);
    world.amend(None, "am-1", 0, best_effort(&steps)).unwrap();
    assert_eq!(queued(&world), ["a", "new", "newer"]);
    world.break_it("a");
    assert_eq!(
        (taken(&world), queued(&world)),
        (vec!["b".into(), "g".into()], ["new", "newer", "c"].map(String::from).to_vec())
    );
    world.run("c", "c");
    assert_eq!(queued(&world), ["new", "newer", "d"]);
    for name in ["new", "newer", "d"] {
        world.run(name, name);
    }
    world.check_replay();
    world.rest();
}

#[test]
fn g15_an_amend_within_a_group_runs_the_group_and_what_comes_after_it() {
    let earlier = waiting();
    for (change, runs) in [("replace", vec!["p", "q"]), ("remove", vec!["p"]), ("add", vec!["p", "q", "r"])] {
        let mut steps = waits_for_a();
        let inner = steps[4]["steps"].as_array_mut().unwrap();
        match change {
            "replace" => inner[1]["task_description"] = json!("otherwise"),
            "remove" => drop(inner.pop()),
            _ => inner.push(step("r", json!({}))),
        }
        let mut world = rerun(&earlier, json!({}));
        world.amend(None, "am-1", 0, best_effort(&steps)).unwrap();
        world.break_it("a");
        assert_eq!(taken(&world), ["b", "c", "d"], "{change}");
        assert_eq!(queued(&world), runs, "{change}");
        world.check_replay();
    }
}

#[test]
fn g15_an_amend_of_the_graph_of_an_agent_drops_nothing() {
    let mut world = rerun(&waiting(), json!({}));
    let lease = world.claim("a");
    let own = |more: &[Value]| json!({"child_id": "own", "mode": "sequential", "steps": more});
    world.spawn_graph(&lease, own(&[step("first", json!({})), step("b", json!({}))])).unwrap();
    world
        .amend(
            Some("own"),
            "am-1",
            0,
            own(&[step("first", json!({})), step("b", json!({"model": "test/other"}))]),
        )
        .unwrap();
    world.cancel(Some("own")).unwrap();
    world.report(&lease, Verdict::Completed(Payload::Inline("x".into()))).unwrap();
    assert_eq!(taken(&world), Vec::<String>::new(), "steps that read a changed value run again");
    let mut world = rerun(&waiting(), json!({}));
    let lease = world.claim("a");
    world.spawn_graph(&lease, own(&[step("first", json!({})), step("b", json!({}))])).unwrap();
    world.amend(Some("own"), "am-1", 0, own(&[step("first", json!({})), step("c", json!({}))])).unwrap();
    world.cancel(Some("a")).unwrap();
    assert_eq!(taken(&world), ["b", "c", "d", "g"]);
}

#[test]
fn g15_a_rerun_of_an_amended_graph_runs_the_amended_graph() {
    let group = json!({"id": "g", "mode": "parallel", "steps": [step("p", json!({"output_to": "ps"})), step("q", json!({}))]});
    let graph = |steps: &[Value]| json!({"mode": "sequential", "steps": steps});
    let before = [group.clone(), step("b", json!({})), step("c", json!({}))];
    let mut earlier = World::with_graph(graph(&before));
    earlier.run("p", "p");
    earlier.run("q", "q");
    // The group ended under its old plan; in the new plan it is the second group.
    let other = json!({"id": "h", "mode": "sequential", "steps": [step("r", json!({"input_from": ["ps"]}))]});
    let after = [group, step("b", json!({})), other, step("last", json!({}))];
    earlier.amend(None, "am-1", 0, graph(&after)).unwrap();
    earlier.run("b", "b");
    earlier.run("r", "r");
    earlier.break_it("last");
    earlier.rest();
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(
        (taken(&world), queued(&world)),
        (vec!["g".into(), "b".into(), "h".into()], vec!["last".to_owned()])
    );
    world.run("last", "done");
    world.rest();
    let mut within = rerun(&earlier, json!({"rerun": {"from": ["q"]}}));
    assert_eq!(queued(&within), ["q"]);
    assert!(within.node("p").identity.taken.is_some());
    within.run("q", "q");
    assert_eq!(queued(&within), ["b"], "the step follows the group");
}

#[test]
fn g15_a_deleted_agent_is_missed_only_by_a_step_that_runs() {
    let graph = json!({"mode": "sequential", "inputs": {"topic": "ants"}, "steps": [
        step("a", json!({"agent_id": "editor", "input_from": ["topic"], "output_to": "x"})),
        step("each", json!({"agent_id": "critic", "for_each": "list"})),
        step("b", json!({"input_from": ["x"]})),
    ], "on_partial_success": "continue"});
    let mut graph = graph;
    graph["inputs"]["list"] = json!([1, 2]);
    let mut earlier = World::with_graph(graph);
    for name in ["a", "each-1", "each-2"] {
        earlier.run(name, name);
    }
    earlier.break_it("b");
    earlier.agents.retain(|agent| !["editor", "critic"].contains(&agent.agent_id.as_str()));
    let mut world = rerun(&earlier, json!({}));
    assert_eq!((taken(&world), queued(&world)), (vec!["a".into(), "each".into()], vec!["b".to_owned()]));
    world.run("b", "done");
    world.rest();
    let world = rerun(&earlier, json!({"inputs": {"topic": "bees"}}));
    let reason = reports(&world)[0].reason.clone().unwrap();
    assert!(reason.contains("there is no agent `editor`"), "{reason}");
    let refused = earlier.rerun(json!({"rerun": {"from": ["each"]}})).map(drop).unwrap_err().to_string();
    assert!(refused.contains("there is no agent `critic`") && !refused.contains("editor"), "{refused}");
    earlier.agents.retain(|agent| agent.agent_id.as_str() != "writer");
    let refused = earlier.rerun(json!({})).map(drop).unwrap_err().to_string();
    assert!(refused.contains("there is no agent `writer`"), "{refused}");
}

#[test]
fn g15_a_condition_decides_again() {
    let mut earlier =
        World::with_graph(json!({"mode": "parallel", "on_partial_success": "best_effort", "steps": [
            step("a", json!({"output_to": "x"})),
            step("mend", json!({"when": "steps.a.status == 'failed'"})),
        ]}));
    earlier.break_it("a");
    earlier.run("mend", "mended");
    let mut world = rerun(&earlier, json!({}));
    world.run("a", "x");
    expect(&world, "root", &[("a", "succeeded"), ("mend", "skipped")]);
    let mut world = rerun(&earlier, json!({}));
    world.break_it("a");
    assert_eq!(taken(&world), ["mend"]);
}

#[test]
fn g15_an_approval_is_asked_for_again() {
    let approve = |id: &str| json!({"id": id, "approve": {"who": "the editor"}});
    let mut earlier = World::with_graph(json!({"mode": "sequential", "steps": [
        step("a", json!({})),
        {"id": "g", "mode": "sequential", "steps": [step("p", json!({})), approve("ok"), step("q", json!({}))]},
        approve("sure"), step("b", json!({})), step("c", json!({})),
    ]}));
    earlier.run("a", "a");
    earlier.run("p", "p");
    earlier.answer("ok", 1, "approve").unwrap();
    earlier.run("q", "q");
    earlier.answer("sure", 1, "approve").unwrap();
    earlier.run("b", "b");
    earlier.break_it("c");
    let mut world = rerun(&earlier, json!({}));
    assert_eq!(taken(&world), ["a"]);
    assert!(world.node("p").identity.taken.is_some());
    assert_eq!((queued(&world), world.status("ok")), (vec![], "input_required".to_owned()));
    world.answer("ok", 1, "approve").unwrap();
    assert!(world.node("q").identity.taken.is_some(), "the later step is taken");
    assert_eq!((queued(&world), world.status("sure")), (vec![], "input_required".to_owned()));
    let mut denied = world.clone();
    denied.answer("sure", 1, "deny").unwrap();
    assert_eq!((denied.status("root"), queued(&denied)), ("failed".to_owned(), vec![]));
    world.answer("sure", 1, "approve").unwrap();
    assert_eq!((taken(&world), queued(&world)), (vec!["a".into(), "b".into()], vec!["c".to_owned()]));
    // The same if `from` names only a later step.
    let world = rerun(&earlier, json!({"rerun": {"from": ["c"]}}));
    assert_eq!(world.status("ok"), "input_required");
}

#[test]
fn g15_a_group_that_ended_before_an_amend_is_read_by_the_plan_that_it_had() {
    let inner = json!({"id": "k", "mode": "sequential", "steps": [step("p", json!({"output_to": "ps"}))]});
    let group = json!({"id": "g", "mode": "parallel", "steps": [inner, step("q", json!({}))]});
    let last = step("last", json!({"depends_on": ["b"]}));
    let graph = |steps: &[Value]| json!({"mode": "parallel", "steps": steps});
    let mut earlier = World::with_graph(graph(&[group.clone(), step("b", json!({})), last.clone()]));
    earlier.run("p", "p");
    earlier.run("q", "q");
    // New steps come before the group in the new plan, so its inner groups get other numbers.
    let other = |id: &str, inner| json!({"id": id, "mode": "sequential", "steps": [step(inner, json!({}))]});
    let steps = [other("h", "r"), other("i", "s"), group, step("b", json!({})), last];
    earlier.amend(None, "am-1", 0, graph(&steps)).unwrap();
    for name in ["r", "s", "b"] {
        earlier.run(name, name);
    }
    earlier.break_it("last");
    let mut world = rerun(&earlier, json!({"rerun": {"from": ["q"]}}));
    assert!(world.node("k").identity.taken.is_some());
    for name in ["q", "last"] {
        world.run(name, name);
    }
    let outputs = serde_json::to_value(world.trace.outcome(&id("root")).unwrap().outputs).unwrap();
    assert_eq!(outputs["ps"], json!("p"));
    world.rest();
}

#[test]
fn g15_a_step_whose_agent_reads_everything_runs_again_if_anything_differs() {
    let mut earlier = World::new();
    earlier.agent(json!({"agent_id": "snoop", "reads_all_context": true}));
    earlier
        .submit_graph(json!({"mode": "parallel", "inputs": {"topic": "ants"}, "steps": [
            step("a", json!({"input_from": ["topic"], "output_to": "x"})),
            step("b", json!({"agent_id": "snoop", "depends_on": ["a"]})),
            step("c", json!({"depends_on": ["b"]})),
        ]}))
        .unwrap();
    earlier.run("a", "about ants");
    earlier.run("b", "ants, I read");
    earlier.break_it("c");
    let mut world = rerun(&earlier, json!({"inputs": {"topic": "bees"}}));
    world.run("a", "about bees");
    assert_eq!(queued(&world), ["b"], "the step would read other values");
}

#[test]
fn g15_a_condition_within_a_group_decides_again() {
    let group = json!({"id": "g", "mode": "parallel", "steps": [
        step("mend", json!({"when": "steps.a.status == 'failed'"})), step("n", json!({}))]});
    let mut earlier = World::with_graph(best_effort(&[step("a", json!({"output_to": "x"})), group]));
    earlier.break_it("a");
    earlier.run("mend", "mended");
    earlier.run("n", "n");
    let mut world = rerun(&earlier, json!({}));
    world.run("a", "x");
    expect(&world, "g", &[("mend", "skipped"), ("n", "succeeded")]);
}

#[test]
fn g15_a_loop_whose_until_reads_another_input_runs_again() {
    let mut earlier = World::with_graph(json!({"mode": "parallel", "inputs": {"enough": true}, "steps": [
        step("l", json!({"loop": {"max_rounds": 3, "until": "outputs.enough"}, "output_to": "t"})),
        step("late", json!({"depends_on": ["l"]})),
    ]}));
    earlier.run("l-r1", "once");
    earlier.break_it("late");
    let world = rerun(&earlier, json!({"inputs": {"enough": false}}));
    assert_eq!(queued(&world), ["l-r1"]);
}

#[test]
fn g15_taken_results_cost_nothing_and_need_no_remaining_budget() {
    let graph = json!({"mode": "parallel", "on_partial_success": "best_effort", "on_exhausted": "pause",
        "max_cost_usd": 0.10, "steps": [
            step("a", json!({"output_to": "x"})), step("b", json!({"input_from": ["x"]})) ]});
    let mut earlier = World::with_graph(graph);
    earlier.break_it("a");
    earlier.run("b", "without x");
    let mut world = rerun(&earlier, json!({}));
    let lease = world.claim("a");
    world.pay(&lease, "1", cents(10)).unwrap();
    world.fail(&lease, false).unwrap();
    assert_eq!((world.status("root").as_str(), taken(&world)), ("completed", vec!["b".to_owned()]));
}

#[test]
fn g8_an_earlier_cancel_also_applies_to_taken_steps() {
    let mut world = rerun(&waiting(), json!({}));
    world.cancel(Some("b")).unwrap();
    world.break_it("a");
    assert_eq!(world.status("b"), "cancelled");
}

#[test]
fn g15_steps_after_one_that_an_amend_removes_run_again() {
    let graph = |names: &[&str]| {
        let steps: Vec<Value> = names.iter().map(|name| step(name, json!({}))).collect();
        json!({"mode": "sequential", "on_partial_success": "best_effort", "steps": steps})
    };
    let mut earlier = World::with_graph(graph(&["a", "b", "c"]));
    earlier.break_it("a");
    earlier.run("b", "b");
    earlier.run("c", "c");
    let mut world = rerun(&earlier, json!({}));
    world.amend(None, "am-1", 0, graph(&["a", "c"])).unwrap();
    world.break_it("a");
    assert_eq!((taken(&world), queued(&world)), (vec![], vec!["c".to_owned()]));
}

#[test]
fn g15_an_approval_whose_fallback_ran_is_asked_for_again() {
    let fallback = json!({"agent_id": "writer", "task_description": "the cheap way"});
    let mut earlier = World::with_graph(json!({"mode": "sequential", "steps": [
        {"id": "ok", "approve": {"who": "the editor"}, "fallback": fallback}, step("b", json!({}))]}));
    earlier.answer("ok", 1, "deny").unwrap();
    earlier.run("ok-fallback", "cheap");
    earlier.break_it("b");
    let world = rerun(&earlier, json!({}));
    assert!(world.trace.context(&id("ok")).is_some_and(|ok| ok.asks()), "{:?}", taken(&world));
}
