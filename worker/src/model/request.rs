//! One request to a model and its completion, whatever provider it goes to.

use std::{collections::BTreeMap, time::Duration};

use shared::{
    ContextKey, Json,
    agent::Turn,
    id::{ModelName, ToolName},
    wire::{ToolCall, Usage},
};

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) model: &'a ModelName,
    pub(crate) messages: &'a [Message],
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) max_tokens: u32,
    /// A JSON Schema its answer must fit.
    pub(crate) output_schema: Option<&'a Json>,
    /// After this the call is cut off.
    pub(crate) timeout: Duration,
    /// What the scripted model goes by.
    pub(crate) script: Option<Cue<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    System(String),
    User(String),
    Assistant { text: Option<String>, calls: Vec<ToolCall> },
    Tool { id: String, tool: String, content: String },
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolSpec {
    pub(crate) name: ToolName,
    pub(crate) description: String,
    /// A JSON Schema of its arguments: an object.
    pub(crate) parameters: Json,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Completion {
    pub(crate) text: Option<String>,
    /// Each under an id no other call of the conversation has.
    pub(crate) calls: Vec<ToolCall>,
    /// None if the provider did not say.
    pub(crate) usage: Option<Usage>,
    /// It stopped because of `max_tokens`.
    pub(crate) cut_off: bool,
}

/// Why there is no completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The provider said no, or the call never left: nothing was served, nothing is owed.
    #[error("{message}")]
    Refused { message: String, again: bool, retry_after: Option<Duration> },
    /// It may have been served; what it cost is not known.
    #[error("{message}")]
    Unknown { message: String },
}

/// What the script is, and what is filled in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cue<'a> {
    pub(crate) turns: &'a [Turn],
    pub(crate) goal: &'a str,
    pub(crate) inputs: &'a BTreeMap<ContextKey, Json>,
    /// How often the model has answered before.
    pub(crate) answered: usize,
    /// The last report is asked for.
    pub(crate) closing: bool,
}

impl Error {
    /// A refusal that only a change of the settings mends.
    pub(super) fn refused(message: String) -> Self {
        Error::Refused { message, again: false, retry_after: None }
    }
}

impl Message {
    /// The bytes of what it says, which its tokens can't outnumber.
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
