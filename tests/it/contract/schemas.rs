//! The JSON Schemas in `docs/schemas` are those of the types. `TRELLIS_WRITE_SCHEMAS=1` writes them.

use std::path::PathBuf;

use domain::schema;
use serde_json::json;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas")
}

#[test]
fn the_schemas_in_the_docs_are_those_of_the_types() {
    let write = std::env::var_os("TRELLIS_WRITE_SCHEMAS").is_some();
    for (name, schema) in coordinator::schemas() {
        let path = directory().join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if write {
            std::fs::create_dir_all(directory()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{} is out of date: run TRELLIS_WRITE_SCHEMAS=1 scripts/test",
            path.display()
        );
    }
}

/// proves: no message that clients or workers send may have a field that nobody knows, at any level: a mistake in an optional one
/// would be taken for its absence.
#[test]
fn unknown_fields_are_refused_in_every_message_that_is_taken() {
    // Journals keep these: a worker reads the entries of a newer one.
    let kept = ["/$defs/Verdict", "/$defs/ObjectReference"];
    let taken = [
        "spawn",
        "graph",
        "cancel",
        "input",
        "control",
        "query",
        "worker-call",
        "ask",
        "cost",
        "result",
        "schedule",
    ];
    for name in taken {
        let text = std::fs::read_to_string(directory().join(format!("{name}.json"))).unwrap();
        let mut open = vec![(String::new(), serde_json::from_str::<serde_json::Value>(&text).unwrap())];
        while let Some((at, schema)) = open.pop() {
            let is_closed =
                schema.get("properties").is_none() || schema["additionalProperties"] == json!(false);
            assert!(is_closed || kept.iter().any(|kept| at.starts_with(kept)), "{name}.json: {at}");
            let inner: Vec<(String, serde_json::Value)> = match schema {
                serde_json::Value::Object(fields) => fields.into_iter().collect(),
                serde_json::Value::Array(items) => {
                    items.into_iter().enumerate().map(|(number, item)| (number.to_string(), item)).collect()
                }
                _ => Vec::new(),
            };
            open.extend(inner.into_iter().map(|(name, schema)| (format!("{at}/{name}"), schema)));
        }
    }
    let refused = domain::decode::json::<domain::wire::Query>(br#"{"agent": {"agent_id": "a", "vers": 1}}"#);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("agent.vers: unknown field `vers`"), "{refused}");
    let refused = domain::decode::json::<domain::wire::Query>(br#"{"apply_agents": {"agents": [{}]}}"#);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("apply_agents.agents[0]: `agent_id` is missing"), "{refused}");
}

#[test]
fn a_schema_accepts_what_the_type_accepts() {
    let spawn = schema::of::<domain::wire::Spawn>();
    let validator = jsonschema_for(&spawn);
    assert!(validator(&json!({"goal": "x", "max_cost_usd": "0.5", "child_id": "a-1"})));
    assert!(!validator(&json!({"goal": "x", "child_id": "a/1"})));
    assert!(!validator(&json!({"goal": "x", "surprise": 1})));
}

#[test]
fn x1_every_event_carries_its_trace_and_context_and_fits_its_schema() {
    let mut world = world::World::with_graph(json!({"steps": [
        {"id": "a", "agent_id": "writer", "task_description": "t", "output_to": "x", "for_each": "items"},
        {"id": "b", "agent_id": "writer", "task_description": "t", "when": "has(outputs.x)"},
    ], "inputs": {"items": [1, 2]}}));
    world.run("a-1", "ok");
    world.run("a-2", "ok");
    world.run("b", "ok");
    let schema = schema::of::<trace::Event>();
    let fits = jsonschema_for(&schema);
    let mut again = trace::Trace::new(world.trace.id());
    for (at, event) in &world.log {
        again.apply(event, *at);
        let messages = trace::logged(&mut again, vec![event.clone()], *at);
        let message = serde_json::to_value(&messages[0]).unwrap();
        assert!(fits(&message["events"][0]), "{message}");
        assert_eq!(message["trace_id"], world.trace.id().to_string());
        assert_eq!(message["version"], again.version());
        let expected = event.child_id().map_or("graph", |child| child.as_str());
        let about_the_trace = ["opened", "agent_added", "plan_added", "store_cleared"];
        let kind = message["events"][0]["type"].as_str().unwrap();
        if !about_the_trace.contains(&kind) {
            assert_eq!(message["child_id"], expected, "{message}");
        }
    }
    assert_eq!(world.trace.version(), world.log.len() as u64);
}

/// Another validator knows the standard keywords and ignores ours.
fn jsonschema_for(schema: &serde_json::Value) -> impl Fn(&serde_json::Value) -> bool {
    let validator = jsonschema::validator_for(schema).unwrap();
    move |value| validator.is_valid(value)
}
