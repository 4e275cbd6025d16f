//! Translates a request to the client's types, and an answer to the worker's. Sends nothing.

use std::collections::BTreeSet;

use domain::{Json, wire::ToolCall};
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, ChatRole, ContentPart, JsonSpec,
    MessageContent, Tool, ToolCall as Called, ToolName, ToolResponse,
};
use serde_json::{Map, Value, json};

use super::{
    request::{Message, Request},
    tool_names::ToolNames,
};
use crate::settings::Protocol;

/// Providers require a name for the schema.
const SCHEMA_NAME: &str = "answer";

/// The way in which a provider gets the schema. The caller checks the answer in every case.
enum SchemaMode {
    /// The provider enforces the schema.
    Enforced,
    /// The provider enforces JSON of any form; the schema is in the prompt.
    JsonMode,
    /// The schema is only in the prompt.
    PromptOnly,
}

pub(super) fn chat_request(protocol: Protocol, request: &Request<'_>, names: &ToolNames) -> ChatRequest {
    let mut messages: Vec<ChatMessage> =
        request.messages.iter().filter_map(|message| self::message(protocol, message, names)).collect();
    if let (Some(schema), SchemaMode::JsonMode | SchemaMode::PromptOnly) =
        (request.output_schema, schema_mode(protocol, request))
    {
        let place = messages.iter().take_while(|message| matches!(message.role, ChatRole::System)).count();
        let words =
            format!("Your final answer must be only JSON that matches this JSON Schema: {}", schema.value());
        messages.insert(place, ChatMessage::system(words));
    }
    let chat = ChatRequest::new(messages);
    if request.tools.is_empty() {
        return chat;
    }
    chat.with_tools(request.tools.iter().map(|tool| {
        let name = ToolName::Custom(names.provider_name(tool.name.as_str()).to_owned());
        Tool::new(name).with_description(&tool.description).with_schema(tool.parameters.value().clone())
    }))
}

pub(super) fn options(protocol: Protocol, request: &Request<'_>) -> ChatOptions {
    let options = ChatOptions::default()
        .with_max_tokens(request.max_tokens)
        .with_capture_usage(true)
        .with_capture_content(true)
        // See `chunks`.
        .with_capture_tool_calls(protocol != Protocol::Openai);
    let Some(schema) = request.output_schema else { return options };
    match schema_mode(protocol, request) {
        SchemaMode::Enforced => {
            options.with_response_format(JsonSpec::new(SCHEMA_NAME, schema.value().clone()))
        }
        SchemaMode::JsonMode => options.with_response_format(ChatResponseFormat::JsonMode),
        SchemaMode::PromptOnly => options,
    }
}

/// Chooses the mode. With an enforced schema, a model can't call tools at some providers, and other
/// providers reject a schema together with tools. Only some of Anthropic's models can enforce a
/// schema.
fn schema_mode(protocol: Protocol, request: &Request<'_>) -> SchemaMode {
    if !request.tools.is_empty() {
        return SchemaMode::PromptOnly;
    }
    match protocol {
        Protocol::Openai | Protocol::Gemini => SchemaMode::Enforced,
        Protocol::Ollama => SchemaMode::JsonMode,
        Protocol::Anthropic => SchemaMode::PromptOnly,
    }
}

/// Translates a message. Returns `None` for an empty message, since some providers reject it.
fn message(protocol: Protocol, message: &Message, names: &ToolNames) -> Option<ChatMessage> {
    Some(match message {
        Message::System(text) => ChatMessage::system(text),
        Message::User(text) => ChatMessage::user(text),
        Message::Assistant { text, calls } => {
            let texts =
                text.iter().filter(|text| !text.is_empty()).map(|text| ContentPart::Text(text.clone()));
            let called = calls.iter().map(|call| {
                ContentPart::ToolCall(Called {
                    call_id: accepted_id(protocol, &call.id),
                    fn_name: names.provider_name(&call.tool).to_owned(),
                    fn_arguments: as_object(call.arguments.value()),
                    thought_signatures: None,
                })
            });
            let parts: Vec<ContentPart> = texts.chain(called).collect();
            if parts.is_empty() {
                return None;
            }
            ChatMessage::assistant(MessageContent::from_parts(parts))
        }
        Message::Tool { id: answers, tool, content } => {
            let response = ToolResponse::new(accepted_id(protocol, answers), content)
                .with_fn_name(names.provider_name(tool));
            ChatMessage::tool(MessageContent::from_tool_responses(vec![response]))
        }
    })
}

/// The id of a call in a form that the provider accepts. After a fallback between models a request
/// contains ids of another provider, and Anthropic accepts only some characters.
fn accepted_id(protocol: Protocol, id: &str) -> String {
    match protocol {
        Protocol::Anthropic => {
            let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
            id.chars().map(allowed).collect()
        }
        Protocol::Openai | Protocol::Gemini | Protocol::Ollama => id.to_owned(),
    }
}

/// Wraps arguments in an object. Providers accept only an object, even if the model itself gave
/// another value.
fn as_object(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { json!({ "arguments": arguments }) }
}

/// The tool calls of an answer, with the names of Trellis and with ids that are unique in the
/// conversation. Gemini and Ollama number the calls of every answer from the start, or give no ids.
/// A repeated call is taken once.
pub(super) fn calls(
    protocol: Protocol,
    request: &Request<'_>,
    called: Vec<Called>,
    names: &ToolNames,
) -> Vec<ToolCall> {
    let mut used: BTreeSet<String> = request.messages.iter().flat_map(call_ids).collect();
    let mut once: Vec<Called> = Vec::with_capacity(called.len());
    for call in called {
        let is_same = |other: &Called| {
            other.call_id == call.call_id
                && other.fn_name == call.fn_name
                && other.fn_arguments == call.fn_arguments
        };
        // For Gemini the client invents ids, and starts at one in each piece.
        let is_made_up = protocol == Protocol::Gemini && call.call_id.starts_with("call#");
        if call.call_id.is_empty() || is_made_up || !once.iter().any(is_same) {
            once.push(call);
        }
    }
    once.into_iter()
        .map(|call| {
            let mut own = call.call_id;
            let mut number = used.len();
            while own.is_empty() || used.contains(&own) {
                own = match protocol {
                    // The client recognizes an id that Gemini did not give by this form.
                    Protocol::Gemini => format!("call#{}#{number}", call.fn_name),
                    Protocol::Openai | Protocol::Anthropic | Protocol::Ollama => format!("call_{number}"),
                };
                number += 1;
            }
            used.insert(own.clone());
            let tool = names.our_name(&call.fn_name).to_owned();
            ToolCall { id: own, tool, arguments: Json::from(or_empty(call.fn_arguments)) }
        })
        .collect()
}

fn call_ids(message: &Message) -> Vec<String> {
    match message {
        Message::Assistant { calls, .. } => calls.iter().map(|call| call.id.clone()).collect(),
        Message::System(_) | Message::User(_) | Message::Tool { .. } => Vec::new(),
    }
}

/// The arguments unchanged, so that the tool reports their errors; an empty object for missing
/// arguments.
fn or_empty(given: Value) -> Value {
    match given {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => given,
    }
}
