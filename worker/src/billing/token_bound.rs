//! A paid request and the upper bound of its input tokens. The bound is what makes a ceiling a ceiling: it must
//! never be too low, whatever tokenizer a provider has.

use shared::{Json, digest::SequenceDigest, id::ModelName, wire::ModelStep};

use crate::model::{Message, ScriptInput, ToolSpec};

/// Tokens a provider may add around each message, and before the first tool.
const AROUND_A_MESSAGE: u64 = 16;
const BEFORE_TOOLS: u64 = 640;
/// A provider that counts fewer tokens than one for this many bytes left something out, such as cached input.
const MOST_BYTES_OF_A_TOKEN: u64 = 12;
/// Tokens of the instructions that describe a schema, where the provider has no parameter for it.
const AROUND_A_SCHEMA: u64 = 256;

/// What a model is to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaidRequest<'a> {
    pub(crate) messages: &'a [Message],
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) output_schema: Option<&'a Json>,
    pub(crate) max_tokens: u32,
    /// The agent's last report: may use its closing reserve (B7).
    pub(crate) closing: bool,
    /// An earlier call, if this request sends what that one sent and then more messages.
    pub(crate) earlier: Option<EarlierCall<'a>>,
    /// Messages were left out of the window: a later request will not begin with what this one sends.
    pub(crate) left_out: bool,
    pub(crate) script: Option<ScriptInput<'a>>,
    /// See [`ModelStep::asked`].
    pub(crate) asked: Option<&'a str>,
}

/// An earlier call: this request begins with its messages, and has the same tools and schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierCall<'a> {
    model: &'a ModelName,
    input_tokens: u64,
    size_bytes: u64,
    messages: u64,
}

impl<'a> EarlierCall<'a> {
    /// The call of `step`, if these messages, tools and schema are what it sent, and the provider's count of
    /// its tokens is plausible.
    pub(crate) fn matching(
        step: &'a ModelStep,
        messages: &[Message],
        tools: &[ToolSpec],
        output_schema: Option<&Json>,
    ) -> Option<Self> {
        let input_tokens = step.usage?.input_tokens;
        let size_bytes = size_bytes(messages);
        let plausible = input_tokens.saturating_mul(MOST_BYTES_OF_A_TOKEN) >= size_bytes;
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
                    + AROUND_A_MESSAGE * (messages - earlier.messages + 1)
            }
            Some(_) | None => size_bytes + AROUND_A_MESSAGE * messages + self.tools_tokens(),
        }
    }

    fn tools_tokens(&self) -> u64 {
        let tool = |tool: &ToolSpec| {
            (tool.name.as_str().len() + tool.description.len()) as u64
                + tool.parameters.size_bytes()
                + AROUND_A_MESSAGE
        };
        let schema = self.output_schema.map_or(0, |schema| schema.size_bytes() + AROUND_A_SCHEMA);
        let tools: u64 = self.tools.iter().map(tool).sum();
        schema + tools + if self.tools.is_empty() { 0 } else { BEFORE_TOOLS }
    }
}

fn size_bytes(messages: &[Message]) -> u64 {
    messages.iter().map(|message| message.size_bytes() as u64).sum()
}
