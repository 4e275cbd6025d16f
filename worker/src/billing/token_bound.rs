//! A paid request and the upper bound of its input tokens. The budget is a hard limit only if this
//! bound is never too low. If the model's tokenizer is known, it counts the tokens of the texts.
//! Otherwise every byte counts as a token, because no token is shorter than a byte.

use domain::{
    Json,
    digest::SequenceDigest,
    id::ModelName,
    wire::{ModelStep, SeenNumbers, ToolCall},
    wording::cut,
};

use crate::{
    model::{Message, ScriptInput, ToolSpec},
    settings::Tokenizer,
};

/// Tokens a provider may add around each message, and before the first tool.
const MESSAGE_OVERHEAD_TOKENS: u64 = 16;
const TOOLS_OVERHEAD_TOKENS: u64 = 640;
/// Tokens a provider may add to a request. They are added only if the model's tokenizer counts the
/// texts.
const REQUEST_OVERHEAD_TOKENS: u64 = 64;
/// A provider rewrites some texts, such as the description of a tool, in its own notation. The
/// result has at most this many times the tokens of the JSON.
const NOTATION_FACTOR: u64 = 2;
/// A provider's count with more bytes per token than this is incomplete. It may exclude cached
/// input, for example.
const MAX_BYTES_PER_TOKEN: u64 = 12;
/// Tokens of the instructions that describe an output schema to a model. They are sent if the
/// provider has no parameter for a schema.
const SCHEMA_OVERHEAD_TOKENS: u64 = 256;

/// The most bytes stored of the name of an unoffered tool. A model chose that name.
const MAX_NAME_BYTES: usize = 128;

/// A paid request to a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaidRequest<'a> {
    pub(crate) messages: &'a [Message],
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) output_schema: Option<&'a Json>,
    pub(crate) max_tokens: u32,
    /// The agent's last report, which may use its closing reserve (B7).
    pub(crate) closing: bool,
    /// An earlier call whose messages are the beginning of this request.
    pub(crate) earlier: Option<EarlierCall<'a>>,
    pub(crate) script: Option<ScriptInput<'a>>,
    /// The model, if it differs from the context's own (B21).
    pub(crate) model: Option<&'a ModelName>,
    /// The numbers of the last message and rung in the journal. `None` requests no news.
    pub(crate) seen: Option<SeenNumbers>,
    /// Identifies the request of a program; stored as [`ModelStep::asked`].
    pub(crate) asked: Option<&'a str>,
    /// The request asks for a summary of the journal up to this entry; stored as
    /// [`ModelStep::summary_of`].
    pub(crate) summary_of: Option<u32>,
}

/// An earlier call whose messages are the beginning of this request. The provider's token count of
/// that call bounds the same part of this request. It includes the tools and the schema of this
/// request: both calls send the same ones, except that the last report sends none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierCall<'a> {
    model: &'a ModelName,
    input_tokens: u64,
    messages: usize,
    /// The size of its last message, to which a later request may add text.
    last_bytes: u64,
}

impl<'a> EarlierCall<'a> {
    /// The call of `step`. `None` if it sent other messages, tools or schema, or if the provider's
    /// token count is implausible.
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
        let last_bytes = messages.last()?.size_bytes() as u64;
        Some(EarlierCall { model: &step.model, input_tokens, messages: messages.len(), last_bytes })
    }
}

/// A digest of everything that is sent.
pub(crate) fn digest(messages: &[Message], tools: &[ToolSpec], output_schema: Option<&Json>) -> String {
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
    /// Returns the tools that an answer calls but the request did not offer. Calls in the answers
    /// of programs, summaries and the last report are ignored: these requests have no tools.
    pub(super) fn unoffered(&self, calls: &[ToolCall]) -> Vec<String> {
        if self.asked.is_some() || self.summary_of.is_some() || self.closing {
            return Vec::new();
        }
        let is_missing = |call: &&ToolCall| !self.tools.iter().any(|tool| tool.name.as_str() == call.tool);
        calls.iter().filter(is_missing).map(|call| cut(call.tool.clone(), MAX_NAME_BYTES)).collect()
    }

    /// The digest of the request, as the journal stores it.
    pub(super) fn sent(&self) -> String {
        digest(self.messages, self.tools, self.output_schema)
    }

    /// The upper bound of its input tokens. If an earlier call reported its tokens, only the text
    /// added since is counted.
    pub(super) fn input_tokens(&self, model: &ModelName, tokenizer: Option<Tokenizer>) -> u64 {
        if let Some(earlier) = self.earlier.filter(|earlier| earlier.model == model)
            && let Some(added) = self.added_since(earlier, tokenizer)
        {
            return earlier.input_tokens + added;
        }
        let texts: u64 = self.messages.iter().map(|message| message_tokens(message, tokenizer)).sum();
        let request = if tokenizer.is_some() { REQUEST_OVERHEAD_TOKENS } else { 0 };
        request + texts + self.tools_tokens(tokenizer)
    }

    /// The tokens of the messages after those of the earlier call, and of the text added to the
    /// last message of that call. `None` if that message is now shorter.
    fn added_since(&self, earlier: EarlierCall<'_>, tokenizer: Option<Tokenizer>) -> Option<u64> {
        let last = self.messages.get(earlier.messages.checked_sub(1)?)?;
        let grown = (last.size_bytes() as u64).checked_sub(earlier.last_bytes)?;
        let added = self.messages[earlier.messages..].iter();
        let added: u64 = added.map(|message| message_tokens(message, tokenizer)).sum();
        Some(grown + MESSAGE_OVERHEAD_TOKENS + added)
    }

    fn tools_tokens(&self, tokenizer: Option<Tokenizer>) -> u64 {
        let rewritten = |text: &str| rewritten_tokens(text, tokenizer);
        let tool = |tool: &ToolSpec| {
            rewritten(tool.name.as_str())
                + rewritten(&tool.description)
                + rewritten(&tool.parameters.value().to_string())
                + MESSAGE_OVERHEAD_TOKENS
        };
        let schema = |schema: &Json| rewritten(&schema.value().to_string()) + SCHEMA_OVERHEAD_TOKENS;
        let tools: u64 = self.tools.iter().map(tool).sum();
        self.output_schema.map_or(0, schema)
            + tools
            + if self.tools.is_empty() { 0 } else { TOOLS_OVERHEAD_TOKENS }
    }
}

