//! One request to a model and its completion, the same for every provider.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    ContextKey, Json,
    agent::Turn,
    id::{ModelName, ToolName},
    wire::{ToolCall, Usage},
};

/// One request to a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) model: &'a ModelName,
    pub(crate) messages: &'a [Message],
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) max_tokens: u32,
    /// The JSON Schema that the answer must match.
    pub(crate) output_schema: Option<&'a Json>,
    /// After this time the call is dropped.
    pub(crate) timeout: Duration,
    /// The trace that the call belongs to, if the provider may know it.
    pub(crate) traceparent: Option<&'a str>,
    /// Only for the scripted model.
    pub(crate) script: Option<ScriptInput<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    System(String),
    User(String),
    Assistant { text: Option<String>, calls: Vec<ToolCall> },
    Tool { id: String, tool: String, content: String },
}

/// A tool as it is described to a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolSpec {
    pub(crate) name: ToolName,
    pub(crate) description: String,
    /// The JSON Schema of its arguments, which are an object.
    pub(crate) parameters: Json,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Completion {
    pub(crate) text: Option<String>,
    /// Each has an id that is unique in the conversation.
    pub(crate) calls: Vec<ToolCall>,
    /// `None` if the provider did not report it.
    pub(crate) usage: Option<Usage>,
    /// True if it ended because of `max_tokens`.
    pub(crate) cut_off: bool,
    pub(crate) named: AnswerIdentity,
}

/// A provider's id for an answer, and the model that gave it, for spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnswerIdentity {
    pub(crate) id: Option<String>,
    pub(crate) model: Option<String>,
}

/// The errors of a call without a completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The provider refused the call, or it was not sent. It costs nothing.
    #[error("{message}")]
    Refused { message: String, retryable: bool, retry_after: Option<Duration> },
    /// The call may have been served. Its cost is unknown.
    #[error("{message}")]
    Unknown { message: String },
}

/// The script of the scripted model, and the values that it contains.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptInput<'a> {
    pub(crate) turns: &'a [Turn],
    pub(crate) goal: &'a str,
    pub(crate) inputs: &'a BTreeMap<ContextKey, Json>,
    /// The number of answers that the model has already given.
    pub(crate) answered: usize,
    /// True if this call asks for the final report.
    pub(crate) closing: bool,
    /// True if it asks for a summary of a full window.
    pub(crate) summary: bool,
}

impl Error {
    /// A refusal that is the same on every retry.
    pub(super) fn refused(message: String) -> Self {
        Error::Refused { message, retryable: false, retry_after: None }
    }
}

impl Message {
    /// Its size in bytes: an upper bound of its tokens.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Message::System(text) | Message::User(text) => text.len(),
            Message::Assistant { text, calls } => {
                let calls = calls.iter().map(|call| {
                    call.id.len()
                        + call.tool.len()
                        + usize::try_from(call.arguments.size_bytes()).unwrap_or(usize::MAX)
                });
                text.as_ref().map_or(0, String::len) + calls.sum::<usize>()
            }
            Message::Tool { id, tool, content } => id.len() + tool.len() + content.len(),
        }
    }
}
