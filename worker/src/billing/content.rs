//! What was said in a model call, as the GenAI conventions write it in spans: only for those who switched that on.

use serde_json::{Value, json};
use shared::wire::ToolCall;

use crate::model::Message;

/// The messages that were sent.
pub(super) fn sent(messages: &[Message]) -> String {
    Value::from(messages.iter().map(message).collect::<Vec<_>>()).to_string()
}

/// The answer of the model.
pub(super) fn answered(text: Option<&str>, calls: &[ToolCall]) -> String {
    json!([{"role": "assistant", "parts": parts(text, calls)}]).to_string()
}

fn message(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({"role": "system", "parts": parts(Some(text), &[])}),
        Message::User(text) => json!({"role": "user", "parts": parts(Some(text), &[])}),
        Message::Assistant { text, calls } => {
            json!({"role": "assistant", "parts": parts(text.as_deref(), calls)})
        }
        Message::Tool { id, content, tool: _ } => {
            json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": content}]})
        }
    }
}

fn parts(text: Option<&str>, calls: &[ToolCall]) -> Vec<Value> {
    let text = text.map(|text| json!({"type": "text", "content": text}));
    let call = |call: &ToolCall| json!({"type": "tool_call", "id": call.id, "name": call.tool, "arguments": call.arguments.value()});
    text.into_iter().chain(calls.iter().map(call)).collect()
}
