//! The reports of a worker: the end of an attempt, and the cost of each paid call.

use serde::{Deserialize, Serialize};

use super::{Form, Lease};
use crate::{
    id::{CallId, ChildId, ModelName, TraceId},
    json::Json,
    money::Amount,
};

/// A result: inline, or by reference if it is larger than the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    Inline(Json),
    Reference(ObjectReference),
}

/// An object in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ObjectReference {
    pub object: String,
    pub size_bytes: u64,
    pub sha256: String,
}

impl ObjectReference {
    /// Returns the common prefix of the names of a context's objects. Ids have no dots, so it
    /// matches no object of another context.
    pub fn prefix(trace_id: TraceId, child_id: &ChildId) -> String {
        format!("{trace_id}.{child_id}.")
    }

    /// Returns the common prefix of the names of a trace's objects.
    pub fn prefix_of_trace(trace_id: TraceId) -> String {
        format!("{trace_id}.")
    }
}

impl Payload {
    /// Returns the result as a value. A reference stays a reference.
    pub fn to_value(&self) -> Json {
        match self {
            Payload::Inline(value) => value.clone(),
            Payload::Reference(_) => {
                Json::from(serde_json::to_value(self).expect("a message has string keys only"))
            }
        }
    }
}

/// Counters over the whole life of a context. They only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    #[serde(skip_serializing_if = "is_zero")]
    pub steps: u32,
    /// Retries of calls within attempts. The coordinator counts lost and failed attempts.
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub output_files: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub output_size_bytes: u64,
    /// The number of entries in the journal. The next attempt must find as many.
    #[serde(skip_serializing_if = "is_zero")]
    pub journaled: u32,
}

pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// The end of an attempt, on `agent.result.…`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Result {
    pub trace_id: TraceId,
    pub report: Report,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub lease: Lease,
    #[serde(default)]
    pub progress: Progress,
    pub verdict: Verdict,
}

/// The worker's view of the attempt's end. The coordinator decides the outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Completed(Payload),
    Failed(Failure),
    /// One of the agent's checks stopped it (B16).
    Halted {
        check: String,
        reason: String,
    },
    /// The attempt waits for children without a worker. With `hand_over`, the result of the one
    /// child becomes its own result.
    Waiting {
        children: Vec<ChildId>,
        #[serde(default)]
        hand_over: bool,
    },
    /// The attempt waits for a human.
    InputRequired {
        question: super::Text,
        /// The valid answers, and the result without an answer.
        #[serde(flatten)]
        form: Box<Form>,
    },
    /// A hold was denied or halted, and the context may pause. It waits for a raise of its budget.
    OutOfBudget,
    /// The budget is too small for the remaining work, and this is its last report (B7). The
    /// context ends as aborted, with this report as its result.
    LastReport(Payload),
    /// Returns the context unchanged, as a draining worker does. It does not use up a retry.
    HandedBack,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    /// True if another attempt might succeed.
    #[serde(default)]
    pub retryable: bool,
}

impl Failure {
    /// A failure that another attempt would repeat.
    pub fn lasting(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into(), retryable: false }
    }

    /// A failure from the circumstances of this attempt. Another attempt may succeed.
    pub fn retryable(message: impl Into<String>) -> Self {
        Failure { kind: FailureKind::Agent, message: message.into(), retryable: true }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The agent itself failed.
    Agent,
    /// The model's provider failed.
    Provider,
    /// A hold was denied and no cheaper call was possible (B5).
    Budget,
    /// The result does not match `output_schema`.
    OutputSchema,
    /// A limit of section L was reached. The message has its name.
    LimitExceeded,
    /// Its workers were lost more often than its retries allow.
    WorkerLost,
    /// A spawn or a step was refused. The message has the rule.
    Refused,
    /// A `when` or `until` could not be evaluated.
    Condition,
    /// A required step of its graph failed.
    Step,
    /// It needed a human although `hitl` is `fail`, or no answer came in time.
    InputRequired,
    /// A human denied an `approve` step (G7).
    Denied,
}

impl FailureKind {
    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Agent => "agent",
            FailureKind::Provider => "provider",
            FailureKind::Budget => "budget",
            FailureKind::OutputSchema => "output_schema",
            FailureKind::LimitExceeded => "limit_exceeded",
            FailureKind::WorkerLost => "worker_lost",
            FailureKind::Refused => "refused",
            FailureKind::Condition => "condition",
            FailureKind::Step => "step",
            FailureKind::InputRequired => "input_required",
            FailureKind::Denied => "denied",
        }
    }
}

/// The cost of one paid call, on `agent.cost.…`. Repeated messages are booked once, by `call_id`
/// (B9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    pub trace_id: TraceId,
    pub lease: Lease,
    pub call_id: CallId,
    pub amount: Amount,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The price table with which the amount was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
}
