//! The messages on the bus, as types whose fields are checked when they are read. A worker or
//! client in any language needs only these and the subjects. Decoding goes through
//! [`crate::decode`].

mod amend;
mod ask;
mod asker;
mod control;
mod dead_letter;
mod dispute;
mod execute;
mod finding;
mod graph_answer;
mod history;
mod kept;
mod news;
mod outcome;
mod refusal;
mod report;
mod rerun;
mod schedule;
mod schemas;
mod service;
mod submission;
mod webhook;

pub use amend::Amend;
pub use ask::{
    Answer, Ask, AskMessage, CheckReport, Claim, ClaimAnswer, ContextValue, Hold, HoldDenied, OpenHold,
    Resume, SettledCall, Tick, TimeLeft, exhausted,
};
pub use asker::{AdminRecord, Asker, BY_HEADER, POLICY_HEADER};
pub use control::{AnswerMessage, Cancel, Charge, Control, Delete, Input, Raise, Referrers, Restore};
pub use dead_letter::DeadLetter;
pub use dispute::{DecideDispute, Decision, Dispute, DisputedCost, Sender};
pub use execute::{
    ChildResult, ClaimAt, Execute, GivenAnswer, LeftOut, Offer, Part, PartName, ReportTo, RestorePoint,
};
pub use finding::{PendingQuery, PendingQuestion, RunSummary, RunsCursor, RunsQuery, Spender, TracePrefix};
pub use graph_answer::{GraphAnswer, StepAnswer};
pub use history::{
    AppliedLayer, CallCost, CheckedStep, Checkpoint, CompactionKind, Copies, HistoryEntry, HistoryStep,
    LostStep, MissingLayer, ModelStep, OutputFile, Prompt, PromptMessage, PromptRole, ResultStep, Said,
    SandboxReport, StreamPiece, ToolCall, ToolOutput, ToolStep, has_all_copies,
};
pub use kept::{GraphShown, GraphSummary, GraphVersion};
pub use news::{News, PersonMessage, ReachedRung, SeenNumbers, Tell};
pub use outcome::{
    Acceptance, BudgetSnapshot, CheckCounts, ContextOutcome, ContextSnapshot, ContextStatus, EndStatus,
    GraphOutcome, GraphVerdict, ItemCounts, Outcome, Question, StepFailure, StepReport, StepStatus,
    UndoReport, UndoStatus,
};
pub use refusal::{CALL_CONFLICT, Refusal};
pub use report::{Cost, Failure, FailureKind, ObjectReference, Payload, Progress, Report, Result, Verdict};
pub use rerun::{Rerun, RerunOf, TakenFrom};
pub use schedule::{
    Overlap, Schedule, ScheduleRevision, ScheduleShown, ScheduleSummary, TickOutcome, TickRecord, TickShown,
};
pub use schemas::messages;
pub use service::{
    AgentVersion, Branch, Drain, Policy, ProfileVersion, Query, QueryAnswer, StateDigest, Stop, SubmitAnswer,
    WorkerCall, WorkerState,
};
pub use submission::{ChildSpawn, ShareCategory, SharedMessage, Spawn};
pub use webhook::{WebhookBody, WebhookOccasion};

pub use crate::{
    graph::Form,
    terms::{Adjustment, Funding, Hitl, LoweredBy, OnExhausted, Text},
    usage::Usage,
};

use serde::{Deserialize, Serialize};

use crate::id::{ChildId, LeaseToken};

/// Identifies an attempt: the answer to its claim. A worker repeats it in every message it sends. A
/// message with an older attempt or another token changes no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub child_id: ChildId,
    pub attempt: u32,
    pub token: LeaseToken,
}
