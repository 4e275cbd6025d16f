//! How large an answer has become, as it comes. A provider that never ends would otherwise fill the
//! memory of the worker, and what is larger than this fits no journal either.

use genai::chat::{ChatStreamEvent, ToolCall};
use serde_json::Value;

use crate::settings::Protocol;

/// All that is kept of one answer: its text, its thoughts and the arguments of its calls.
pub(super) const MOST_BYTES: usize = 4 << 20;
/// What a piece takes besides its text: endless pieces of nothing are an end as well.
const A_PIECE: usize = 64;

#[derive(Debug)]
pub(super) struct Size {
    protocol: Protocol,
    bytes: usize,
    /// Of the call that is being written, where each piece repeats those before it.
    written: usize,
}

impl Size {
    pub(super) fn new(protocol: Protocol) -> Self {
        Size { protocol, bytes: 0, written: 0 }
    }

    /// Counts one piece. False once the answer is too large.
    pub(super) fn fits(&mut self, event: &ChatStreamEvent) -> bool {
        self.bytes += match event {
            ChatStreamEvent::Chunk(chunk) | ChatStreamEvent::ReasoningChunk(chunk) => chunk.content.len(),
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => chunk.content.len() + A_PIECE,
            ChatStreamEvent::ToolCallChunk(chunk) => self.call(&chunk.tool_call),
            // What ends it was counted before.
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat | ChatStreamEvent::End(_) => 0,
        };
        self.bytes <= MOST_BYTES
    }

    fn call(&mut self, call: &ToolCall) -> usize {
        let arguments = match &call.fn_arguments {
            Value::String(text) => text.len(),
            other
            @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string().len()
            }
        };
        let whole = call.call_id.len() + call.fn_name.len() + arguments + A_PIECE;
        match self.protocol {
            Protocol::Anthropic => {
                let before = std::mem::replace(&mut self.written, arguments);
                // A call begins with nothing.
                if arguments == 0 || arguments < before { whole } else { arguments - before }
            }
            // The client names each piece of a call that has no name.
            Protocol::Openai => call.fn_name.len() + arguments,
            Protocol::Gemini | Protocol::Ollama => whole,
        }
    }
}
