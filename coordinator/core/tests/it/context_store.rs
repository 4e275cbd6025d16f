//! Section C: the shared context store.

use domain::{Json, wire::Lease};
use serde_json::{Value, json};
use trace::{Command, Event, Refusal};
use world::{World, id};

fn set(world: &mut World, lease: &Lease, key: &str, value: Value) -> Result<Vec<Event>, Refusal> {
    let (lease, key) = (lease.clone(), key.parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: Json::from(value) })
}

fn read(world: &World, child: &str, key: &str) -> Result<Option<Value>, &'static str> {
    let entry = world.trace.read_value(&id(child), &key.parse().unwrap());
    entry.map(|e| e.map(|e| e.value.value().clone())).map_err(|refusal| refusal.code().0)
}

/// Two children: `a` writes `notes`, `b` reads it.
fn two() -> (World, Lease, Lease) {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a", "output_to": "notes"})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b", "input_from": ["notes"]})).unwrap();
    let (a, b) = (world.claim("a"), world.claim("b"));
    (world, a, b)
}

#[test]
fn c_a_context_writes_its_output_and_its_own_keys_and_reads_its_inputs() {
    let (mut world, a, b) = two();
    set(&mut world, &a, "notes", json!([1])).unwrap();
    set(&mut world, &a, "a.scratch", json!("mine")).unwrap();
    assert_eq!(read(&world, "b", "notes"), Ok(Some(json!([1]))));
    assert_eq!(read(&world, "b", "a.scratch"), Err("not_readable"));
    assert_eq!(read(&world, "a", "a.scratch"), Ok(Some(json!("mine"))));
    for key in ["notes", "other", "a.scratch", "ab.scratch"] {
        assert!(
            matches!(set(&mut world, &b, key, json!(1)).unwrap_err(), Refusal::NotWritable { .. }),
            "{key}"
        );
    }
    assert_eq!(world.trace.readable_keys(&id("b")).unwrap().0.len(), 1);
    assert_eq!(world.trace.readable_keys(&id("a")).unwrap().0.len(), 2);
}

#[test]
fn c_absent_and_null_are_distinguished() {
    let (mut world, a, _) = two();
    assert_eq!(read(&world, "b", "notes"), Ok(None));
    set(&mut world, &a, "notes", Value::Null).unwrap();
    assert_eq!(read(&world, "b", "notes"), Ok(Some(Value::Null)));
    let key = "notes".parse().unwrap();
    world.handle(Command::DeleteValue { lease: a.clone(), key }).unwrap();
    assert_eq!(read(&world, "b", "notes"), Ok(None));
    let key = "notes".parse().unwrap();
    assert_eq!(
        world.handle(Command::DeleteValue { lease: a, key }).unwrap(),
        [],
        "a second delete changes nothing"
    );
}

#[test]
fn c_every_value_keeps_its_writer_version_and_size() {
    let (mut world, a, _) = two();
    set(&mut world, &a, "notes", json!("one")).unwrap();
    assert_eq!(
        set(&mut world, &a, "notes", json!("one")).unwrap(),
        [],
        "the same value again changes nothing"
    );
    set(&mut world, &a, "notes", json!("two!")).unwrap();
    let entry = world.trace.values().get("notes").unwrap();
    assert_eq!((entry.version, entry.size_bytes, entry.writer.clone()), (2, 6, Some(id("a"))));
}

#[test]
fn c_a_profile_may_read_everything() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "editor", "reads_all_context": true}));
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "e", "child_id": "e", "agent_id": "editor"})).unwrap();
    set(&mut world, &root, "root.x", json!(1)).unwrap();
    assert_eq!(read(&world, "e", "root.x"), Ok(Some(json!(1))));
}

/// Its worker has the input that was given to the context. A value with the same name in the store
/// belongs to another context.
#[test]
fn w8_an_input_of_its_own_is_not_read_from_the_store() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "editor", "reads_all_context": true}));
    world.submit(json!({"goal": "root", "child_id": "root", "output_to": "item"})).unwrap();
    let root = world.claim("root");
    let inputs = json!({"item": "its own"});
    world
        .spawn(&root, json!({"goal": "e", "child_id": "e", "agent_id": "editor", "inputs": inputs}))
        .unwrap();
    world.spawn(&root, json!({"goal": "f", "child_id": "f", "agent_id": "editor"})).unwrap();
    set(&mut world, &root, "item", json!("another's")).unwrap();
    assert_eq!(read(&world, "e", "item"), Ok(None));
    assert_eq!(read(&world, "f", "item"), Ok(Some(json!("another's"))));
}

