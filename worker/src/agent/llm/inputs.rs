//! The declared inputs in the first messages (W8). A small input is shown whole. A large one is
//! shown as its key, type, size and beginning, and `read_context` reads it in passages. An agent
//! without that tool is shown every input whole.

use domain::{
    ContextKey, Json,
    wire::{Execute, ShareCategory},
    wording::cut,
};
use serde_json::{Map, Value};

use super::window::Window;
use crate::{
    check::Redaction,
    tool::{READ_CONTEXT, may_call},
};

/// A larger input is shown by reference.
const LARGE_INPUT_BYTES: u64 = 2048;
/// The length of the beginning that is shown of a large input.
const PREVIEW_BYTES: usize = 400;

pub(super) fn show(window: &mut Window, work: &Execute) {
    let by_reference = may_call(work, READ_CONTEXT);
    let is_large = |value: &Json| by_reference && value.size_bytes() > LARGE_INPUT_BYTES;
    let (large, small): (Vec<_>, Vec<_>) = work.inputs.iter().partition(|(_, value)| is_large(value));
    if !small.is_empty() {
        window.add_shareable(ShareCategory::Context, whole(&small));
    }
    if !large.is_empty() {
        let redaction = Redaction::of_messages(&work.agent.checks);
        let described: Vec<String> =
            large.iter().map(|(key, value)| describe(key, value.value(), &redaction)).collect();
        let shown = format!(
            "Large inputs; `{READ_CONTEXT}` with `key`, `offset` and `length`, or a JSON `pointer`, reads them:\n{}",
            described.join("\n")
        );
        // A child that gets a copy (W3) may not read these keys, so its copy contains the whole
        // inputs.
        window.add_shared_as(ShareCategory::Context, shown, whole(&large));
    }
}

fn whole(inputs: &[(&ContextKey, &Json)]) -> String {
    let inputs: Map<String, Value> =
        inputs.iter().map(|(key, value)| (key.to_string(), value.value().clone())).collect();
    format!("Inputs:\n{:#}", Value::Object(inputs))
}

fn describe(key: &ContextKey, value: &Value, redaction: &Redaction) -> String {
    let (what, text) = match value {
        Value::String(text) => (format!("text of {} bytes", text.len()), text.clone()),
        Value::Array(items) => {
            let text = value.to_string();
            (format!("list of {} elements, {} bytes", items.len(), text.len()), text)
        }
        Value::Object(fields) => {
            let text = value.to_string();
            (format!("object of {} fields, {} bytes", fields.len(), text.len()), text)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => ("value".to_owned(), value.to_string()),
    };
    format!("- `{key}`: {what}, begins: {}", cut(redaction.apply(text), PREVIEW_BYTES))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b16_a_preview_shows_no_part_of_what_a_pattern_redacts() {
        let check = json!({"name": "keys", "then": "redact", "pattern": {"deny": ["sk-[a-z0-9]{20,}"]}});
        let redaction = Redaction::of_messages(&[serde_json::from_value(check).unwrap()]);
        let key: ContextKey = "log".parse().unwrap();
        // The preview ends within the key.
        let text = format!("{}sk-{} and more", "x".repeat(PREVIEW_BYTES - 10), "secret42".repeat(5));
        let bytes = text.len();
        for value in [json!(text), json!([text])] {
            let shown = describe(&key, &value, &redaction);
            assert!(!shown.contains("sk-"), "{shown}");
        }
        let shown = describe(&key, &json!(text), &redaction);
        assert!(shown.contains(&format!("text of {bytes} bytes")), "{shown}");
    }
}
