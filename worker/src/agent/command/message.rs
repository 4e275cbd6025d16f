//! The messages between a program and its worker, one JSON object per line. Everything else that a program writes is
//! plain output, so a program that does not know these messages can also be an agent.

use std::collections::BTreeMap;

use domain::{
    ContextKey, Json, Tokens, Usd, digest,
    limits::Limits,
    problem::nearest,
    wire::{BudgetSnapshot, Execute, GivenAnswer, HistoryStep, Usage},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// The names of its secrets (S8): some are variables of its environment, some are only for tools.
    #[serde(skip_serializing_if = "domain::secrets::is_none")]
    secrets: &'a domain::Secrets,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Json>,
    limits: &'a Limits,
    budget: &'a BudgetSnapshot,
    /// The answers of humans so far.
    answers: &'a [GivenAnswer],
    /// The reason why the last result was refused; absent if no result was refused.
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
            secrets: &work.secrets,
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
    /// The id of the request; absent if the request has no id.
    pub(super) id: Option<String>,
    pub(super) text: String,
    pub(super) is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_usd: Option<Usd>,
}

/// A message to the program between two answers: from an operator, or about its budget. Only a
/// program that sent `listen` gets it. Another program would read the line after a request as its
/// answer.
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
    /// The line for a journal entry; `None` for the kinds of entries that a program does not see.
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
            | HistoryStep::Received { .. }
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Result(_) => None,
        }
    }
}

/// A message of the program.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ProgramMessage {
    /// From here on the program reads `told` lines too.
    Listen,
    Progress {
        message: String,
    },
    Tool(ToolRequest),
    Model(ModelRequest),
    /// The cost of the program's own work, booked once per key, as far as the budget lasts (B18).
    /// The worker answers if the message has an id.
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
#[serde(deny_unknown_fields)]
pub(super) struct ToolRequest {
    pub(super) id: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelRequest {
    pub(super) id: String,
    pub(super) messages: Vec<ChatMessage>,
    #[serde(default)]
    pub(super) max_tokens: Option<u32>,
    #[serde(default)]
    pub(super) output_schema: Option<Json>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// The line has the type of a message, but not its fields.
    Invalid {
        id: Option<String>,
        why: String,
    },
    /// The line looks like a message and may be plain output. The worker reports the problem, so
    /// that the program does not wait for an answer.
    Doubtful {
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
    let value = match serde_json::from_slice::<Value>(line) {
        Ok(value) => value,
        Err(error) if names_a_type(line) => {
            return ParsedLine::Doubtful { id: None, why: format!("this line is not valid JSON: {error}") };
        }
        Err(_) => return ParsedLine::Plain,
    };
    let id = value.get("id").and_then(|id| match id {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    if !TYPES.contains(&kind) {
        return unknown_type(&value, kind, id);
    }
    let name = format!("the `{kind}` message");
    match serde_json::from_value(value) {
        Ok(line) => ParsedLine::Message(line),
        Err(error) => ParsedLine::Invalid { id, why: format!("{name} is invalid: {error}") },
    }
}

/// JSON of an unknown type is plain output, unless it has an id or its type resembles a known one.
fn unknown_type(value: &Value, kind: &str, id: Option<String>) -> ParsedLine {
    let meant = nearest(kind, TYPES);
    let why = match (value.get("type"), meant) {
        (Some(Value::String(_)), Some(meant)) => format!("`{kind}` is not a type; did you mean `{meant}`?"),
        (Some(Value::String(_)), None) if id.is_some() => {
            format!("`{kind}` is not a type; the types are {}", TYPES.join(", "))
        }
        (Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)), _)
            if id.is_some() =>
        {
            format!("`type` is not a string; the types are {}", TYPES.join(", "))
        }
        (Some(_) | None, _) => return ParsedLine::Plain,
    };
    ParsedLine::Doubtful { id, why }
}

/// Returns true if invalid JSON was probably meant as a message. Other invalid JSON gets no answer,
/// since a value over several lines would get an error for each line.
fn names_a_type(line: &[u8]) -> bool {
    line.windows(br#""type""#.len()).any(|window| window == br#""type""#)
}

impl ToolRequest {
    /// Identifies the content of a request: equal for equal requests with different ids.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The id and the text of the error answer to a line; `None` for plain output and for a valid
    /// message.
    fn told(line: &str) -> Option<(Option<String>, String)> {
        match parse_line(line.as_bytes()) {
            ParsedLine::Invalid { id, why } | ParsedLine::Doubtful { id, why } => Some((id, why)),
            ParsedLine::Message(_) | ParsedLine::Plain => None,
        }
    }

    #[test]
    fn i4_an_invalid_message_is_answered_with_its_mistake() {
        for (line, id, says) in [
            (r#"{"type": "toool", "id": "1", "tool": "fs.list"}"#, Some("1"), "did you mean `tool`?"),
            (r#"{"type": "toool"}"#, None, "did you mean `tool`?"),
            (r#"{"type": "quux", "id": "1"}"#, Some("1"), "the types are listen, progress, tool, model"),
            (r#"{"type": 7, "id": "1"}"#, Some("1"), "`type` is not a string"),
            (r#"{"type": "tool", "id": "1""#, None, "not valid JSON"),
            (r#"{"type": "tool", "id": "1", "tool": "fs.list", "argumnts": {}}"#, Some("1"), "argumnts"),
            (r#"{"type": "tool", "id": 1, "tool": "fs.list"}"#, Some("1"), "expected a string"),
            (r#"{"type": "tool", "tool": "fs.list"}"#, None, "missing field `id`"),
            (r#"{"type": "model", "id": "1", "messages": "hi"}"#, Some("1"), "expected a sequence"),
            (r#"{"type": "cost", "key": "k", "usd": -1}"#, None, "cost"),
            (r#"{"type": "failed", "message": "no", "retry": true}"#, None, "retry"),
        ] {
            let (under, why) = told(line).unwrap_or_else(|| panic!("no answer to {line}"));
            assert_eq!(under.as_deref(), id, "{line}: {why}");
            assert!(why.contains(says), "{line}: {why}");
        }
    }

    #[test]
    fn i4_lines_that_are_not_messages_stay_plain_output() {
        for line in
            ["", "text", "{", "{ not json", r#"{"answer": 42}"#, r#"{"type": "invoice", "total": 7}"#, "[1]"]
        {
            assert!(matches!(parse_line(line.as_bytes()), ParsedLine::Plain), "{line}");
        }
        for line in [
            r#"{"type": "tool", "id": "1", "tool": "fs.list"}"#,
            r#"{"type": "model", "id": "1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}"#,
            r#"{"type": "result", "result": {"any": "thing"}}"#,
            r#"{"type": "progress", "message": "half"}"#,
        ] {
            assert!(matches!(parse_line(line.as_bytes()), ParsedLine::Message(_)), "{line}");
        }
    }
}
