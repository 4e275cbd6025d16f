//! What a call used, out of what its provider says. What is not said, or can't be true, is not known;
//! nothing here ever makes up a number.

use std::sync::{Arc, Mutex, PoisonError};

use genai::chat::{ChatOptions, ToolCall, Usage as Reported};
use serde_json::Value;
use shared::wire::Usage;

use super::chunks::Chunks;
use crate::settings::Protocol;

/// What the frames of a stream say beside what the client reads in them.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The last that was said of usage.
    usage: Option<Reported>,
    ended: bool,
    chunks: Chunks,
}

impl Frames {
    /// Looks at every frame. The client misses the usage in a chunk that has a choice with nothing in it
    /// (LiteLLM's last one), and takes a stream of Gemini or Ollama that breaks off for one that ended.
    pub(super) fn watch(&self, protocol: Protocol, options: ChatOptions) -> ChatOptions {
        let seen = self.clone();
        options.with_raw_frame_fn(move |_, frame| {
            let words: &[&str] = match protocol {
                Protocol::Openai => &["\"usage\"", "\"tool_calls\""],
                Protocol::Gemini => &["\"finishReason\""],
                Protocol::Ollama => &["\"done\""],
                Protocol::Anthropic => return,
            };
            if !words.iter().any(|word| frame.data.contains(word)) {
                return;
            }
            // An Ollama frame may be several lines.
            for value in frame.data.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                seen.look(protocol, &value);
            }
        })
    }

    fn look(&self, protocol: Protocol, frame: &Value) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match protocol {
            Protocol::Openai => {
                let usage = frame.get("usage").filter(|usage| usage.is_object());
                if let Some(usage) = usage.and_then(|usage| serde_json::from_value(usage.clone()).ok()) {
                    seen.usage = Some(usage);
                }
                seen.chunks.add(frame);
            }
            Protocol::Gemini => {
                seen.ended |= frame.pointer("/candidates/0/finishReason").is_some_and(Value::is_string);
            }
            Protocol::Ollama => seen.ended |= frame.get("done") == Some(&Value::Bool(true)),
            Protocol::Anthropic => {}
        }
    }

    /// Whether there are more tool calls than are taken.
    pub(super) fn overflowed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks.overflowed
    }

    /// The tool calls of a protocol whose calls the client is not left to put together.
    pub(super) fn take_calls(&self) -> Vec<ToolCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks.take()
    }

    /// Whether the provider said that this was all. The client itself waits for the end of the others.
    pub(super) fn ended(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Openai | Protocol::Anthropic => true,
            Protocol::Gemini | Protocol::Ollama => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).ended
            }
        }
    }

    /// What was used: as the client read it, else as it stands in the frames.
    pub(super) fn usage(&self, read: Option<&Reported>) -> Option<Usage> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read.and_then(of).or_else(|| seen.usage.as_ref().and_then(of))
    }
}

/// The client gives every provider's numbers OpenAI's meaning: cached and written tokens are part of the
/// prompt (it adds Anthropic's), reasoning is part of the completion (it adds Gemini's thoughts).
fn of(reported: &Reported) -> Option<Usage> {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
    let prompt = reported.prompt_tokens_details.as_ref();
    let completion = reported.completion_tokens_details.as_ref();
    let reasoning = completion.and_then(|details| count(details.reasoning_tokens));
    // Nothing can be asked with nothing: such a count stands for "not counted".
    let input_tokens = count(reported.prompt_tokens).filter(|tokens| *tokens > 0)?;
    // Gemini that only thought gives no completion.
    let output_tokens = count(reported.completion_tokens).max(reasoning)?;
    let cached_tokens = prompt.and_then(|details| count(details.cached_tokens)).unwrap_or(0);
    let cache_write_tokens = prompt.and_then(|details| count(details.cache_creation_tokens)).unwrap_or(0);
    Some(Usage {
        input_tokens: input_tokens.max(cached_tokens.saturating_add(cache_write_tokens)),
        cached_tokens,
        cache_write_tokens,
        output_tokens,
        reasoning_tokens: reasoning.unwrap_or(0),
    })
}
