//! The model `scripted`: says what its agent's profile tells it to, turn by turn. It needs no key and no
//! network, and has usage and a price like any other, so that examples and demonstrations spend.

use std::time::Duration;

use shared::{
    Json, Usd,
    agent::Turn,
    id::ModelName,
    wire::{ToolCall, Usage},
};

use super::request::{Completion, Cue, Error, Message, Request};
use crate::settings::PriceEntry;

pub(super) const NAME: &str = "scripted";

impl<'a> Cue<'a> {
    fn turn(&self) -> Option<&'a Turn> {
        let mut turns = self.turns.iter().filter(|turn| turn.closing == self.closing);
        if self.closing {
            return turns.next();
        }
        turns.clone().nth(self.answered).or_else(|| turns.next_back().filter(|turn| turn.repeat))
    }
}

pub(crate) fn is(model: &ModelName) -> bool {
    model.as_str() == NAME || model.as_str().starts_with("scripted/")
}

/// Three dollars for a million tokens in, fifteen out.
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
    said: &mut (dyn FnMut(&str) + Send),
) -> Result<Completion, Error> {
    let refused = |message: String| Error::Refused { message, again: false, retry_after: None };
    let cue = request.script.ok_or_else(|| refused("the scripted model has no script here".into()))?;
    let turn = cue.turn().ok_or_else(|| {
        let (has, asked) = (cue.turns.len(), cue.answered + 1);
        let asked = if cue.closing { "a `closing` one".into() } else { format!("turn {asked}") };
        refused(format!("the script has {has} turns, and {asked} is asked for"))
    })?;
    if let Some(ms) = turn.ms {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let last = request.messages.iter().rev().find_map(|message| match message {
        Message::Tool { content, .. } | Message::User(content) => Some(content.as_str()),
        Message::System(_) | Message::Assistant { .. } => None,
    });
    let fill = |text: &str| fill(text, cue, last.unwrap_or_default());
    let text = turn.say.as_deref().map(fill);
    if let Some(text) = &text {
        said(text);
    }
    let calls: Vec<ToolCall> = (1..)
        .zip(&turn.call)
        .map(|(n, call)| ToolCall {
            id: format!("scripted-{}-{n}", cue.answered + 1),
            tool: call.tool.clone(),
            arguments: Json::from(fill_value(call.arguments.value(), &fill)),
        })
        .collect();
    let usage = turn.usage.unwrap_or_else(|| counted(request, text.as_deref(), &calls));
    let cut_off = usage.output_tokens > u64::from(request.max_tokens);
    let usage = Usage { output_tokens: usage.output_tokens.min(request.max_tokens.into()), ..usage };
    Ok(Completion { text, calls, usage: Some(usage), cut_off })
}

/// Four bytes a token, as a rule of thumb.
fn counted(request: &Request<'_>, text: Option<&str>, calls: &[ToolCall]) -> Usage {
    let tokens = |bytes: usize| (bytes as u64).div_ceil(4);
    let sent: usize = request.messages.iter().map(Message::size_bytes).sum();
    let asked: u64 = calls.iter().map(|call| call.arguments.size_bytes()).sum();
    let output_tokens = tokens(text.map_or(0, str::len)) + asked.div_ceil(4);
    Usage { input_tokens: tokens(sent), output_tokens, ..Usage::default() }
}

fn fill(text: &str, cue: Cue<'_>, last: &str) -> String {
    let mut filled = text.replace("{goal}", cue.goal).replace("{last}", last);
    for (key, value) in cue.inputs {
        let plain = value.value().as_str().map_or_else(|| value.value().to_string(), str::to_owned);
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
