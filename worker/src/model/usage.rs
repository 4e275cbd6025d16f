//! The tokens of a call as its provider reports them, in one frame or in several. From
//! contradictory reports the largest figures are taken, so that no cost is booked below the bill. A
//! missing or impossible number is unknown; no number is invented.

use domain::wire::Usage;
use serde_json::Value;

use crate::settings::Protocol;

/// More tokens than any call has.
const MAX_TOKENS: u64 = (1 << 31) - 1;

/// The usages of one stream.
#[derive(Debug, Default)]
pub(super) struct UsageReports {
    largest: Figures,
    /// A frame at the end of the answer had its output. Earlier frames have a partial count.
    is_complete: bool,
}

/// The largest value of each figure in all usages so far.
#[derive(Debug, Default)]
struct Figures {
    /// The whole input. Anthropic reports its three parts instead.
    input: Option<u64>,
    /// The input at the plain price, if a usage distinguishes it from cached input.
    plain: Option<u64>,
    cached: Option<u64>,
    written: Option<u64>,
    /// Includes the reasoning at some providers.
    output: Option<u64>,
    reasoning: Option<u64>,
    total: Option<u64>,
}

impl UsageReports {
    /// Adds the usage of a frame, if it has one.
    pub(super) fn add(&mut self, protocol: Protocol, frame: &Value) {
        let (usage, at_end) = match protocol {
            Protocol::Openai => (frame.get("usage"), true),
            Protocol::Anthropic => match frame.get("usage") {
                Some(usage) => (Some(usage), true),
                None => (frame.pointer("/message/usage"), false),
            },
            Protocol::Gemini => (frame.get("usageMetadata"), finishes(protocol, frame)),
            Protocol::Ollama => (Some(frame), finishes(protocol, frame)),
        };
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        let figures = Figures::read(protocol, usage);
        self.is_complete |= at_end && figures.has_output();
        self.largest.raise(&figures);
    }

    /// The usage of the whole call, in OpenAI's meaning: cached and written tokens are part of the input, reasoning is
    /// part of the output.
    pub(super) fn usage(&self, protocol: Protocol) -> Option<Usage> {
        if !self.is_complete {
            return None;
        }
        let figures = &self.largest;
        let (cached, written) = (figures.cached.unwrap_or(0), figures.written.unwrap_or(0));
        let input = match figures.input {
            Some(input) => input.max(cached + written),
            None => figures.plain? + cached + written,
        };
        // Cached input is the cheapest, so the figure is limited to input that no usage reports as
        // plain.
        let cached = cached.min(input.saturating_sub(written + figures.plain.unwrap_or(0)));
        // Every request has input tokens, so zero means that they were not counted.
        (input > 0).then(|| Usage {
            input_tokens: input,
            cached_tokens: cached,
            cache_write_tokens: written,
            output_tokens: figures.whole_output(protocol, input),
            reasoning_tokens: figures.reasoning.unwrap_or(0),
        })
    }
}

impl Figures {
    fn read(protocol: Protocol, usage: &Value) -> Self {
        let count =
            |path: &str| usage.pointer(path).and_then(Value::as_u64).filter(|tokens| *tokens <= MAX_TOKENS);
        let figures = match protocol {
            Protocol::Openai => Figures {
                input: count("/prompt_tokens"),
                cached: count("/prompt_tokens_details/cached_tokens"),
                written: count("/prompt_tokens_details/cache_write_tokens")
                    .or_else(|| count("/prompt_tokens_details/cache_creation_tokens")),
                output: count("/completion_tokens"),
                reasoning: count("/completion_tokens_details/reasoning_tokens"),
                total: count("/total_tokens"),
                plain: None,
            },
            Protocol::Anthropic => Figures {
                plain: count("/input_tokens"),
                cached: count("/cache_read_input_tokens"),
                written: count("/cache_creation_input_tokens"),
                output: count("/output_tokens"),
                reasoning: count("/output_tokens_details/thinking_tokens"),
                ..Figures::default()
            },
            Protocol::Gemini => Figures {
                input: sum(count("/promptTokenCount"), count("/toolUsePromptTokenCount")),
                cached: count("/cachedContentTokenCount"),
                output: count("/candidatesTokenCount"),
                reasoning: count("/thoughtsTokenCount"),
                total: count("/totalTokenCount"),
                ..Figures::default()
            },
            Protocol::Ollama => Figures {
                input: count("/prompt_eval_count"),
                cached: count("/prompt_eval_cached_count"),
                output: count("/eval_count"),
                ..Figures::default()
            },
        };
        let dear = |input: u64| Some(input.saturating_sub(figures.cached? + figures.written.unwrap_or(0)));
        Figures { plain: figures.plain.or_else(|| dear(figures.input?)), ..figures }
    }

    fn raise(&mut self, to: &Figures) {
        let Figures { input, plain, cached, written, output, reasoning, total } = to;
        self.input = self.input.max(*input);
        self.plain = self.plain.max(*plain);
        self.cached = self.cached.max(*cached);
        self.written = self.written.max(*written);
        self.output = self.output.max(*output);
        self.reasoning = self.reasoning.max(*reasoning);
        self.total = self.total.max(*total);
    }

    fn has_output(&self) -> bool {
        self.output.or(self.reasoning).is_some() || self.total > self.input
    }

    /// The output with all reasoning. Gemini counts reasoning separately from the output. So do
    /// servers of OpenAI's protocol that report more reasoning than output (xAI), or a larger total
    /// than input and output (Gemini's own).
    fn whole_output(&self, protocol: Protocol, input: u64) -> u64 {
        let (output, reasoning) = (self.output.unwrap_or(0), self.reasoning.unwrap_or(0));
        let is_apart = protocol == Protocol::Gemini || reasoning > output;
        let counted = if is_apart { output + reasoning } else { output };
        counted.max(self.total.unwrap_or(0).saturating_sub(input))
    }
}

/// True if the provider ends the answer with this frame. Only the frames of Gemini and Ollama show that.
pub(super) fn finishes(protocol: Protocol, frame: &Value) -> bool {
    match protocol {
        Protocol::Gemini => frame.pointer("/candidates/0/finishReason").is_some_and(Value::is_string),
        Protocol::Ollama => frame.get("done") == Some(&Value::Bool(true)),
        Protocol::Openai | Protocol::Anthropic => false,
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.or(other).map(|_| one.unwrap_or(0) + other.unwrap_or(0))
}
