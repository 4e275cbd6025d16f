//! The usage of a call as its provider reports it. A number that is missing or impossible is unknown; no number is
//! ever made up.

use std::sync::{Arc, Mutex, PoisonError};

use genai::chat::{ChatOptions, ToolCall, Usage as Reported};
use serde_json::Value;
use shared::wire::Usage;

use super::{chunks::Chunks, request::Named};
use crate::settings::Protocol;

/// The most of what a provider calls an answer.
const MAX_NAME_BYTES: usize = 128;

/// What is read from the frames of a stream in addition to what the client reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The last usage in a frame.
    usage: Option<Reported>,
    ended: bool,
    chunks: Chunks,
    /// What the first frame calls the answer.
    named: Option<Named>,
}

impl Frames {
    /// Reads every frame. The client misses the usage in a chunk with an empty choice (the last one of LiteLLM), and
    /// treats a stream of Gemini or Ollama that broke off as ended.
    pub(super) fn watch(&self, protocol: Protocol, options: ChatOptions) -> ChatOptions {
        let seen = self.clone();
        options.with_raw_frame_fn(move |_, frame| {
            seen.read_name(protocol, frame.data);
            let markers: &[&str] = match protocol {
                Protocol::Openai => &["\"usage\"", "\"tool_calls\""],
                Protocol::Gemini => &["\"finishReason\""],
                Protocol::Ollama => &["\"done\""],
                Protocol::Anthropic => return,
            };
            if !markers.iter().any(|marker| frame.data.contains(marker)) {
                return;
            }
            // An Ollama frame may have several lines.
            for value in frame.data.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                seen.read_frame(protocol, &value);
            }
        })
    }

    /// The first frame names the answer.
    fn read_name(&self, protocol: Protocol, frame: &str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.named.is_none() {
            let first = frame.lines().next().and_then(|line| serde_json::from_str(line).ok());
            seen.named = first.map(|first| named(protocol, &first));
        }
    }

    /// What the provider called the answer.
    pub(super) fn named(&self) -> Named {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).named.clone().unwrap_or_default()
    }

    fn read_frame(&self, protocol: Protocol, frame: &Value) {
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

    /// Whether the answer has too many tool calls.
    pub(super) fn overflowed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks.overflowed
    }

    /// The tool calls, for the protocol whose calls are assembled here instead of by the client.
    pub(super) fn take_calls(&self) -> Vec<ToolCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks.take()
    }

    /// Whether the provider ended the answer. For the other protocols the client itself checks that.
    pub(super) fn ended(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Openai | Protocol::Anthropic => true,
            Protocol::Gemini | Protocol::Ollama => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).ended
            }
        }
    }

    /// The usage as the client read it, otherwise as the frames have it.
    pub(super) fn usage(&self, read: Option<&Reported>) -> Option<Usage> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read.and_then(from_reported).or_else(|| seen.usage.as_ref().and_then(from_reported))
    }
}

/// What a frame calls the answer.
fn named(protocol: Protocol, frame: &Value) -> Named {
    let (id, model) = match protocol {
        Protocol::Openai | Protocol::Ollama => ("/id", "/model"),
        Protocol::Anthropic => ("/message/id", "/message/model"),
        Protocol::Gemini => ("/responseId", "/modelVersion"),
    };
    // Anything may be there: only what looks like a name is one.
    let is_name = |text: &&str| {
        (1..=MAX_NAME_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte))
    };
    let text = |path| frame.pointer(path).and_then(Value::as_str).filter(is_name).map(str::to_owned);
    Named { id: text(id), model: text(model) }
}

/// The client converts every provider's numbers to OpenAI's meaning: tokens read from and written to a cache are part
/// of the prompt (it adds Anthropic's), reasoning is part of the completion (it adds Gemini's thoughts).
fn from_reported(reported: &Reported) -> Option<Usage> {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
    let prompt = reported.prompt_tokens_details.as_ref();
    let completion = reported.completion_tokens_details.as_ref();
    let reasoning = completion.and_then(|details| count(details.reasoning_tokens));
    // Every request has input tokens, so zero means that they were not counted.
    let input_tokens = count(reported.prompt_tokens).filter(|tokens| *tokens > 0)?;
    // If Gemini only reasoned, it reports no completion tokens.
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
