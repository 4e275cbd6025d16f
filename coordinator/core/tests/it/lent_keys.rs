//! G10, section C: the graph of an agent can read the keys that the agent can read.

use domain::{ContextKey, Json, decode::Format, graph, wire::Lease};
use serde_json::{Value, json};
use trace::{Command, Refusal};
use world::{World, id};

fn set(world: &mut World, lease: &Lease, key: &str, value: Value) {
    let (lease, key) = (lease.clone(), key.parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: Json::from(value) }).unwrap();
}

fn inputs(world: &World, child: &str) -> Value {
    serde_json::to_value(world.work(&id(child)).unwrap().inputs).unwrap()
}

fn read(world: &World, child: &str, key: &str) -> Option<Value> {
    let entry = world.trace.read_value(&id(child), &key.parse().unwrap()).unwrap();
    entry.map(|entry| entry.value.value().clone())
}

fn step(name: &str, input_from: &[&str]) -> Value {
    json!({"id": name, "agent_id": "writer", "task_description": name, "input_from": input_from})
}

fn pipeline(name: &str, input_from: &[&str], steps: &[Value]) -> Value {
    json!({"child_id": name, "mode": "parallel", "input_from": input_from, "steps": steps})
}

/// `writer` writes `notes`; `boss` reads it and was given `topic` and `list` itself.
fn boss() -> (World, Lease, Lease) {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "w", "child_id": "writer", "output_to": "notes"})).unwrap();
    let given = json!({"topic": "ants", "list": [1, 2]});
    world
        .spawn(&root, json!({"goal": "b", "child_id": "boss", "input_from": ["notes"], "inputs": given}))
        .unwrap();
    let (writer, boss) = (world.claim("writer"), world.claim("boss"));
    (world, writer, boss)
}

#[test]
fn g10_the_steps_of_a_pipeline_read_what_its_caller_may_read() {
    let (mut world, writer, boss) = boss();
    set(&mut world, &writer, "notes", json!("first"));
    set(&mut world, &boss, "boss.plan", json!("mine"));
    let mut group = step("group", &[]);
    group["steps"] = json!([step("inner", &["notes", "topic"])]);
    group.as_object_mut().unwrap().retain(|name, _| name == "id" || name == "steps");
    let each = json!({"id": "each", "agent_id": "writer", "task_description": "e", "for_each": "list"});
    let keys = ["notes", "topic", "list", "boss.plan"];
    let steps = [
        step("one", &["notes", "topic", "boss.plan"]),
        group,
        each,
        json!({"id": "asks", "agent_id": "writer", "task_description": "a", "when": "outputs.topic == 'ants'"}),
    ];
    let graph = pipeline("p", &keys, &steps);
    world.spawn_graph(&boss, graph.clone()).unwrap();
    assert_eq!(inputs(&world, "one"), json!({"notes": "first", "topic": "ants", "boss.plan": "mine"}));
    assert_eq!(inputs(&world, "inner"), json!({"notes": "first", "topic": "ants"}));
    assert_eq!(inputs(&world, "each-2"), json!({"item": 2, "index": 1}));
    assert!(world.trace.context(&id("asks")).is_some(), "a condition reads lent keys too");

    // Reads return the store's current value, so the same spawn stays equal when the value changes.
    set(&mut world, &writer, "notes", json!("second"));
    assert_eq!(world.spawn_graph(&boss, graph).unwrap(), [], "no value is part of the spawn");
    let one = world.claim("one");
    assert_eq!(inputs(&world, "one")["notes"], "second");
    assert_eq!(read(&world, "one", "notes"), Some(json!("second")));
    set(&mut world, &writer, "notes", json!("third"));
    assert_eq!(read(&world, "one", "notes"), Some(json!("third")), "live");
    let keys = world.trace.readable_keys(&id("one")).unwrap().0;
    assert!(keys.contains(&"notes".parse().unwrap()) && keys.contains(&"topic".parse().unwrap()), "{keys:?}");

    // A child of a step and the pipeline of a step can read on; a step that does not name a key
    // can't.
    world.spawn(&one, json!({"goal": "d", "child_id": "deep", "input_from": ["notes", "topic"]})).unwrap();
    assert_eq!(inputs(&world, "deep"), json!({"notes": "third", "topic": "ants"}));
    world
        .spawn_graph(&one, pipeline("q", &["notes", "topic"], &[step("deeper", &["notes", "topic"])]))
        .unwrap();
    assert_eq!(inputs(&world, "deeper"), json!({"notes": "third", "topic": "ants"}));
    let refused = world.trace.read_value(&id("each-1"), &"notes".parse().unwrap()).unwrap_err();
    assert!(matches!(refused, Refusal::NotReadable { .. }), "{refused}");
}

