//! A request in the client's words, and an answer in ours. Pure: it sends nothing.

use std::collections::BTreeSet;

use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, ChatRole, ContentPart, JsonSpec,
    MessageContent, Tool, ToolCall as Called, ToolName, ToolResponse,
};
use serde_json::{Map, Value, json};
use shared::{Json, wire::ToolCall};

use super::{
    request::{Message, Request},
    tool_names::ToolNames,
};
use crate::settings::Protocol;

/// The name providers want a schema to have.
const ANSWER: &str = "answer";

/// How a provider is told that an answer must fit a schema.
enum Shape {
    Enforced,
    /// By a mode that gives JSON of any shape, and in words.
    AnyJson,
    /// In words alone: it is the caller who checks.
    InWords,
}

pub(super) fn request(protocol: Protocol, asked: &Request<'_>, names: &ToolNames) -> ChatRequest {
    let mut messages: Vec<ChatMessage> =
        asked.messages.iter().filter_map(|message| self::message(protocol, message, names)).collect();
    if let (Some(schema), Shape::AnyJson | Shape::InWords) = (asked.output_schema, shape(protocol, asked)) {
        let place = messages.iter().take_while(|message| matches!(message.role, ChatRole::System)).count();
        let words = format!("Your final answer is JSON alone, and fits this JSON Schema: {}", schema.value());
        messages.insert(place, ChatMessage::system(words));
    }
    let request = ChatRequest::new(messages);
    if asked.tools.is_empty() {
        return request;
    }
    request.with_tools(asked.tools.iter().map(|tool| {
        let name = ToolName::Custom(names.there(tool.name.as_str()).to_owned());
        Tool::new(name).with_description(&tool.description).with_schema(tool.parameters.value().clone())
    }))
}

pub(super) fn options(protocol: Protocol, asked: &Request<'_>) -> ChatOptions {
    let options = ChatOptions::default()
        .with_max_tokens(asked.max_tokens)
        .with_capture_usage(true)
        .with_capture_content(true)
        // See `chunks`.
        .with_capture_tool_calls(protocol != Protocol::Openai);
    let Some(schema) = asked.output_schema else { return options };
    match shape(protocol, asked) {
        Shape::Enforced => options.with_response_format(JsonSpec::new(ANSWER, schema.value().clone())),
        Shape::AnyJson => options.with_response_format(ChatResponseFormat::JsonMode),
        Shape::InWords => options,
    }
}

/// A shape that is enforced leaves a model no way to call a tool at some providers, and others refuse
/// both together. Of Anthropic's models only some have it.
fn shape(protocol: Protocol, asked: &Request<'_>) -> Shape {
    if !asked.tools.is_empty() {
        return Shape::InWords;
    }
    match protocol {
        Protocol::Openai | Protocol::Gemini => Shape::Enforced,
        Protocol::Ollama => Shape::AnyJson,
        Protocol::Anthropic => Shape::InWords,
    }
}

/// None for one that says nothing, which some providers refuse.
fn message(protocol: Protocol, message: &Message, names: &ToolNames) -> Option<ChatMessage> {
    Some(match message {
        Message::System(text) => ChatMessage::system(text),
        Message::User(text) => ChatMessage::user(text),
        Message::Assistant { text, calls } => {
            let said =
                text.iter().filter(|text| !text.is_empty()).map(|text| ContentPart::Text(text.clone()));
            let called = calls.iter().map(|call| {
                ContentPart::ToolCall(Called {
                    call_id: id(protocol, &call.id),
                    fn_name: names.there(&call.tool).to_owned(),
                    fn_arguments: object(call.arguments.value()),
                    thought_signatures: None,
                })
            });
            let parts: Vec<ContentPart> = said.chain(called).collect();
            if parts.is_empty() {
                return None;
            }
            ChatMessage::assistant(MessageContent::from_parts(parts))
        }
        Message::Tool { id: answers, tool, content } => {
            let response = ToolResponse::new(id(protocol, answers), content).with_fn_name(names.there(tool));
            ChatMessage::tool(MessageContent::from_tool_responses(vec![response]))
        }
    })
}

/// Ids of another provider's making are sent as well, when an agent falls back from one to the other.
fn id(protocol: Protocol, id: &str) -> String {
    match protocol {
        Protocol::Anthropic => {
            let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
            id.chars().map(allowed).collect()
        }
        Protocol::Openai | Protocol::Gemini | Protocol::Ollama => id.to_owned(),
    }
}

/// Providers take nothing but an object back, also where the model itself gave something else.
fn object(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { json!({ "arguments": arguments }) }
}

/// What a model asks for, under our names and with ids that are its own in the whole conversation:
/// Gemini and Ollama number anew in every answer, or not at all. A call that is told twice is one call.
pub(super) fn calls(
    protocol: Protocol,
    asked: &Request<'_>,
    called: Vec<Called>,
    names: &ToolNames,
) -> Vec<ToolCall> {
    let mut used: BTreeSet<String> = asked.messages.iter().flat_map(ids).collect();
    let mut once: Vec<Called> = Vec::with_capacity(called.len());
    for call in called {
        let is_told = |other: &Called| {
            other.call_id == call.call_id
                && other.fn_name == call.fn_name
                && other.fn_arguments == call.fn_arguments
        };
        // The client makes ids up for Gemini, from one in each piece.
        let is_made_up = protocol == Protocol::Gemini && call.call_id.starts_with("call#");
        if call.call_id.is_empty() || is_made_up || !once.iter().any(is_told) {
            once.push(call);
        }
    }
    once.into_iter()
        .map(|call| {
            let mut own = call.call_id;
            let mut number = used.len();
            while own.is_empty() || used.contains(&own) {
                own = match protocol {
                    // The form by which the client knows that Gemini gave none.
                    Protocol::Gemini => format!("call#{}#{number}", call.fn_name),
                    Protocol::Openai | Protocol::Anthropic | Protocol::Ollama => format!("call_{number}"),
                };
                number += 1;
            }
            used.insert(own.clone());
            let tool = names.back(&call.fn_name).to_owned();
            ToolCall { id: own, tool, arguments: Json::from(arguments(call.fn_arguments)) }
        })
        .collect()
}

fn ids(message: &Message) -> Vec<String> {
    match message {
        Message::Assistant { calls, .. } => calls.iter().map(|call| call.id.clone()).collect(),
        Message::System(_) | Message::User(_) | Message::Tool { .. } => Vec::new(),
    }
}

/// As they are, so that the tool can complain; but nothing at all is no arguments.
fn arguments(given: Value) -> Value {
    match given {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => given,
    }
}
