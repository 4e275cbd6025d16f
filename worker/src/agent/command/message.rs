//! The messages between a program and its worker, one JSON object per line. Everything else that a program writes is
//! plain output, so a program that does not know these messages can also be an agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::{
    ContextKey, Json, Tokens, Usd, digest,
    limits::Limits,
    wire::{BudgetSnapshot, Execute, GivenAnswer, HistoryStep, Usage},
};

use crate::{
    agent::news,
    model::{Message, ToolSpec},
};

/// The first line a program reads; also `input.json` in its workspace.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "start")]
pub(super) struct Start<'a> {
    goal: &'a str,
    inputs: &'a BTreeMap<ContextKey, Json>,
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Json>,
    limits: &'a Limits,
    budget: &'a BudgetSnapshot,
    /// The answers of humans so far.
    answers: &'a [GivenAnswer],
    /// Why its last result was refused; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Json,
}

impl<'a> Start<'a> {
    pub(super) fn new(work: &'a Execute, tools: &'a [ToolSpec], refused: Option<String>) -> Self {
        let tool = |spec: &'a ToolSpec| Tool {
            name: spec.name.as_str(),
            description: &spec.description,
            parameters: &spec.parameters,
        };
        Start {
            goal: work.goal.as_str(),
            inputs: &work.inputs,
            tools: tools.iter().map(tool).collect(),
            output_schema: work.output_schema.as_ref(),
            limits: &work.limits,
            budget: &work.budget,
            answers: &work.answers,
            refused,
        }
    }
}

/// The answer to a request of the program.
#[derive(Debug, Default, Serialize)]
#[serde(tag = "type", rename = "answer")]
pub(super) struct Answer {
    /// The id of the request; absent if it had none.
    pub(super) id: Option<String>,
    pub(super) text: String,
    pub(super) is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_usd: Option<Usd>,
}

/// A message to the program, between two answers: from an operator, or about its budget. Only for a program that says
/// `listen`, since others take the line behind a request for its answer.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "told")]
pub(super) struct ToldLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

impl ToldLine {
    /// The line of a journal entry, if it is one that a program is told of.
    pub(super) fn of(step: &HistoryStep) -> Option<Self> {
        match step {
            HistoryStep::Told(told) => Some(ToldLine {
                number: told.number,
                text: told.text.to_string(),
                by: told.by.as_ref().map(ToString::to_string),
            }),
            HistoryStep::Rung(rung) => {
                let model =
                    news::model_of(rung).map(|model| format!(" Your model is `{model}` from here on."));
                let text = news::budget_text(rung) + &model.unwrap_or_default();
                Some(ToldLine { number: None, text, by: None })
            }
            HistoryStep::Began { .. }
            | HistoryStep::Model(_)
            | HistoryStep::Lost(_)
            | HistoryStep::Checked(_)
            | HistoryStep::Compacted { .. }
            | HistoryStep::Tool(_)
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Result(_) => None,
        }
    }
}

/// A message of the program.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ProgramMessage {
    /// From here on it reads `told` lines too.
    Listen,
    Progress {
        message: String,
    },
    Tool(ToolRequest),
    Model(ModelRequest),
    /// The cost of something the program did itself; booked once per key, as far as something is left (B18). Answered
    /// if it has an id.
    Cost {
        #[serde(default)]
        id: Option<String>,
        key: String,
        #[serde(default)]
        usd: Option<Usd>,
        #[serde(default)]
        tokens: Option<Tokens>,
    },
    Result {
        result: Json,
    },
    Failed {
        message: String,
        #[serde(default)]
        retryable: bool,
    },
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolRequest {
    pub(super) id: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct ModelRequest {
    pub(super) id: String,
    pub(super) messages: Vec<ChatMessage>,
    #[serde(default)]
    pub(super) max_tokens: Option<u32>,
    #[serde(default)]
    pub(super) output_schema: Option<Json>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ChatMessage {
    role: Role,
    content: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    System,
    User,
    Assistant,
}

/// A line of the program's output.
#[derive(Debug)]
pub(super) enum ParsedLine {
    Message(ProgramMessage),
    /// It has the type of a message, but not its form.
    Invalid {
        id: Option<String>,
        why: String,
    },
    Plain,
}

const TYPES: [&str; 7] = ["listen", "progress", "tool", "model", "cost", "result", "failed"];

pub(super) fn parse_line(line: &[u8]) -> ParsedLine {
    // Most plain output is recognized by its first character.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return ParsedLine::Plain;
    }
    let Ok(value) = serde_json::from_slice::<Value>(line) else { return ParsedLine::Plain };
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    if !TYPES.contains(&kind) {
        return ParsedLine::Plain;
    }
    let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
    let name = format!("the `{kind}` message");
    match serde_json::from_value(value) {
        Ok(line) => ParsedLine::Message(line),
        Err(error) => ParsedLine::Invalid { id, why: format!("{name} is invalid: {error}") },
    }
}

impl ToolRequest {
    /// Identifies the content of a request: equal for equal requests, whatever their id.
    pub(super) fn fingerprint(&self) -> String {
        fingerprint(&serde_json::json!(["tool", self.tool, self.arguments]))
    }
}

impl ModelRequest {
    pub(super) fn fingerprint(&self) -> String {
        fingerprint(&serde_json::json!(["model", self.messages, self.max_tokens, self.output_schema]))
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        let message = |ChatMessage { role, content }: &ChatMessage| match role {
            Role::System => Message::System(content.clone()),
            Role::User => Message::User(content.clone()),
            Role::Assistant => Message::Assistant { text: Some(content.clone()), calls: Vec::new() },
        };
        self.messages.iter().map(message).collect()
    }
}

/// A hash of a value, as 32 hexadecimal digits.
pub(super) fn fingerprint(value: &Value) -> String {
    let text = serde_json::to_string(value).expect("a value has string keys");
    digest::short_sha256(text)
}
