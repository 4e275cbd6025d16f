//! The JSON Schemas of all messages. `docs/schemas` holds them as files; a test keeps the two the same.

use serde_json::Value;

use super::{
    AdminRecord, Answer, AskMessage, Cancel, ContextSnapshot, Control, Cost, DeadLetter, Drain, GraphAnswer,
    GraphVersion, HistoryEntry, Input, Offer, Outcome, ProfileVersion, Query, QueryAnswer, Question, Refusal,
    Rerun, Result, Schedule, ScheduleRevision, Spawn, Stop, StreamPiece, SubmitAnswer, WorkerCall,
    WorkerState,
};
use crate::{agent::AgentProfile, graph::TaskGraph, limits::Settings, schema::of};

/// Every message by its name, except the coordinator's events, in the order of a request's life.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("spawn", of::<Spawn>()),
        ("graph", of::<TaskGraph>()),
        ("rerun", of::<Rerun>()),
        ("submit-answer", of::<SubmitAnswer>()),
        ("refusal", of::<Refusal>()),
        ("execute", of::<Offer>()),
        ("ask", of::<AskMessage>()),
        ("answer", of::<Answer>()),
        ("result", of::<Result>()),
        ("cost", of::<Cost>()),
        ("history", of::<HistoryEntry>()),
        ("stream", of::<StreamPiece>()),
        ("cancel", of::<Cancel>()),
        ("input", of::<Input>()),
        ("control", of::<Control>()),
        ("question", of::<Question>()),
        ("snapshot", of::<ContextSnapshot>()),
        ("outcome", of::<Outcome>()),
        ("graph-answer", of::<GraphAnswer>()),
        ("dead-letter", of::<DeadLetter>()),
        ("stop", of::<Stop>()),
        ("query", of::<Query>()),
        ("query-answer", of::<QueryAnswer>()),
        ("worker-call", of::<WorkerCall>()),
        ("admin-record", of::<AdminRecord>()),
        ("drain", of::<Drain>()),
        ("worker-state", of::<WorkerState>()),
        ("agent", of::<AgentProfile>()),
        ("profile-version", of::<ProfileVersion>()),
        ("graph-version", of::<GraphVersion>()),
        ("schedule", of::<Schedule>()),
        ("schedule-revision", of::<ScheduleRevision>()),
        ("settings", of::<Settings>()),
    ]
}