#[test]
fn c_values_are_bounded_each_and_in_all() {
    let mut world = World::new();
    world.settings.limits.max_context_value_bytes = 10;
    world.settings.limits.max_context_store_bytes = 25;
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    assert!(matches!(
        set(&mut world, &root, "root.a", json!("x".repeat(9))).unwrap_err(),
        Refusal::TooLarge { size: 11, .. }
    ));
    for key in ["root.a", "root.b"] {
        set(&mut world, &root, key, json!("x".repeat(8))).unwrap();
    }
    assert!(matches!(
        set(&mut world, &root, "root.c", json!("x".repeat(8))).unwrap_err(),
        Refusal::TooLarge { size: 30, .. }
    ));
    set(&mut world, &root, "root.a", json!("y".repeat(8))).unwrap();
}

#[test]
fn c_the_store_is_cleared_when_the_root_ends_and_its_values_are_in_the_outcome() {
    let (mut world, a, b) = two();
    set(&mut world, &a, "a.draft", json!("kept")).unwrap();
    world.complete(&a, "ok").unwrap();
    world.complete(&b, "ok").unwrap();
    world.cancel(None).unwrap();
    assert!(world.trace.values().is_empty());
    let outcome = serde_json::to_value(world.trace.outcome(&id("root")).unwrap()).unwrap();
    assert_eq!(outcome["outputs"], json!({"a.draft": "kept", "notes": "ok"}));
    world.rest();
}

#[test]
fn c_the_graphs_of_two_agents_do_not_meet_in_the_store() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    for name in ["one", "two"] {
        world
            .spawn_graph(&root, json!({"child_id": name, "inputs": {"topic": name}, "steps": [
                {"id": format!("r-{name}"), "agent_id": "researcher", "task_description": "r", "input_from": ["topic"], "output_to": "found"},
                {"id": format!("w-{name}"), "agent_id": "writer", "task_description": "w", "input_from": ["found"]},
            ]}))
            .unwrap();
    }
    for name in ["one", "two"] {
        let work = world.work(&id(&format!("r-{name}"))).unwrap();
        assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"topic": name}));
        world.run(&format!("r-{name}"), format!("found by {name}"));
    }
    for name in ["one", "two"] {
        let work = world.work(&id(&format!("w-{name}"))).unwrap();
        assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"found": format!("found by {name}")}));
        world.run(&format!("w-{name}"), "ok");
        let graph = world.trace.outcome(&id(name)).unwrap().graph.unwrap();
        assert_eq!(
            serde_json::to_value(&graph.outputs).unwrap(),
            json!({"found": format!("found by {name}")})
        );
    }
    world.complete(&root, "ok").unwrap();
    world.rest();
}

#[test]
fn c_a_later_writer_does_not_change_the_meaning_of_a_key() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let steps = json!([
        {"id": "first", "agent_id": "writer", "task_description": "w", "output_to": "later.x"},
        {"id": "later", "agent_id": "writer", "task_description": "l"},
        {"id": "reads", "agent_id": "writer", "task_description": "r", "input_from": ["later.x"]},
    ]);
    world.spawn_graph(&root, json!({"child_id": "p", "steps": steps})).unwrap();
    world.run("first", "written before");
    world.run("later", "ok");
    let work = world.work(&id("reads")).unwrap();
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"later.x": "written before"}));
}

