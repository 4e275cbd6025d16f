//! The JSON Schemas in `docs/schemas/trellis.json` are those of the types.
//! `TRELLIS_WRITE_SCHEMAS=1` writes them.

use std::path::PathBuf;

use domain::schema;
use serde_json::{Value, json};

#[test]
fn the_schemas_in_the_docs_are_those_of_the_types() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas/trellis.json");
    let text = serde_json::to_string_pretty(&schema::document(&coordinator::messages())).unwrap() + "\n";
    if std::env::var_os("TRELLIS_WRITE_SCHEMAS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{} is out of date: run TRELLIS_WRITE_SCHEMAS=1 scripts/test", path.display());
}

/// Schemars adds a digit to the name of a type if another type has the same name.
#[test]
fn each_type_has_a_name_of_its_own_in_the_schemas() {
    let document = schema::document(&coordinator::messages());
    let types = document["$defs"].as_object().unwrap();
    assert!(types.len() > 150, "{}", types.len());
    for name in types.keys() {
        let other = name.trim_end_matches(|end: char| end.is_ascii_digit());
        assert!(other == name || !types.contains_key(other), "two types are called `{other}`: rename one");
    }
}

/// proves: the document and `trellis schema` describe a message alike: each type under the same
/// name.
#[test]
fn each_message_has_the_same_types_alone_and_in_the_document() {
    let document = schema::document(&coordinator::messages());
    for message in coordinator::messages() {
        let alone = message.schema();
        for (name, part) in alone["$defs"].as_object().into_iter().flatten() {
            // A type that contains the whole message refers to it as `#`.
            let whole = format!("#/$defs/{}", alone["title"].as_str().unwrap());
            let text = part.to_string().replace(r##""$ref":"#""##, &format!(r#""$ref":"{whole}""#));
            let same = serde_json::from_str::<Value>(&text).unwrap() == document["$defs"][name];
            assert!(same, "`{name}` of `{}` is another type", message.name);
        }
    }
}

/// proves: messages from clients and workers are refused if they contain an unknown field, at any
/// level: a misspelt optional field would look like its absence.
#[test]
fn unknown_fields_are_refused_in_every_message_that_is_taken() {
    // Journals contain these: a worker reads the entries of a newer one.
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
        let messages = coordinator::messages();
        let message = messages.iter().find(|message| message.name == name).unwrap();
        let mut open = vec![(String::new(), message.schema())];
        while let Some((at, schema)) = open.pop() {
            let is_closed =
                schema.get("properties").is_none() || schema["additionalProperties"] == json!(false);
            assert!(is_closed || kept.iter().any(|kept| at.starts_with(kept)), "{name}: {at}");
            let inner: Vec<(String, Value)> = match schema {
                Value::Object(fields) => fields.into_iter().collect(),
                Value::Array(items) => {
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
fn jsonschema_for(schema: &Value) -> impl Fn(&Value) -> bool {
    let validator = jsonschema::validator_for(schema).unwrap();
    move |value| validator.is_valid(value)
}