#[test]
fn c_a_pipeline_reads_no_more_than_its_caller() {
    let (mut world, writer, boss) = boss();
    set(&mut world, &writer, "writer.secret", json!(1));
    for key in ["writer.secret", "other"] {
        let refused = world.spawn_graph(&boss, pipeline("p", &[key], &[step("s", &[key])])).unwrap_err();
        assert!(
            matches!(&refused, Refusal::NotReadable { child_id, .. } if *child_id == id("boss")),
            "{refused}"
        );
    }
    // An undeclared key is still unknown, and a key has one meaning.
    for (graph, problem) in [
        (pipeline("p", &[], &[step("s", &["notes"])]), "nothing writes `notes`"),
        (
            json!({"inputs": {"notes": 1}, "input_from": ["notes"], "steps": [step("s", &[])]}),
            "input_from[0]: `notes` is one of the graph's own `inputs`",
        ),
        (
            json!({"input_from": ["notes"], "steps": [
                {"agent_id": "writer", "task_description": "s", "output_to": "notes"}]}),
            "`notes` is an input of the graph",
        ),
    ] {
        let refused = world.spawn_graph(&boss, graph).unwrap_err().to_string();
        assert!(refused.contains(problem), "{refused}");
    }
    let submitted = World::new().submit_graph(pipeline("p", &["notes"], &[step("s", &["notes"])]));
    let refused = submitted.unwrap_err().to_string();
    assert!(refused.contains("a submitted graph has no caller to read from"), "{refused}");
}

/// A caller that reads everything lends any key. If it has no value, the step is skipped, as for
/// any missing input.
#[test]
fn c_a_caller_that_reads_all_lends_all_and_a_missing_value_skips_the_step() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "reader", "reads_all_context": true}));
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "r", "child_id": "r", "agent_id": "reader"})).unwrap();
    let reader = world.claim("r");
    set(&mut world, &root, "root.x", json!(7));
    let steps = [step("s", &["root.x"]), step("t", &["root.y"])];
    let graph = json!({"child_id": "p", "mode": "parallel", "on_partial_success": "continue",
        "input_from": ["root.x", "root.y"], "steps": steps});
    world.spawn_graph(&reader, graph).unwrap();
    assert_eq!(inputs(&world, "s"), json!({"root.x": 7}));
    assert!(world.trace.context(&id("t")).is_none(), "there is no `root.y`");
}

/// The synthesis of a pipeline reads the keys of the pipeline.
#[test]
fn g10_the_agent_of_a_pipeline_itself_reads_what_its_caller_lends() {
    let (mut world, writer, boss) = boss();
    set(&mut world, &writer, "notes", json!("first"));
    let mut graph = pipeline("p", &["notes", "topic"], &[step("s", &[])]);
    graph["agent_id"] = json!("writer");
    graph["task_description"] = json!("Sum it up.");
    graph["aggregate"] = json!({});
    world.spawn_graph(&boss, graph).unwrap();
    world.run("s", "found");
    world.claim("p");
    assert_eq!(inputs(&world, "p"), json!({"notes": "first", "topic": "ants"}));
    assert_eq!(read(&world, "p", "notes"), Some(json!("first")));
}

/// L: inputs of the caller are copied for its pipeline, and these copies are within the limits of
/// the store.
#[test]
fn c_values_that_a_caller_lends_count_in_the_store() {
    let mut world = World::new();
    world.settings.limits.max_context_store_bytes = 100;
    world.submit(json!({"goal": "root", "child_id": "root", "inputs": {"long": "x".repeat(60)}})).unwrap();
    let root = world.claim("root");
    world.spawn_graph(&root, pipeline("p", &["long"], &[step("s", &["long"])])).unwrap();
    let refused = world.spawn_graph(&root, pipeline("q", &["long"], &[step("t", &["long"])])).unwrap_err();
    let Refusal::TooLarge { limit, .. } = &refused else { panic!("{refused}") };
    assert_eq!(limit.name, "max_context_store_bytes", "{refused}");
    world.run("s", "read");
    world.complete(&root, "done").unwrap();
    world.delete(None, true).unwrap();
    world.rest();
}

/// The worker declares only the inputs that were given to the agent, so a misspelt key is still
/// found.
#[test]
fn g10_keys_of_the_caller_need_not_be_declared() {
    let was_given = |key: &ContextKey| ["topic", "list", "late", "s.x"].contains(&key.as_str());
    let each = json!({"id": "each", "agent_id": "writer", "task_description": "e",
        "for_each": {"in": "list", "max_parallel": 1}});
    let late = json!({"id": "w", "agent_id": "writer", "task_description": "w", "output_to": "late"});
    let group = json!({"id": "group", "steps": [step("inner", &["topic", "own"])]});
    let steps = json!([step("s", &["topic"]), step("t", &["s.x"]), each, late, step("u", &["late"]), group]);
    let definition = json!({"inputs": {"own": 1}, "steps": steps}).to_string();
    let (definition, _) = graph::read_within(definition.as_bytes(), Format::Json, was_given).unwrap();
    let declared: Vec<&str> = definition.input_from.iter().map(ContextKey::as_str).collect();
    assert_eq!(declared, ["list", "topic"], "a key of the graph itself is not lent");

    let definition = json!({"steps": [step("s", &["topik"])]}).to_string();
    let refused = graph::read_within(definition.as_bytes(), Format::Json, was_given).unwrap_err().to_string();
    assert!(refused.contains("nothing writes `topik`"), "{refused}");
    let broken = json!({"steps": [step("s", &["topic"])], "mode": "sideways"}).to_string();
    let refused = graph::read_within(broken.as_bytes(), Format::Json, was_given).unwrap_err().to_string();
    assert!(!refused.contains("topic"), "{refused}");
}
