//! Processes of different versions understand each other: messages between the processes of a
//! deployment may have fields that the receiver does not know.

use domain::{decode, wire};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::protocol::examples_of;

const LATER: &str = "of_a_later_version";

/// The places of all objects in a value.
fn objects(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, inner)| objects(inner, format!("{at}/{name}"), found));
            found.push(at);
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(number, inner)| objects(inner, format!("{at}/{number}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Each object of the message gets a field of a later version, in turn and all at once: the rest is
/// read unchanged. Free values of clients keep the field.
fn survives<T: DeserializeOwned + Serialize + JsonSchema + 'static>(name: &str, text: &str) -> usize {
    let read = |value: &Value| -> Value {
        let message: T = decode::from_peer(value.to_string().as_bytes())
            .unwrap_or_else(|problems| panic!("{name}: {problems}\n{value:#}"));
        serde_json::to_value(message).unwrap()
    };
    let sent: Value = serde_json::from_str(text).unwrap();
    let (expected, mut places) = (read(&sent), Vec::new());
    objects(&sent, String::new(), &mut places);
    // An object with one field may be an alternative, under its name: a later version has other
    // fields, not more.
    places.retain(|place| {
        sent.pointer(place).and_then(Value::as_object).is_some_and(|fields| fields.len() > 1)
    });
    let mut all = sent.clone();
    for place in &places {
        let mut later = sent.clone();
        later.pointer_mut(place).unwrap()[LATER] = json!({"more": [1]});
        all.pointer_mut(place).unwrap()[LATER] = json!({"more": [1]});
        let mut seen = read(&later);
        if let Some(Value::Object(fields)) = seen.pointer_mut(place) {
            fields.remove(LATER);
        }
        assert_eq!(seen, expected, "{name} at {place}");
    }
    read(&all);
    places.len()
}

#[test]
fn a_message_of_a_later_version_is_read_without_what_it_adds() {
    let mut tried = 0;
    for (name, text) in examples_of("docs/protocol.md") {
        tried += match name.as_str() {
            "execute" => survives::<wire::Offer>(&name, &text),
            "ask" => survives::<wire::AskMessage>(&name, &text),
            "answer" => survives::<wire::Answer>(&name, &text),
            "result" => survives::<wire::Result>(&name, &text),
            "cost" => survives::<wire::Cost>(&name, &text),
            "stop" => survives::<wire::Stop>(&name, &text),
            "drain" => survives::<wire::Drain>(&name, &text),
            _ => 0,
        };
    }
    assert!(tried > 60, "only {tried} objects");
}

/// Messages from clients differ: there an unknown field is a mistake, and is reported.
#[test]
fn an_unknown_field_is_a_mistake_of_a_client() {
    let said = json!({"goal": "hello", LATER: 1}).to_string();
    let problems = decode::json::<wire::Spawn>(said.as_bytes()).unwrap_err().to_string();
    assert!(problems.contains(&format!("unknown field `{LATER}`")), "{problems}");
}
