//! Section C: the shared context store.

use coordinator::trace::{Command, Event, Refusal};
use serde_json::{Value, json};
use shared::{Json, wire::Lease};
use trellis_tests::{World, world::id};

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
fn c_absent_and_null_are_told_apart() {
    let (mut world, a, _) = two();
    assert_eq!(read(&world, "b", "notes"), Ok(None));
    set(&mut world, &a, "notes", Value::Null).unwrap();
    assert_eq!(read(&world, "b", "notes"), Ok(Some(Value::Null)));
    let key = "notes".parse().unwrap();
    world.handle(Command::DeleteValue { lease: a.clone(), key }).unwrap();
    assert_eq!(read(&world, "b", "notes"), Ok(None));
    let key = "notes".parse().unwrap();
    assert_eq!(world.handle(Command::DeleteValue { lease: a, key }).unwrap(), [], "twice is once");
}

#[test]
fn c_every_value_keeps_its_writer_version_and_size() {
    let (mut world, a, _) = two();
    set(&mut world, &a, "notes", json!("one")).unwrap();
    assert_eq!(set(&mut world, &a, "notes", json!("one")).unwrap(), [], "the same again is the same");
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

/// Its worker has an input that was given to the context itself; a value of that name in the store is another's.
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
fn c_what_a_key_means_does_not_change_with_who_comes_later() {
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
