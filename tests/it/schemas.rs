//! The JSON Schemas in `docs/schemas` are those of the types. `TRELLIS_WRITE_SCHEMAS=1` writes them.

use std::path::PathBuf;

use serde_json::json;
use shared::schema;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas")
}

#[test]
fn the_schemas_in_the_docs_are_those_of_the_types() {
    let write = std::env::var_os("TRELLIS_WRITE_SCHEMAS").is_some();
    for (name, schema) in schema::all() {
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

#[test]
fn a_schema_accepts_what_the_type_accepts() {
    let spawn = schema::of::<shared::wire::Spawn>();
    let validator = jsonschema_for(&spawn);
    assert!(validator(&json!({"goal": "x", "max_cost_usd": "0.5", "child_id": "a-1"})));
    assert!(!validator(&json!({"goal": "x", "child_id": "a/1"})));
    assert!(!validator(&json!({"goal": "x", "surprise": 1})));
}

/// A foreign validator knows the standard keywords and passes over ours.
fn jsonschema_for(schema: &serde_json::Value) -> impl Fn(&serde_json::Value) -> bool {
    let validator = jsonschema::validator_for(schema).unwrap();
    move |value| validator.is_valid(value)
}
