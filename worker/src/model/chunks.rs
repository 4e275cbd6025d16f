//! Assembles the tool calls of an OpenAI stream from its chunks. The client can do this too, but it
//! uses a chunk's index as a position in a list, and fills gaps with copies of the call. So an
//! index of four billion creates a list of that length. Here an index only identifies a call.

use std::collections::BTreeMap;

use genai::chat::ToolCall;
use serde_json::Value;

/// The most tool calls of one answer, more than any sensible answer has.
const MAX_CALLS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Chunks {
    calls: BTreeMap<u64, Call>,
    /// The answer had more than [`MAX_CALLS`].
    pub(super) overflowed: bool,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Chunks {
    /// Adds the chunks of a frame, if it has any.
    pub(super) fn add(&mut self, frame: &Value) {
        let Some(chunks) = frame.pointer("/choices/0/delta/tool_calls").and_then(Value::as_array) else {
            return;
        };
        for chunk in chunks {
            let Some(index) = chunk.get("index").and_then(Value::as_u64) else { continue };
            if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&index) {
                self.overflowed = true;
                return;
            }
            let call = self.calls.entry(index).or_default();
            let text = |path: &str| chunk.pointer(path).and_then(Value::as_str).unwrap_or_default();
            // Some servers repeat these fields in every chunk.
            for (field, path) in [(&mut call.id, "/id"), (&mut call.name, "/function/name")] {
                if !text(path).is_empty() {
                    *field = text(path).to_owned();
                }
            }
            call.arguments.push_str(text("/function/arguments"));
        }
    }

    /// The calls in the order of their indexes. Arguments that are not JSON are returned as a string.
    pub(super) fn take(&mut self) -> Vec<ToolCall> {
        let calls = std::mem::take(&mut self.calls).into_values();
        let call = |call: Call| ToolCall {
            call_id: call.id,
            fn_name: call.name,
            fn_arguments: serde_json::from_str(&call.arguments).unwrap_or(Value::String(call.arguments)),
            thought_signatures: None,
        };
        calls.map(call).collect()
    }
}
