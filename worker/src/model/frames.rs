//! Reads the frames of a stream in addition to the client: the usage of the call, its name, the
//! tool calls of OpenAI's protocol, and the end of an answer.

use std::sync::{Arc, Mutex, PoisonError};

use domain::wire::Usage;
use genai::chat::{ChatOptions, ToolCall};
use serde_json::Value;

use super::{
    chunks::Chunks,
    request::AnswerIdentity,
    usage::{UsageReports, finishes},
};
use crate::settings::Protocol;

/// The longest name of an answer that is read.
const MAX_NAME_BYTES: usize = 128;

/// The data that is read from the frames of a stream, in addition to the client's.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames(Arc<Mutex<FramesSeen>>);

#[derive(Debug, Default)]
struct FramesSeen {
    usage: UsageReports,
    ended: bool,
    chunks: Chunks,
    /// The names in the first frame.
    named: Option<AnswerIdentity>,
}

impl Frames {
    /// Reads every frame. The client alone is not enough: it keeps only one of several usages,
    /// without the reasoning tokens that some servers report separately. It also treats an
    /// interrupted stream of Gemini or Ollama as ended.
    pub(super) fn watch(&self, protocol: Protocol, options: ChatOptions) -> ChatOptions {
        let seen = self.clone();
        options.with_raw_frame_fn(move |_, frame| {
            seen.read_name(protocol, frame.data);
            let markers: &[&str] = match protocol {
                Protocol::Openai => &["\"usage\"", "\"tool_calls\""],
                Protocol::Anthropic => &["\"usage\""],
                Protocol::Gemini => &["\"usageMetadata\"", "\"finishReason\""],
                Protocol::Ollama => &["\"done\""],
            };
            if !markers.iter().any(|marker| frame.data.contains(marker)) {
                return;
            }
            if let Ok(value) = serde_json::from_str(frame.data) {
                return seen.read_frame(protocol, &value);
            }
            // An Ollama frame may have several lines.
            for value in frame.data.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                seen.read_frame(protocol, &value);
            }
        })
    }

    /// Reads the names of the answer from the first frame.
    fn read_name(&self, protocol: Protocol, frame: &str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.named.is_none() {
            let first = frame.lines().next().and_then(|line| serde_json::from_str(line).ok());
            seen.named = first.map(|first| named(protocol, &first));
        }
    }

    /// The provider's names of the answer and its model.
    pub(super) fn named(&self) -> AnswerIdentity {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).named.clone().unwrap_or_default()
    }

    fn read_frame(&self, protocol: Protocol, frame: &Value) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.usage.add(protocol, frame);
        seen.ended |= finishes(protocol, frame);
        if protocol == Protocol::Openai {
            seen.chunks.add(frame);
        }
    }

    /// True if the answer has too many tool calls.
    pub(super) fn overflowed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks.overflowed
    }

    /// The tool calls, for the protocol whose calls are assembled here instead of by the client.
    pub(super) fn take_calls(&self) -> Vec<ToolCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chunks.take()
    }

    /// True if the provider ended the answer. For the other protocols the client itself checks that.
    pub(super) fn ended(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Openai | Protocol::Anthropic => true,
            Protocol::Gemini | Protocol::Ollama => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).ended
            }
        }
    }

    /// The usage of the whole call.
    pub(super) fn usage(&self, protocol: Protocol) -> Option<Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).usage.usage(protocol)
    }
}

/// The names in a frame.
fn named(protocol: Protocol, frame: &Value) -> AnswerIdentity {
    let (id, model) = match protocol {
        Protocol::Openai | Protocol::Ollama => ("/id", "/model"),
        Protocol::Anthropic => ("/message/id", "/message/model"),
        Protocol::Gemini => ("/responseId", "/modelVersion"),
    };
    // The provider may send any text here, so only texts in the form of a name are taken.
    let is_name = |text: &&str| {
        (1..=MAX_NAME_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte))
    };
    let text = |path| frame.pointer(path).and_then(Value::as_str).filter(is_name).map(str::to_owned);
    AnswerIdentity { id: text(id), model: text(model) }
}
