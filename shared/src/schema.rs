//! The JSON Schemas of the messages, made from the types themselves. `docs/schemas` holds them as
//! files; a test keeps the two the same.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::{agent::AgentProfile, graph::TaskGraph, limits::Settings, wire};

/// The schema of one type.
pub fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}

/// Every message by its name, but for the events of the coordinator, in the order of a request's life.
pub fn all() -> Vec<(&'static str, Value)> {
    vec![
        ("spawn", of::<wire::Spawn>()),
        ("graph", of::<TaskGraph>()),
        ("submit-answer", of::<wire::SubmitAnswer>()),
        ("refusal", of::<wire::Refusal>()),
        ("execute", of::<wire::Execute>()),
        ("ask", of::<wire::AskMessage>()),
        ("answer", of::<wire::Answer>()),
        ("result", of::<wire::Result>()),
        ("cost", of::<wire::Cost>()),
        ("history", of::<wire::HistoryEntry>()),
        ("stream", of::<wire::StreamPiece>()),
        ("cancel", of::<wire::Cancel>()),
        ("input", of::<wire::Input>()),
        ("control", of::<wire::Control>()),
        ("question", of::<wire::Question>()),
        ("snapshot", of::<wire::ContextSnapshot>()),
        ("outcome", of::<wire::Outcome>()),
        ("dead-letter", of::<wire::DeadLetter>()),
        ("stop", of::<wire::Stop>()),
        ("query", of::<wire::Query>()),
        ("query-answer", of::<wire::QueryAnswer>()),
        ("worker-call", of::<wire::WorkerCall>()),
        ("worker-state", of::<wire::WorkerState>()),
        ("agent", of::<AgentProfile>()),
        ("settings", of::<Settings>()),
    ]
}
