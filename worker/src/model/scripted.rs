//! The model `scripted`: answers with the turns of the script in its agent's profile. It needs no
//! key and no network. It has usage and a price like any other model, so that examples and
//! demonstrations cost money.

use std::time::Duration;

use domain::{
    Json, Usd,
    agent::Turn,
    id::ModelName,
    wire::{ToolCall, Usage},
};

use super::request::{AnswerIdentity, Completion, Error, Message, Request, ScriptInput};
use crate::{
    settings::PriceEntry,
    simulated_provider::{CallEnd, SimulatedProvider},
};

pub(super) const NAME: &str = "scripted";

impl<'a> ScriptInput<'a> {
    /// The turn that answers this request.
    fn turn(&self) -> Option<&'a Turn> {
        let is_meant = |turn: &&Turn| turn.closing == self.closing && turn.summary == self.summary;
        let mut turns = self.turns.iter().filter(is_meant);
        if self.closing || self.summary {
            return turns.next();
        }
        turns.clone().nth(self.answered).or_else(|| turns.next_back().filter(|turn| turn.repeat))
    }
}

pub(crate) fn is_scripted(model: &ModelName) -> bool {
    model.as_str() == NAME || model.as_str().starts_with("scripted/")
}

/// Three dollars per million input tokens, fifteen per million output tokens.
pub(crate) fn price() -> PriceEntry {
    PriceEntry {
        input: Usd::from_cents(300),
        cached_input: None,
        cache_write: None,
        output: Usd::from_cents(1500),
    }
}

pub(crate) async fn complete(
    request: &Request<'_>,
    provider: Option<&dyn SimulatedProvider>,
    on_text: &mut (dyn FnMut(&str) + Send),
) -> Result<Completion, Error> {
    let script = request
        .script
        .ok_or_else(|| Error::refused("the scripted model needs a script in the agent's profile".into()))?;
    let turn = script.turn().ok_or_else(|| {
        let (has, asked) = (script.turns.len(), script.answered + 1);
        let asked = match (script.closing, script.summary) {
            (true, _) => "a `closing` turn".into(),
            (false, true) => "a `summary` turn".into(),
            (false, false) => format!("turn {asked}"),
        };
        Error::refused(format!("the script has {has} turns, and {asked} is missing"))
    })?;
    if let Some(ms) = turn.ms {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let last = request.messages.iter().rev().find_map(|message| match message {
        Message::Tool { content, .. } | Message::User(content) => Some(content.as_str()),
        Message::System(_) | Message::Assistant { .. } => None,
    });
    let fill = |text: &str| fill(text, script, last.unwrap_or_default());
    let text = turn.say.as_deref().map(fill);
    if let Some(text) = &text {
        on_text(text);
    }
    let calls: Vec<ToolCall> = (1..)
        .zip(&turn.call)
        .map(|(n, call)| ToolCall {
            id: format!("scripted-{}-{n}", script.answered + 1),
            tool: call.tool.clone(),
            arguments: Json::from(fill_value(call.arguments.value(), &fill)),
        })
        .collect();
    let usage = turn.usage.unwrap_or_else(|| estimated_usage(request, text.as_deref(), &calls));
    let cut_off = usage.output_tokens > u64::from(request.max_tokens);
    let usage = Usage { output_tokens: usage.output_tokens.min(request.max_tokens.into()), ..usage };
    if let Some(provider) = provider {
        match provider.call(request.model, usage).await {
            CallEnd::Answered => {}
            CallEnd::Refused => {
                let message = "the provider is overloaded".into();
                return Err(Error::Refused { message, retryable: true, retry_after: None });
            }
            CallEnd::BrokenOff => return Err(Error::Unknown { message: "the answer broke off".into() }),
        }
    }
    Ok(Completion { text, calls, usage: Some(usage), cut_off, named: AnswerIdentity::default() })
}

/// The usage of a turn without one in the script: about four bytes per token.
fn estimated_usage(request: &Request<'_>, text: Option<&str>, calls: &[ToolCall]) -> Usage {
    let tokens = |bytes: usize| (bytes as u64).div_ceil(4);
    let sent: usize = request.messages.iter().map(Message::size_bytes).sum();
    let asked: u64 = calls.iter().map(|call| call.arguments.size_bytes()).sum();
    let output_tokens = tokens(text.map_or(0, str::len)) + asked.div_ceil(4);
    Usage { input_tokens: tokens(sent), output_tokens, ..Usage::default() }
}

fn fill(text: &str, script: ScriptInput<'_>, last: &str) -> String {
    let mut filled = text.replace("{goal}", script.goal).replace("{last}", last);
    for (key, value) in script.inputs {
        let value = value.value();
        let other = || if value.is_null() { String::new() } else { value.to_string() };
        let plain = value.as_str().map_or_else(other, str::to_owned);
        filled = filled.replace(&format!("{{inputs.{key}}}"), &plain);
    }
    filled
}

fn fill_value(value: &serde_json::Value, fill: &impl Fn(&str) -> String) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(fill(text)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, fill)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), fill_value(value, fill))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
