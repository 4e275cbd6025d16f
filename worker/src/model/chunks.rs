//! The tool calls of an OpenAI stream, put together from its chunks. The client would do it too, but
//! takes a chunk's index for a place in a list: it fills gaps with copies of the call, and a list of four
//! thousand million places with them. Here an index is a name and nothing else.

use std::collections::BTreeMap;

use genai::chat::ToolCall;
use serde_json::Value;

/// In one answer; nobody asks for as many.
const MOST_CALLS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Chunks {
    calls: BTreeMap<u64, Call>,
    /// There were more calls than are taken.
    pub(super) overflowed: bool,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Chunks {
    /// What a frame adds; most add nothing.
    pub(super) fn add(&mut self, frame: &Value) {
        let Some(chunks) = frame.pointer("/choices/0/delta/tool_calls").and_then(Value::as_array) else {
            return;
        };
        for chunk in chunks {
            let Some(index) = chunk.get("index").and_then(Value::as_u64) else { continue };
            if self.calls.len() >= MOST_CALLS && !self.calls.contains_key(&index) {
                self.overflowed = true;
                return;
            }
            let call = self.calls.entry(index).or_default();
            let text = |path: &str| chunk.pointer(path).and_then(Value::as_str).unwrap_or_default();
            // Some servers say these again with every chunk.
            for (field, path) in [(&mut call.id, "/id"), (&mut call.name, "/function/name")] {
                if !text(path).is_empty() {
                    *field = text(path).to_owned();
                }
            }
            call.arguments.push_str(text("/function/arguments"));
        }
    }

    /// The calls in the order of their indexes. Arguments that are no JSON stay the text they are.
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