/// An agent that writes to its own `output_to` chooses the value for readers; its result does not
/// replace it.
#[test]
fn c_a_value_that_a_context_wrote_to_its_output_itself_remains() {
    let (mut world, a, _) = two();
    set(&mut world, &a, "notes", json!({"found": 3})).unwrap();
    world.complete(&a, "I found three").unwrap();
    assert_eq!(read(&world, "b", "notes"), Ok(Some(json!({"found": 3}))));
    let outcome = serde_json::to_value(world.trace.outcome(&id("a")).unwrap()).unwrap();
    assert_eq!(outcome["result"], "I found three");

    // The same holds for a step, and `until` sees the written value. A value of an earlier round is
    // not this round's.
    let steps = json!([{"id": "s", "agent_id": "writer", "task_description": "s", "output_to": "draft",
        "loop": {"max_rounds": 3, "until": "outputs.draft == 'good'"}}]);
    let mut world = World::with_graph(json!({"steps": steps}));
    for (own, result, after) in
        [(Some("bad"), "good", "bad"), (None, "bad", "bad"), (Some("good"), "bad", "good")]
    {
        let child = world.queued()[0].clone();
        let lease = world.claim(child.as_str());
        if let Some(own) = own {
            set(&mut world, &lease, "draft", json!(own)).unwrap();
        }
        world.complete(&lease, result).unwrap();
        let written = world.trace.values().get("draft").map(|entry| entry.value.value().clone());
        let written =
            written.or_else(|| world.trace.outputs().get("draft").map(|value| value.value().clone()));
        assert_eq!(written, Some(json!(after)), "{own:?}, {result}");
    }
    assert_eq!(world.status("graph"), "completed");
}

/// `<step>.<key>` names a value that the context of a step wrote under its own id, though that id
/// is generated. Reading it is a dependency.
#[test]
fn g2_a_step_reads_what_another_wrote_under_its_own_id() {
    let step = |id: &str, inputs: &[&str]| json!({"id": id, "agent_id": "writer", "task_description": id, "input_from": inputs});
    let mut retried = step("look", &[]);
    retried["fallback"] = json!({"agent_id": "critic", "task_description": "look again"});
    let steps = json!([step("tell", &["look.notes"]), retried]);
    let mut world = World::with_graph(json!({"mode": "parallel", "steps": steps}));
    assert_eq!(world.queued(), [id("look")], "the reader waits, also in parallel");
    let first = world.claim("look");
    set(&mut world, &first, "look.notes", json!("of the first try")).unwrap();
    world.fail(&first, false).unwrap();
    let second = world.claim("look-fallback");
    set(&mut world, &second, "look-fallback.notes", json!("of the second")).unwrap();
    set(&mut world, &second, "look-fallback.other", json!("private")).unwrap();
    world.complete(&second, "done").unwrap();
    let reader = world.claim("tell");
    assert_eq!(read(&world, "tell", "look.notes"), Ok(Some(json!("of the second"))));
    assert_eq!(read(&world, "tell", "look.other"), Err("not_readable"));
    assert_eq!(read(&world, "tell", "look-fallback.other"), Err("not_readable"));
    let work = world.work(&id("tell")).unwrap();
    assert_eq!(
        work.inputs.get("look.notes").map(|value| value.value().clone()),
        Some(json!("of the second"))
    );
    assert!(set(&mut world, &reader, "look.notes", json!("mine")).is_err(), "the reader can't write the key");
    world.complete(&reader, "told").unwrap();
    world.rest();
}

#[test]
fn g2_a_key_under_a_step_that_can_not_be_read_is_refused_with_the_reason() {
    let refused =
        |steps: Value| match World::new().submit_graph(json!({"inputs": {"list": [1]}, "steps": steps})) {
            Err(Refusal::Malformed(problems)) => problems.to_string(),
            other => panic!("{other:?}"),
        };
    let step = |id: &str, input: &str| json!({"id": id, "agent_id": "writer", "task_description": id, "input_from": [input]});
    let each = json!({"id": "each", "agent_id": "writer", "task_description": "x", "for_each": "list"});
    let group =
        json!({"id": "group", "steps": [{"id": "inner", "agent_id": "writer", "task_description": "x"}]});
    for (steps, says) in [
        (json!([step("b", "nobody.notes")]), "nothing writes `nobody.notes`"),
        (json!([step("b", "b.notes")]), "it waits for itself"),
        (json!([each, step("b", "each.notes")]), "read its `output_to`"),
        (json!([group, step("b", "group.notes")]), "read its `output_to`"),
        (json!([group, step("b", "inner.notes")]), "another group"),
        (json!([step("a", "b.notes"), step("b", "a.notes")]), "wait for each other"),
    ] {
        let told = refused(steps.clone());
        assert!(told.contains(says), "{steps}: {told}");
    }
}

