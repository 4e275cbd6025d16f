//! The form fields for an answer, generated from its JSON Schema: one field per property of a flat
//! object, or one for a single value. All other rules of the schema are checked when the answer
//! arrives.

use maud::{Markup, html};
use serde_json::Value;

/// An object with more properties is entered as JSON.
const MOST: usize = 20;
/// A longer text has several lines.
const LINE: u64 = 200;

/// The fields of a form.
pub(super) struct Fields {
    /// `object` or `value`: the JSON that the script builds from the fields.
    pub(super) make: &'static str,
    pub(super) shown: Markup,
}

/// None: fields can't express such an answer, so it is entered as JSON.
pub(super) fn of(schema: &Value, id: &str) -> Option<Fields> {
    if schema.get("type") != Some(&Value::from("object")) {
        let kind = Kind::of(schema)?;
        return Some(Fields { make: "value", shown: field("", schema, &kind, id, true) });
    }
    let properties =
        schema.get("properties")?.as_object().filter(|all| !all.is_empty() && all.len() <= MOST)?;
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    // A required property without a schema would have no field.
    if required.iter().any(|name| !properties.contains_key(*name)) {
        return None;
    }
    let mut kinds = Vec::new();
    for (name, schema) in properties {
        kinds.push((name, schema, Kind::of(schema)?));
    }
    let shown = html! {
        @for (place, (name, schema, kind)) in kinds.iter().enumerate() {
            (field(name, schema, kind, &format!("{id}-{place}"), required.contains(&name.as_str())))
        }
    };
    Some(Fields { make: "object", shown })
}

/// The type of a field.
enum Kind<'a> {
    Text,
    Number,
    Whole,
    Truth,
    OneOf(&'a [Value]),
}

impl<'a> Kind<'a> {
    fn of(schema: &'a Value) -> Option<Self> {
        if let Some(values) = schema.get("enum") {
            return values.as_array().filter(|values| !values.is_empty()).map(|values| Kind::OneOf(values));
        }
        match schema.get("type")?.as_str()? {
            "string" => Some(Kind::Text),
            "number" => Some(Kind::Number),
            "integer" => Some(Kind::Whole),
            "boolean" => Some(Kind::Truth),
            _ => None,
        }
    }
}

fn field(name: &str, schema: &Value, kind: &Kind<'_>, id: &str, is_required: bool) -> Markup {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let number = |key: &str| schema.get(key).filter(|value| value.is_number()).map(ToString::to_string);
    let label = text("title").unwrap_or(if name.is_empty() { "Answer" } else { name });
    let default = schema.get("default");
    let written = default.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let length = schema.get("maxLength").and_then(Value::as_u64);
    let option = |value: &Value, words: &str| {
        html! { option value=(value) selected[default == Some(value)] { (words) } }
    };
    html! {
        p class="field" {
            label for=(id) { (label) @if !is_required { span class="of" { " (may be left out)" } } }
            @match kind {
                Kind::OneOf(_) | Kind::Truth => {
                    select id=(id) data-kind="json" data-key=(name) required[is_required] {
                        option value="" { "–" }
                        @if let Kind::OneOf(values) = kind {
                            @for value in *values { (option(value, &value.as_str().map_or_else(|| value.to_string(), str::to_owned))) }
                        } @else {
                            (option(&Value::Bool(true), "yes")) (option(&Value::Bool(false), "no"))
                        }
                    }
                }
                Kind::Number | Kind::Whole => {
                    input id=(id) type="number" data-kind="number" data-key=(name) required[is_required] value=[written]
                        min=[number("minimum")] max=[number("maximum")] step=(if matches!(kind, Kind::Whole) { "1" } else { "any" });
                }
                Kind::Text if length.is_some_and(|length| length <= LINE) => {
                    input id=(id) data-kind="text" data-key=(name) required[is_required] maxlength=[length] value=[written];
                }
                Kind::Text => {
                    textarea id=(id) data-kind="text" data-key=(name) rows="2" required[is_required] maxlength=[length] { (written.unwrap_or_default()) }
                }
            }
            @if let Some(what) = text("description") { span class="hint" { (what) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_becomes_fields_or_stays_json() {
        for (schema, make, holds) in [
            (
                json!({"type": "integer", "minimum": 1}),
                "value",
                vec!["type=\"number\"", "min=\"1\"", "step=\"1\""],
            ),
            (
                json!({"enum": ["red", 2, null]}),
                "value",
                vec!["value=\"&quot;red&quot;\"", "value=\"2\"", "value=\"null\""],
            ),
            (
                json!({"type": "object", "required": ["day"], "properties": {
                    "day": {"type": "string", "maxLength": 10, "title": "Which day?", "default": "Monday"},
                    "sure": {"type": "boolean", "description": "or a guess"},
                    "why": {"type": "string"},
                }}),
                "object",
                vec![
                    "Which day?",
                    "value=\"Monday\"",
                    "value=\"true\"",
                    "or a guess",
                    "<textarea",
                    "may be left out",
                ],
            ),
        ] {
            let Fields { make: made, shown } = of(&schema, "q").unwrap();
            assert_eq!(made, make, "{schema}");
            for words in holds {
                assert!(shown.0.contains(words), "{words}: {}", shown.0);
            }
        }
        for schema in [
            json!({}),
            json!(true),
            json!({"type": ["string", "null"]}),
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"deep": {"type": "object"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}),
            json!({"anyOf": [{"type": "string"}]}),
        ] {
            assert!(of(&schema, "q").is_none(), "{schema}");
        }
    }

    #[test]
    fn the_words_of_a_schema_stay_text() {
        let hostile = "\"><img src=x onerror=alert(1)>";
        let schema = json!({"type": "object", "properties": {hostile: {"type": "string", "title": hostile, "description": hostile, "default": hostile},
            "other": {"enum": [hostile]}}});
        let shown = of(&schema, "q").unwrap().shown.0;
        assert!(!shown.contains("<img"), "{shown}");
    }
}
