//! A paid request and the upper bound of its input tokens. The budget is only a hard limit if this
//! bound is never too low, whatever tokenizer a provider has.

use shared::{
    Json,
    digest::SequenceDigest,
    id::ModelName,
    wire::{ModelStep, Seen},
};

use crate::model::{Message, ScriptInput, ToolSpec};

/// Tokens a provider may add around each message, and before the first tool.
const MESSAGE_OVERHEAD_TOKENS: u64 = 16;
const TOOLS_OVERHEAD_TOKENS: u64 = 640;
/// A count with more bytes per token than this is incomplete: it may exclude cached input, for example.
const MAX_BYTES_PER_TOKEN: u64 = 12;
/// Tokens of the instructions that describe a schema, where the provider has no parameter for it.
const SCHEMA_OVERHEAD_TOKENS: u64 = 256;

/// A request to a model that is to be paid for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaidRequest<'a> {
    pub(crate) messages: &'a [Message],
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) output_schema: Option<&'a Json>,
    pub(crate) max_tokens: u32,
    /// The agent's last report: may use its closing reserve (B7).
    pub(crate) closing: bool,
    /// An earlier call, if this request sends the same messages and then more.
    pub(crate) earlier: Option<EarlierCall<'a>>,
    /// Messages were left out of the window, so a later request will not begin with the messages of this one.
    pub(crate) left_out: bool,
    pub(crate) script: Option<ScriptInput<'a>>,
    /// The model, if it is another than the context's own (B21).
    pub(crate) model: Option<&'a ModelName>,
    /// What the journal has of messages and rungs; none if the agent takes no news.
    pub(crate) seen: Option<Seen>,
    /// Identifies the request of a program; stored as [`ModelStep::asked`].
    pub(crate) asked: Option<&'a str>,
}

/// An earlier call: this request begins with its messages, and has no more tools and no larger schema. (The last
/// report sends neither.) So what the provider counted for the earlier call bounds that part of this one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierCall<'a> {
    model: &'a ModelName,
    input_tokens: u64,
    size_bytes: u64,
    messages: u64,
}

impl<'a> EarlierCall<'a> {
    /// The call of `step`, if it sent exactly these messages, tools and schema, and the provider's count of its
    /// tokens is plausible.
    pub(crate) fn matching(
        step: &'a ModelStep,
        messages: &[Message],
        tools: &[ToolSpec],
        output_schema: Option<&Json>,
    ) -> Option<Self> {
        let input_tokens = step.usage?.input_tokens;
        let size_bytes = size_bytes(messages);
        let plausible = input_tokens.saturating_mul(MAX_BYTES_PER_TOKEN) >= size_bytes;
        if !plausible || step.sent.as_ref()? != &digest(messages, tools, output_schema) {
            return None;
        }
        Some(EarlierCall { model: &step.model, input_tokens, size_bytes, messages: messages.len() as u64 })
    }
}

/// A digest of everything that is sent.
fn digest(messages: &[Message], tools: &[ToolSpec], output_schema: Option<&Json>) -> String {
    let mut digest = SequenceDigest::default();
    let mut add = |text: &str| digest.add(text);
    for message in messages {
        match message {
            Message::System(text) => ["system", text].into_iter().for_each(&mut add),
            Message::User(text) => ["user", text].into_iter().for_each(&mut add),
            Message::Assistant { text, calls } => {
                ["assistant", text.as_deref().unwrap_or_default()].into_iter().for_each(&mut add);
                for call in calls {
                    let arguments = call.arguments.value().to_string();
                    [call.id.as_str(), call.tool.as_str(), &arguments].into_iter().for_each(&mut add);
                }
            }
            Message::Tool { id, tool, content } => {
                ["tool", id, tool, content].into_iter().for_each(&mut add);
            }
        }
    }
    for tool in tools {
        let parameters = tool.parameters.value().to_string();
        [tool.name.as_str(), &tool.description, &parameters].into_iter().for_each(&mut add);
    }
    add(&output_schema.map(|schema| schema.value().to_string()).unwrap_or_default());
    digest.short()
}

impl PaidRequest<'_> {
    /// The digest that the journal keeps of it.
    pub(super) fn sent(&self) -> Option<String> {
        (!self.left_out).then(|| digest(self.messages, self.tools, self.output_schema))
    }

    /// The upper bound of its input tokens. A token is at least a byte; where an earlier call reported its
    /// tokens, only what was added since is counted in bytes.
    pub(super) fn input_tokens(&self, model: &ModelName) -> u64 {
        let messages = self.messages.len() as u64;
        let size_bytes = size_bytes(self.messages);
        match self.earlier {
            Some(earlier)
                if earlier.model == model
                    && earlier.size_bytes <= size_bytes
                    && earlier.messages <= messages =>
            {
                earlier.input_tokens
                    + (size_bytes - earlier.size_bytes)
                    + MESSAGE_OVERHEAD_TOKENS * (messages - earlier.messages + 1)
            }
            Some(_) | None => size_bytes + MESSAGE_OVERHEAD_TOKENS * messages + self.tools_tokens(),
        }
    }

    fn tools_tokens(&self) -> u64 {
        let tool = |tool: &ToolSpec| {
            (tool.name.as_str().len() + tool.description.len()) as u64
                + tool.parameters.size_bytes()
                + MESSAGE_OVERHEAD_TOKENS
        };
        let schema = self.output_schema.map_or(0, |schema| schema.size_bytes() + SCHEMA_OVERHEAD_TOKENS);
        let tools: u64 = self.tools.iter().map(tool).sum();
        schema + tools + if self.tools.is_empty() { 0 } else { TOOLS_OVERHEAD_TOKENS }
    }
}

fn size_bytes(messages: &[Message]) -> u64 {
    messages.iter().map(|message| message.size_bytes() as u64).sum()
}
