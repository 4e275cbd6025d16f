//! What a model is to be asked, and the most tokens that can be. The bound is what makes a ceiling a ceiling:
//! it must never be too low, whatever tokenizer a provider has.

use sha2::{Digest, Sha256};
use shared::{Json, id::ModelName, wire::ModelStep};

use crate::model::{Cue, Message, ToolSpec};

/// What a provider may put around each message, and before the first tool, in tokens.
const AROUND_A_MESSAGE: u64 = 16;
const BEFORE_TOOLS: u64 = 640;
/// Where a provider counts fewer tokens than this allows, it left something out, such as what it had cached.
const MOST_BYTES_OF_A_TOKEN: u64 = 12;
/// The words that tell a model of a schema, where its provider has no other way.
const AROUND_A_SCHEMA: u64 = 256;

/// What a model is to be asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) messages: &'a [Message],
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) output_schema: Option<&'a Json>,
    pub(crate) max_tokens: u32,
    /// The agent's last report: may use its closing reserve (B7).
    pub(crate) closing: bool,
    /// What a call before this one sent and used, if this one sends the same and then some messages.
    pub(crate) before: Option<Before<'a>>,
    /// Something was left out of the window: what was sent does not tell of what comes next.
    pub(crate) left_out: bool,
    pub(crate) script: Option<Cue<'a>>,
    /// See [`ModelStep::asked`].
    pub(crate) asked: Option<&'a str>,
}

/// An earlier call, whose messages these begin with, and whose tools and schema were no less.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before<'a> {
    model: &'a ModelName,
    input_tokens: u64,
    size_bytes: u64,
    messages: u64,
}

impl<'a> Before<'a> {
    /// What `step` used, if these messages, tools and schema are what it sent. Not if the provider counted
    /// fewer tokens than that can be.
    pub(crate) fn of(
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
        Some(Before { model: &step.model, input_tokens, size_bytes, messages: messages.len() as u64 })
    }
}

/// Of all that is sent, word for word.
fn digest(messages: &[Message], tools: &[ToolSpec], output_schema: Option<&Json>) -> String {
    let mut digest = Sha256::new();
    // Each part with its length before it: no two sequences of parts are the same bytes.
    let mut add = |text: &str| {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    };
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
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

impl Question<'_> {
    /// What the journal keeps of it.
    pub(super) fn sent(&self) -> Option<String> {
        (!self.left_out).then(|| digest(self.messages, self.tools, self.output_schema))
    }

    /// No more tokens than this are sent. A token is at least a byte; where an earlier call told how
    /// many there were, only what came since is counted in bytes.
    pub(super) fn input_tokens(&self, model: &ModelName) -> u64 {
        let messages = self.messages.len() as u64;
        let size_bytes = size_bytes(self.messages);
        match self.before {
            Some(before)
                if before.model == model
                    && before.size_bytes <= size_bytes
                    && before.messages <= messages =>
            {
                before.input_tokens
                    + (size_bytes - before.size_bytes)
                    + AROUND_A_MESSAGE * (messages - before.messages + 1)
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
