//! Models: one call, whatever provider it goes to. Only this module knows providers. It makes calls and
//! tells what became of them; whether a call may be made and what it costs is decided elsewhere.

mod call;
mod chunks;
mod failure;
mod price;
mod provider;
mod scripted;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod tool_names;
mod translate;
mod usage;

use std::time::Duration;

use shared::{
    Json, Problems,
    id::{ModelName, ToolName},
    wire::{ToolCall, Usage},
};

pub(crate) use price::{Price, Prices, Unpriced};
pub(crate) use scripted::Cue;

use crate::settings::Settings;
use provider::Providers;

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
    pub(crate) script: Option<scripted::Cue<'a>>,
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

/// Every model a worker can call.
#[derive(Debug)]
pub(crate) struct Models {
    prices: Prices,
    providers: Providers,
}

impl Models {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Problems> {
        Ok(Models { prices: Prices::new(&settings.prices), providers: Providers::new(settings)? })
    }

    pub(crate) fn price(&self, model: &ModelName) -> Result<Price, Unpriced> {
        self.prices.of(model, self.providers.priced_as(model))
    }

    /// Makes one call. Pieces of text are handed on as they come.
    pub(crate) async fn complete(
        &self,
        request: &Request<'_>,
        said: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Completion, Error> {
        if scripted::is(request.model) {
            return scripted::complete(request, said).await;
        }
        call::make(&self.providers.route(request.model)?, request, said).await
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
