//! All messages with their JSON Schemas. A test compares `docs/schemas/trellis.json` with this
//! list.

use super::{
    AdminRecord, Answer, AskMessage, Cancel, ContextSnapshot, Control, Cost, DeadLetter, Drain, GraphAnswer,
    GraphVersion, HistoryEntry, Input, Offer, Outcome, ProfileVersion, Query, QueryAnswer, Question, Refusal,
    Rerun, Result, Schedule, ScheduleRevision, Spawn, Stop, StreamPiece, SubmitAnswer, WorkerCall,
    WorkerState,
};
use crate::{agent::AgentProfile, graph::TaskGraph, limits::Settings, schema::Message};

/// All messages with their names, in the order in which a run uses them. The coordinator's events
/// are not included.
pub fn messages() -> Vec<Message> {
    vec![
        Message::of::<Spawn>("spawn"),
        Message::of::<TaskGraph>("graph"),
        Message::of::<Rerun>("rerun"),
        Message::of::<SubmitAnswer>("submit-answer"),
        Message::of::<Refusal>("refusal"),
        Message::of::<Offer>("execute"),
        Message::of::<AskMessage>("ask"),
        Message::of::<Answer>("answer"),
        Message::of::<Result>("result"),
        Message::of::<Cost>("cost"),
        Message::of::<HistoryEntry>("history"),
        Message::of::<StreamPiece>("stream"),
        Message::of::<Cancel>("cancel"),
        Message::of::<Input>("input"),
        Message::of::<Control>("control"),
        Message::of::<Question>("question"),
        Message::of::<ContextSnapshot>("snapshot"),
        Message::of::<Outcome>("outcome"),
        Message::of::<GraphAnswer>("graph-answer"),
        Message::of::<DeadLetter>("dead-letter"),
        Message::of::<Stop>("stop"),
        Message::of::<Query>("query"),
        Message::of::<QueryAnswer>("query-answer"),
        Message::of::<WorkerCall>("worker-call"),
        Message::of::<AdminRecord>("admin-record"),
        Message::of::<Drain>("drain"),
        Message::of::<WorkerState>("worker-state"),
        Message::of::<AgentProfile>("agent"),
        Message::of::<ProfileVersion>("profile-version"),
        Message::of::<GraphVersion>("graph-version"),
        Message::of::<Schedule>("schedule"),
        Message::of::<ScheduleRevision>("schedule-revision"),
        Message::of::<Settings>("settings"),
    ]
}