/// The most tokens of a message, including the provider's overhead around it.
pub(crate) fn message_tokens(message: &Message, tokenizer: Option<Tokenizer>) -> u64 {
    let exact = |text: &str| text_tokens(text, tokenizer);
    let rewritten = |text: &str| rewritten_tokens(text, tokenizer);
    MESSAGE_OVERHEAD_TOKENS
        + match message {
            Message::System(text) | Message::User(text) => exact(text),
            Message::Assistant { text, calls } => {
                let calls = calls.iter().map(|call| {
                    let arguments = call.arguments.value().to_string();
                    rewritten(&call.id) + rewritten(&call.tool) + rewritten(&arguments)
                });
                text.as_deref().map_or(0, exact) + calls.sum::<u64>()
            }
            Message::Tool { id, tool, content } => rewritten(id) + rewritten(tool) + exact(content),
        }
}

/// The most tokens of a text that is sent as it is.
fn text_tokens(text: &str, tokenizer: Option<Tokenizer>) -> u64 {
    tokenizer.map_or(text.len() as u64, |tokenizer| tokenizer.count(text))
}

/// The most tokens of a text that the provider rewrites in its own notation.
fn rewritten_tokens(text: &str, tokenizer: Option<Tokenizer>) -> u64 {
    let bytes = text.len() as u64;
    tokenizer.map_or(bytes, |tokenizer| bytes.min(NOTATION_FACTOR * tokenizer.count(text)))
}

fn size_bytes(messages: &[Message]) -> u64 {
    messages.iter().map(|message| message.size_bytes() as u64).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request<'a>(messages: &'a [Message], earlier: Option<EarlierCall<'a>>) -> PaidRequest<'a> {
        PaidRequest {
            messages,
            tools: &[],
            output_schema: None,
            max_tokens: 100,
            closing: false,
            earlier,
            script: None,
            model: None,
            seen: None,
            asked: None,
            summary_of: None,
        }
    }

    /// The tokens that OpenAI counts for a chat: those of the texts by the reference tokenizer,
    /// four around each message, and three before the answer.
    fn counted(messages: &[Message]) -> u64 {
        let tokens = |text: &str| tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len() as u64;
        let message = |message: &Message| match message {
            Message::System(text) | Message::User(text) | Message::Tool { content: text, .. } => {
                4 + tokens(text)
            }
            Message::Assistant { text, .. } => 4 + text.as_deref().map_or(0, tokens),
        };
        3 + messages.iter().map(message).sum::<u64>()
    }

    fn message() -> impl Strategy<Value = Message> {
        let text = "(\\PC|\\s|[a-zA-Z0-9 .,]){0,300}";
        prop_oneof![
            text.prop_map(Message::User),
            text.prop_map(|text| Message::Assistant { text: Some(text), calls: Vec::new() }),
            text.prop_map(|content| Message::Tool { id: "a".into(), tool: "fs.read".into(), content }),
        ]
    }

    proptest! {
        #[test]
        fn b3_the_bound_is_never_below_what_the_provider_counts(
            messages in prop::collection::vec(message(), 1..6),
            earlier in 1..6usize,
        ) {
            let model: ModelName = "openai/gpt-4o".parse().unwrap();
            let (exact, known) = (counted(&messages), Some(Tokenizer::O200kBase));
            let bound = request(&messages, None).input_tokens(&model, known);
            let in_bytes = request(&messages, None).input_tokens(&model, None);
            prop_assert!(bound >= exact && in_bytes >= exact, "{} and {} of {}", bound, in_bytes, exact);
            prop_assert!(bound <= exact + 64 + 32 * messages.len() as u64, "{} of {}", bound, exact);
            let earlier = earlier.min(messages.len());
            let before = &messages[..earlier];
            let last_bytes = before.last().unwrap().size_bytes() as u64;
            let input_tokens = counted(before);
            let earlier = EarlierCall { model: &model, input_tokens, messages: earlier, last_bytes };
            let bound = request(&messages, Some(earlier)).input_tokens(&model, known);
            prop_assert!(bound >= exact, "{} of {} behind an earlier call", bound, exact);
        }
    }
}
