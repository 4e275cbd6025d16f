//! What a program and its worker say to each other, one JSON object a line. Whatever else a program
//! writes is plain output: a program that knows nothing of this is an agent all the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::{
    ContextKey, Json, Tokens, Usd, digest,
    limits::Limits,
    wire::{BudgetSnapshot, Execute, GivenAnswer, Usage},
};

use crate::model::{Message, ToolSpec};

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
    /// What humans have answered so far.
    answers: &'a [GivenAnswer],
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Json,
}

impl<'a> Start<'a> {
    pub(super) fn new(work: &'a Execute, tools: &'a [ToolSpec]) -> Self {
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
        }
    }
}

/// The answer to what a program asked.
#[derive(Debug, Default, Serialize)]
#[serde(tag = "type", rename = "answer")]
pub(super) struct Answer {
    /// As in what it asked; absent if that had none.
    pub(super) id: Option<String>,
    pub(super) text: String,
    pub(super) is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_usd: Option<Usd>,
}

/// What a program says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Line {
    Progress {
        message: String,
    },
    Tool(ToolAsk),
    Model(ModelAsk),
    /// What something outside cost it; booked once by its key (B11).
    Cost {
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
pub(super) struct ToolAsk {
    pub(super) id: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct ModelAsk {
    pub(super) id: String,
    pub(super) messages: Vec<Spoken>,
    #[serde(default)]
    pub(super) max_tokens: Option<u32>,
    #[serde(default)]
    pub(super) output_schema: Option<Json>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Spoken {
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

/// A line, as far as it can be understood.
#[derive(Debug)]
pub(super) enum Heard {
    Line(Line),
    /// It meant to say something.
    Bad {
        id: Option<String>,
        why: String,
    },
    Plain,
}

const TYPES: [&str; 6] = ["progress", "tool", "model", "cost", "result", "failed"];

pub(super) fn hear(line: &[u8]) -> Heard {
    // Most of what is not ours does not even begin like it.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Heard::Plain;
    }
    let Ok(value) = serde_json::from_slice::<Value>(line) else { return Heard::Plain };
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    if !TYPES.contains(&kind) {
        return Heard::Plain;
    }
    let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
    let why = format!("a `{kind}` line");
    match serde_json::from_value(value) {
        Ok(line) => Heard::Line(line),
        Err(error) => Heard::Bad { id, why: format!("{why} that can't be read: {error}") },
    }
}

impl ToolAsk {
    /// The same for the same question, whatever its id.
    pub(super) fn name(&self) -> String {
        named(&serde_json::json!(["tool", self.tool, self.arguments]))
    }
}

impl ModelAsk {
    pub(super) fn name(&self) -> String {
        named(&serde_json::json!(["model", self.messages, self.max_tokens, self.output_schema]))
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        let message = |Spoken { role, content }: &Spoken| match role {
            Role::System => Message::System(content.clone()),
            Role::User => Message::User(content.clone()),
            Role::Assistant => Message::Assistant { text: Some(content.clone()), calls: Vec::new() },
        };
        self.messages.iter().map(message).collect()
    }
}

/// 32 hexadecimal digits that follow from a value.
pub(super) fn named(value: &Value) -> String {
    let text = serde_json::to_string(value).expect("a value has string keys");
    digest::short_sha256(text)
}
