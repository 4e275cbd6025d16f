//! The messages that only the gateway has: bodies for routes whose path has the ids, pages of
//! lists, and answers without a message on the bus. Their doc comments are descriptions in the
//! OpenAPI document.

use domain::{
    AgentId, AgentProfile, CallId, ChildId, GraphName, ScheduleName, Timestamp, TraceId, WorkerId,
    graph::TaskGraph,
    wire::{
        ContextSnapshot, DeadLetter, GraphSummary, Outcome, PendingQuestion, Policy, Rerun, RunSummary,
        RunsCursor, ScheduleSummary, Spawn, Text,
    },
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trace::{Commit, Event};

/// The schema of a submission: one agent, a graph, or the rerun of an earlier run.
pub(crate) fn submission(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [
        generator.subschema_for::<Spawn>(),
        generator.subschema_for::<TaskGraph>(),
        generator.subschema_for::<Rerun>(),
    ]})
}

/// The schema of any JSON value, such as the result of an agent.
pub(crate) fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

pub(crate) fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// The schema of one event of a stream.
pub(crate) fn event(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "event": {"enum": ["event", "words", "outcome", "error"]},
            "id": {"type": "string", "description": "For `Last-Event-ID`."},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
        "required": ["event", "data"],
    })
}

pub(crate) fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

/// Stops a run, or one context of it and its descendants.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "CancelBody")]
pub(crate) struct Cancel {
    #[serde(default)]
    pub(crate) child_id: Option<ChildId>,
    #[serde(default)]
    pub(crate) reason: Option<Text>,
    /// Skips the undo, even if it has already begun.
    #[serde(default)]
    pub(crate) without_undo: bool,
}

/// Deletes the journal, outputs, inputs and result of a run, or of one context and its descendants.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "DeleteBody")]
pub(crate) struct Delete {
    #[serde(default)]
    pub(crate) child_id: Option<ChildId>,
    /// Also ends and deletes live contexts, and content that other runs still read.
    #[serde(default)]
    pub(crate) force: bool,
}

/// Takes a live agent back to a step of its journal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "RestoreBody")]
pub(crate) struct Restore {
    pub(crate) child_id: ChildId,
    /// The last step that is kept; 0 keeps none.
    pub(crate) to: u32,
    /// The number of this restore within its context, from 1. Repeating a completed restore changes
    /// nothing. Absent: the next number.
    #[serde(default)]
    pub(crate) number: Option<u32>,
}

/// A message to an agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "TellBody")]
pub(crate) struct Tell {
    pub(crate) text: Text,
    /// The sender's own id for the message. Repeating the same id and text changes nothing. Absent:
    /// an id derived from the `Idempotency-Key`, or a new one.
    #[serde(default)]
    pub(crate) id: Option<CallId>,
    /// The name of the sender; absent: the name of the token.
    #[serde(default)]
    pub(crate) by: Option<Text>,
}

/// A human's answer to a question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "AnswerBody")]
pub(crate) struct Answer {
    /// It must match the form of the question.
    pub(crate) answer: Text,
    /// The name of the person who answers; absent: the name of the token.
    #[serde(default)]
    pub(crate) by: Option<Text>,
}

/// Confirms that the message is stored for the coordinators. The run shows its effect.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stored {
    pub(crate) stored: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunsPage {
    pub(crate) runs: Vec<RunSummary>,
    /// Pass it as `after` to continue the list; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<RunsCursor>,
    /// The number of runs without the filter, if none matches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unfiltered: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QuestionsPage {
    pub(crate) questions: Vec<PendingQuestion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<RunsCursor>,
    /// The number of further questions of these runs, which would make the answer too large.
    pub(crate) left_out: u32,
}

/// A run with its tree.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Run {
    pub(crate) trace_id: TraceId,
    /// The number of the run's last event.
    pub(crate) version: u64,
    /// The outcome of the root; null while the run is live.
    pub(crate) outcome: Option<Outcome>,
    /// Parents before their children.
    pub(crate) contexts: Vec<ContextSnapshot>,
    /// Contexts whose journal, inputs, outputs and result were deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) deleted: Vec<ChildId>,
}

/// An event of a run, with its position in the log.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoggedEvent {
    /// The sequence of the message in the log; a message may have several events.
    pub(crate) sequence: u64,
    pub(crate) message_id: Option<String>,
    pub(crate) stored_at: Timestamp,
    /// The number of the event in the run, from 1.
    pub(crate) event: u64,
    /// The time of the decision.
    pub(crate) at: Timestamp,
    /// The time since the previous event.
    pub(crate) since_ms: u64,
    pub(crate) child_id: ChildId,
    pub(crate) commit: Commit,
    pub(crate) body: Event,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Agents {
    pub(crate) agents: Vec<AgentProfile>,
    /// The version of each applied profile; built-in ones have none.
    pub(crate) versions: BTreeMap<AgentId, u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentApplied {
    pub(crate) agent_id: AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
    /// True if the stored profile is unchanged.
    pub(crate) unchanged: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentDeleted {
    pub(crate) agent_id: AgentId,
    pub(crate) at: Timestamp,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SchedulesPage {
    pub(crate) schedules: Vec<ScheduleSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<ScheduleName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleKept {
    pub(crate) name: ScheduleName,
    pub(crate) revision: u64,
    /// True if the stored schedule is unchanged.
    pub(crate) unchanged: bool,
    pub(crate) paused: bool,
    /// The next tick; absent if the schedule is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Timestamp>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleDeleted {
    pub(crate) name: ScheduleName,
    pub(crate) at: Timestamp,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleRun {
    pub(crate) name: ScheduleName,
    pub(crate) trace_id: TraceId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GraphsPage {
    pub(crate) graphs: Vec<GraphSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<GraphName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GraphKept {
    pub(crate) name: GraphName,
    pub(crate) version: u64,
    /// True if the stored graph is unchanged.
    pub(crate) unchanged: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GraphDeleted {
    pub(crate) name: GraphName,
    pub(crate) at: Timestamp,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Coordinators {
    pub(crate) coordinators: Vec<WorkerId>,
    pub(crate) policies: Vec<Policy>,
    /// The partitions of each coordinator, in the order of `coordinators`.
    pub(crate) partitions: Vec<Vec<u16>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignInCode {
    /// The code that follows `#in=` in the address of the page. Null if the server needs no
    /// sign-in.
    pub(crate) code: Option<String>,
    /// The host name for the page on the server's machine. Browsers do not send the cookie of this
    /// host to other servers of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SentAgain {
    pub(crate) subject: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToldToDrain {
    pub(crate) worker_id: WorkerId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Told {
    pub(crate) child_id: ChildId,
    pub(crate) number: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Answered {
    pub(crate) child_id: ChildId,
    pub(crate) question: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeptLetter {
    /// The kind of the rejected message.
    pub(crate) kind: ChildId,
    pub(crate) sequence: u64,
    pub(crate) stored_at: Timestamp,
    pub(crate) letter: DeadLetter,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LettersPage {
    /// The newest first.
    pub(crate) letters: Vec<KeptLetter>,
    /// Pass it as `before` to continue the list; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
}
