//! Counts the size of an answer while it is streamed. Without a bound an endless answer would fill
//! the worker's memory, and a larger answer does not fit into a journal entry.

use genai::chat::{ChatStreamEvent, ToolCall};
use serde_json::Value;

use crate::settings::Protocol;

/// The most bytes of one answer: its text, its reasoning and the arguments of its calls.
pub(super) const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Added for each piece, so that endless empty pieces also reach the limit.
const PIECE_OVERHEAD_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Size {
    protocol: Protocol,
    bytes: usize,
    /// The bytes of the current call's arguments, for a client that repeats earlier pieces in each
    /// piece.
    arguments_so_far: usize,
}

impl Size {
    pub(super) fn new(protocol: Protocol) -> Self {
        Size { protocol, bytes: 0, arguments_so_far: 0 }
    }

    /// Adds the size of one piece. Returns false once the answer is too large.
    pub(super) fn fits(&mut self, event: &ChatStreamEvent) -> bool {
        self.bytes += match event {
            ChatStreamEvent::Chunk(chunk) | ChatStreamEvent::ReasoningChunk(chunk) => chunk.content.len(),
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => chunk.content.len() + PIECE_OVERHEAD_BYTES,
            ChatStreamEvent::ToolCallChunk(chunk) => self.added_by_call(&chunk.tool_call),
            // The end event repeats text that was counted before.
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat | ChatStreamEvent::End(_) => 0,
        };
        self.bytes <= MAX_ANSWER_BYTES
    }

    fn added_by_call(&mut self, call: &ToolCall) -> usize {
        let arguments = match &call.fn_arguments {
            Value::String(text) => text.len(),
            other
            @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string().len()
            }
        };
        let whole = call.call_id.len() + call.fn_name.len() + arguments + PIECE_OVERHEAD_BYTES;
        match self.protocol {
            Protocol::Anthropic => {
                let before = std::mem::replace(&mut self.arguments_so_far, arguments);
                // A new call begins with empty arguments.
                if arguments == 0 || arguments < before { whole } else { arguments - before }
            }
            // The client invents a call id for each piece, which is not part of the answer.
            Protocol::Openai => call.fn_name.len() + arguments,
            Protocol::Gemini | Protocol::Ollama => whole,
        }
    }
}
