//! The name of a model reaches its provider as it is written. The client reads syntax of its own in names: it removes
//! `a` from `a::b`, and the last word of `qwen3-max` or `x-high`, which it sends as an effort of reasoning. Another model
//! than the priced one would answer.

use genai::chat::{ChatOptions, ReasoningEffort};
use serde_json::json;

use crate::settings::Protocol;

/// The name that the client is given. It removes everything up to the first `::`; for Gemini it does so twice.
pub(super) fn for_client(protocol: Protocol, name: &str) -> String {
    match protocol {
        Protocol::Openai | Protocol::Ollama => format!("::{name}"),
        // The body has the name; behind a dash that ends it, the client finds no effort.
        Protocol::Anthropic => format!("::{name}-"),
        Protocol::Gemini => format!("::::{name}"),
    }
}

/// Options with which the client reads no effort from a name. It reads none where one is set, so an effort is set that
/// the client does not send. At Anthropic it sends each, so the name in the body is replaced there.
pub(super) fn without_effort(protocol: Protocol, name: &str, options: ChatOptions) -> ChatOptions {
    match protocol {
        Protocol::Openai => options.with_reasoning_effort(ReasoningEffort::Budget(0)),
        Protocol::Anthropic => options.with_extra_body(json!({ "model": name })),
        Protocol::Gemini => options.with_reasoning_effort(ReasoningEffort::Zero),
        // There, names have no effort.
        Protocol::Ollama => options,
    }
}
