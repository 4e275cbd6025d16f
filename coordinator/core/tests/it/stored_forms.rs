//! The form that a stored trace has (t9): a trace in another form is rejected before the rest of it is read.

use std::collections::HashMap;

use serde_json::{Value, json};
use trace::Trace;
use world::World;

#[test]
fn t9_a_trace_in_another_form_is_rejected_with_both_forms_and_a_hint() {
    let mut world = World::with_root(json!({}));
    let changes = world.trace.take_changes();
    let mut fields: HashMap<String, String> =
        changes.fields.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
    let read = |fields: &HashMap<String, String>| {
        Trace::from_stored(world.trace.id(), world.trace.version(), fields, &HashMap::new())
    };
    assert!(read(&fields).unwrap() == world.trace);
    let head: Value = serde_json::from_str(&fields["head"]).unwrap();
    assert_eq!(head["form"], json!(9));

    // The other form may write the rest of the head differently.
    let others = [
        (json!({"form": 8, "settings": 1}), "form 8", "an earlier build"),
        (json!({"form": 10, "settings": 1}), "form 10", "a later build"),
        (json!({"settings": 1}), "form 0", "an earlier build"),
    ];
    for (head, found, wrote) in others {
        fields.insert("head".into(), head.to_string());
        let refused = read(&fields).unwrap_err().to_string();
        let says = [found, "reads form 9", "hint:", wrote];
        assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
    }
}