/// A graph whose step `each` runs over the list that the context of `look` writes under its own id.
fn list_under_a_step(look: Value, more: Value) -> World {
    let mut writer = json!({"id": "look", "agent_id": "writer", "task_description": "look"});
    writer.as_object_mut().unwrap().extend(look.as_object().unwrap().clone());
    let each = json!({"id": "each", "agent_id": "writer", "task_description": "each", "for_each": "look.list",
        "when": "size(outputs['look.list']) == 2"});
    let mut graph = json!({"mode": "parallel", "steps": [each, writer]});
    graph.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    World::with_graph(graph)
}

fn write_list(world: &mut World, child: &str, list: Value) -> Lease {
    let lease = world.claim(child);
    set(world, &lease, &format!("{child}.list"), list).unwrap();
    lease
}

fn step_status(world: &World, step: &str) -> (String, Option<String>) {
    let report = world.trace.graph_outcome(world.node("graph")).unwrap();
    let step = report.steps.into_iter().find(|found| found.id.as_str() == step).unwrap();
    (serde_json::to_value(step.status).unwrap().as_str().unwrap().to_owned(), step.reason)
}

#[test]
fn g2_for_each_and_when_read_what_the_last_round_wrote_under_its_id() {
    let mut world = list_under_a_step(json!({"loop": {"max_rounds": 2}}), json!({}));
    let first = write_list(&mut world, "look-r1", json!([1]));
    world.complete(&first, "more").unwrap();
    let second = write_list(&mut world, "look-r2", json!(["a", "b"]));
    world.complete(&second, "done").unwrap();
    assert_eq!(world.queued(), [id("each-1"), id("each-2")]);
    world.run("each-1", 1);
    world.run("each-2", 2);
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn g2_for_each_and_when_read_what_the_fallback_wrote_and_not_the_failed_try() {
    let fallback = json!({"fallback": {"agent_id": "critic", "task_description": "look again"}});
    let mut world = list_under_a_step(fallback, json!({}));
    let first = write_list(&mut world, "look", json!([1, 2, 3]));
    world.fail(&first, false).unwrap();
    let second = write_list(&mut world, "look-fallback", json!(["a", "b"]));
    world.complete(&second, "done").unwrap();
    assert_eq!(world.queued(), [id("each-1"), id("each-2")]);
    assert_eq!(world.work(&id("each-1")).unwrap().inputs["item"].value(), "a");
}

/// The second round of a group runs its steps in new contexts.
#[test]
fn g2_for_each_reads_the_list_of_this_run_of_its_group() {
    let steps = json!([
        {"id": "look", "agent_id": "writer", "task_description": "look"},
        {"id": "each", "agent_id": "writer", "task_description": "each", "for_each": "look.list",
            "when": "size(outputs['look.list']) > 0"},
    ]);
    let group = json!({"id": "group", "loop": {"max_rounds": 2}, "steps": steps});
    let mut world = World::with_graph(json!({"steps": [group]}));
    for list in [json!(["old"]), json!(["new", "newer"])] {
        let look = world.queued()[0].clone();
        let lease = write_list(&mut world, look.as_str(), list.clone());
        world.complete(&lease, "done").unwrap();
        let items = world.queued();
        let given = items.iter().map(|item| world.work(item).unwrap().inputs["item"].value().clone());
        assert_eq!(Value::from_iter(given), list);
        for item in items {
            world.run(item.as_str(), "ok");
        }
    }
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn g4_a_list_that_the_step_never_wrote_is_missing_and_not_empty() {
    let mut world = World::with_graph(json!({"steps": [
        {"id": "look", "agent_id": "writer", "task_description": "look"},
        {"id": "each", "agent_id": "writer", "task_description": "each", "for_each": "look.list"},
    ]}));
    world.run("look", "nothing written");
    let (status, reason) = step_status(&world, "each");
    assert_eq!((status.as_str(), reason.as_deref()), ("skipped", Some("its input `look.list` is missing")));
}

/// The first round completed and wrote a list, the second failed. So the step failed, and its list
/// is not used.
#[test]
fn g4_the_list_of_a_step_that_failed_is_empty_under_best_effort() {
    let looped = json!({"loop": {"max_rounds": 2}});
    let mut world = list_under_a_step(looped, json!({"on_partial_success": "best_effort"}));
    let first = write_list(&mut world, "look-r1", json!([1, 2]));
    world.complete(&first, "more").unwrap();
    let second = write_list(&mut world, "look-r2", json!([3, 4]));
    world.fail(&second, false).unwrap();
    assert_eq!(world.queued(), []);
    assert_eq!(step_status(&world, "each").0, "skipped");
}

#[test]
fn g2_until_reads_no_key_under_a_step() {
    let steps = json!([
        {"id": "look", "agent_id": "writer", "task_description": "look"},
        {"id": "again", "agent_id": "writer", "task_description": "again",
            "loop": {"max_rounds": 2, "until": "size(outputs['look.list']) > 0"}},
    ]);
    let refused = World::new().submit_graph(json!({"steps": steps})).unwrap_err().to_string();
    assert!(refused.contains("nothing writes `look.list`"), "{refused}");
}

/// Readers get the value that a context wrote to its output instead of its result, so the schema
/// applies to both. The next attempt begins without the value.
#[test]
fn c_an_own_value_that_does_not_fit_the_schema_is_refused_like_a_result() {
    let schema = json!({"type": "object"});
    for retries in [0, 1] {
        let mut world = World::with_root(json!({}));
        let root = world.claim("root");
        let terms = json!({"goal": "a", "child_id": "a", "output_to": "notes", "output_schema": schema,
            "limits": {"max_retries_total": retries}});
        world.spawn(&root, terms).unwrap();
        let lease = world.claim("a");
        set(&mut world, &lease, "notes", json!("no object")).unwrap();
        world.complete(&lease, json!({"fits": true})).unwrap();
        assert!(!world.trace.values().contains_key("notes"));
        if retries == 0 {
            assert_eq!(world.status("a"), "failed");
            let outcome = serde_json::to_value(world.trace.outcome(&id("a")).unwrap()).unwrap();
            assert_eq!(outcome["error"]["kind"], "output_schema");
            let message = outcome["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("the value that it wrote to `notes`: "), "{message}");
            continue;
        }
        world.pass(500);
        let lease = world.claim("a");
        world.complete(&lease, json!({"fits": true})).unwrap();
        assert_eq!(world.trace.values()["notes"].value.value(), &json!({"fits": true}));
    }
}

#[test]
fn c_an_own_value_of_a_step_must_fit_the_schema_of_the_step() {
    let steps = json!([{"id": "s", "agent_id": "writer", "task_description": "s", "output_to": "draft",
        "output_schema": {"type": "object"}, "retries": 0}]);
    for (own, status) in [(json!("no object"), "failed"), (json!({"own": 1}), "succeeded")] {
        let mut world = World::with_graph(json!({"steps": steps}));
        let lease = world.claim("s");
        set(&mut world, &lease, "draft", own).unwrap();
        world.complete(&lease, json!({"result": 1})).unwrap();
        assert_eq!(step_status(&world, "s").0, status);
    }
}

/// The restore may revoke the entry that wrote the value, so the next result is written to the
/// output again.
#[test]
fn w5_a_restore_deletes_what_the_agent_wrote_to_its_output() {
    let (mut world, a, _) = two();
    set(&mut world, &a, "notes", json!("revoked")).unwrap();
    set(&mut world, &a, "a.scratch", json!("kept")).unwrap();
    let restore = domain::wire::Restore { child_id: id("a"), number: 1, to: 1 };
    world.handle(Command::Restore(restore.clone())).unwrap();
    assert_eq!(read(&world, "b", "notes"), Ok(None));
    assert_eq!(read(&world, "a", "a.scratch"), Ok(Some(json!("kept"))));
    let again = world.claim("a");
    set(&mut world, &again, "notes", json!("after it")).unwrap();
    assert_eq!(world.handle(Command::Restore(restore)).unwrap(), [], "a second delivery changes nothing");
    assert_eq!(read(&world, "b", "notes"), Ok(Some(json!("after it"))));
    let second = domain::wire::Restore { child_id: id("a"), number: 2, to: 1 };
    world.handle(Command::Restore(second)).unwrap();
    world.run("a", "the result");
    assert_eq!(read(&world, "b", "notes"), Ok(Some(json!("the result"))));
}
