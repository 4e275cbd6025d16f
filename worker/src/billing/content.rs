//! The texts of a model call, as the GenAI conventions write them in spans. They are exported only
//! if the operator enabled that. The value is JSON, so each text in it is shortened, and not the
//! whole.

use domain::wire::ToolCall;
use serde_json::{Value, json};

use crate::model::Message;

/// The most bytes of all messages that were sent. The last messages are shown.
const MAX_SENT_BYTES: usize = 64 << 10;

/// Redacts and shortens a text.
type Show<'a> = &'a dyn Fn(&str) -> String;

/// The messages that were sent.
pub(super) fn sent(messages: &[Message], show: Show<'_>) -> String {
    let mut left = MAX_SENT_BYTES;
    let last = messages.iter().rev().map_while(|said| {
        let said = message(said, show);
        left = left.checked_sub(said.to_string().len())?;
        Some(said)
    });
    let mut shown: Vec<Value> = last.collect();
    shown.reverse();
    Value::from(shown).to_string()
}

/// The answer of the model, and why it ended.
pub(super) fn answered(text: Option<&str>, calls: &[ToolCall], finished: &str, show: Show<'_>) -> String {
    json!([{"role": "assistant", "parts": parts(text, calls, show), "finish_reason": finished}]).to_string()
}

fn message(message: &Message, show: Show<'_>) -> Value {
    match message {
        Message::System(text) => json!({"role": "system", "parts": parts(Some(text), &[], show)}),
        Message::User(text) => json!({"role": "user", "parts": parts(Some(text), &[], show)}),
        Message::Assistant { text, calls } => {
            json!({"role": "assistant", "parts": parts(text.as_deref(), calls, show)})
        }
        Message::Tool { id, content, tool: _ } => {
            json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": show(content)}]})
        }
    }
}

fn parts(text: Option<&str>, calls: &[ToolCall], show: Show<'_>) -> Vec<Value> {
    let text = text.map(|text| json!({"type": "text", "content": show(text)}));
    let call = |call: &ToolCall| {
        let whole = call.arguments.value().to_string();
        let shown = show(&whole);
        // A shortened value is no longer JSON, so it becomes a text.
        let arguments = if shown == whole { call.arguments.value().clone() } else { Value::String(shown) };
        json!({"type": "tool_call", "id": call.id, "name": call.tool, "arguments": arguments})
    };
    text.into_iter().chain(calls.iter().map(call)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x4_long_conversations_are_cut_to_valid_json() {
        let show = |text: &str| domain::wording::cut(text.replace("secret", "***"), 16 << 10);
        let long = Message::User("a \"secret\" ".repeat(10_000));
        let said = vec![
            Message::System("rules".into()),
            long.clone(),
            long.clone(),
            long.clone(),
            long.clone(),
            long,
        ];
        let shown = sent(&said, &show);
        assert!(shown.len() <= MAX_SENT_BYTES + 16 && !shown.contains("secret"), "{} bytes", shown.len());
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert!(shown.as_array().unwrap().len() > 1, "the last messages are shown");
        let answer: Value = serde_json::from_str(&answered(Some("secret"), &[], "stop", &show)).unwrap();
        let parts = json!([{"type": "text", "content": "***"}]);
        assert_eq!(answer, json!([{"role": "assistant", "parts": parts, "finish_reason": "stop"}]));
    }
}
