//! Keeps the client from changing the name of a model. The client reads its own syntax in names: it
//! removes `a` from `a::b`. It also removes the last word of `qwen3-max` or `x-high`, and sends
//! that as a reasoning effort. The provider would then answer with another model than the priced
//! one.

use genai::chat::{ChatOptions, ReasoningEffort};
use serde_json::json;

use crate::settings::Protocol;

/// The name for the client. The client removes everything up to the first `::`; for Gemini it does
/// so twice.
pub(super) fn for_client(protocol: Protocol, name: &str) -> String {
    match protocol {
        Protocol::Openai | Protocol::Ollama => format!("::{name}"),
        // The real name is in the body. After a trailing dash the client finds no effort.
        Protocol::Anthropic => format!("::{name}-"),
        Protocol::Gemini => format!("::::{name}"),
    }
}

/// Options with which the client reads no effort from a name. It reads none if one is set, so these
/// options set an effort that the client does not send. For Anthropic the client sends every
/// effort, so the name in the body is replaced there.
pub(super) fn without_effort(protocol: Protocol, name: &str, options: ChatOptions) -> ChatOptions {
    match protocol {
        Protocol::Openai => options.with_reasoning_effort(ReasoningEffort::Budget(0)),
        Protocol::Anthropic => options.with_extra_body(json!({ "model": name })),
        Protocol::Gemini => options.with_reasoning_effort(ReasoningEffort::Zero),
        // The client reads no efforts from names for Ollama.
        Protocol::Ollama => options,
    }
}
