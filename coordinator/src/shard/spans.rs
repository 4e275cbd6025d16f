//! The spans a coordinator emits. The span id of a context follows from its ids, so that its children can
//! name it long before it is emitted. It is emitted when the context ends, by the coordinator that decides
//! the end.

use shared::{
    ChildId, Timestamp,
    telemetry::{self, Kind, Span, Value},
    wire::{EndStatus, FailureKind},
};

use super::job::Submission;
use crate::trace::Trace;

/// A run was admitted: from the time its message was stored to the decision.
pub(crate) fn admission(trace: &Trace, submission: &Submission, now: Timestamp) {
    if !telemetry::is_on() {
        return;
    }
    let root = telemetry::span_id(trace.id(), submission.child_id.as_str());
    Span {
        name: "admission".into(),
        trace_id: trace.id(),
        span_id: None,
        parent: Some(submission.parent_span.unwrap_or(root)),
        start: submission.received_at,
        end: now,
        kind: Kind::Consumer,
        attributes: vec![("trellis.child_id", submission.child_id.as_str().into())],
        error: None,
        link: submission.link,
    }
    .emit();
}

/// A context has ended.
pub(crate) fn context(trace: &Trace, child_id: &ChildId) {
    if !telemetry::is_on() {
        return;
    }
    let Some(node) = trace.context(child_id) else { return };
    let Some(end) = node.end() else { return };
    let operation = if node.graph.is_some() { "invoke_workflow" } else { "invoke_agent" };
    let agent = node.order.agent_id.as_ref().map(|agent| agent.as_str());
    let budget = node.budget.snapshot();
    let mut attributes: Vec<(&'static str, Value)> = vec![
        ("gen_ai.operation.name", operation.into()),
        ("trellis.child_id", child_id.as_str().into()),
        ("trellis.status", format!("{:?}", end.status).into()),
        ("trellis.attempts", Value::Integer(node.attempt().into())),
        ("trellis.budget.spent_usd", budget.spent.cost_usd.to_string().into()),
        ("trellis.budget.own_usd", budget.own.cost_usd.to_string().into()),
        ("trellis.budget.limit_usd", budget.limit.cost_usd.to_string().into()),
    ];
    attributes.extend(agent.map(|agent| ("gen_ai.agent.name", agent.into())));
    let error = failed(end.status, end.error.as_ref().map(|error| error.kind));
    let parent = node.parent.map(|parent| trace.node(parent).id.clone());
    Span {
        name: format!("{operation} {}", agent.unwrap_or(child_id.as_str())).into(),
        trace_id: trace.id(),
        span_id: Some(telemetry::span_id(trace.id(), child_id.as_str())),
        parent: parent.map(|parent| telemetry::span_id(trace.id(), parent.as_str())),
        start: node.started_at,
        end: end.at,
        kind: Kind::Internal,
        attributes,
        error,
        link: None,
    }
    .emit();
}

/// What a span says of an end: never the text of the failure, in which a provider or an agent may have its say (S2).
fn failed(status: EndStatus, kind: Option<FailureKind>) -> Option<&'static str> {
    match (status, kind) {
        (EndStatus::Completed, _) => None,
        (EndStatus::Cancelled, _) => Some("cancelled"),
        (EndStatus::TimedOut, _) => Some("timed_out"),
        (EndStatus::Aborted, _) => Some("aborted"),
        (EndStatus::Rejected, _) => Some("rejected"),
        (EndStatus::Failed, None) => Some("failed"),
        (EndStatus::Failed, Some(kind)) => Some(match kind {
            FailureKind::Agent => "failed: agent",
            FailureKind::Provider => "failed: provider",
            FailureKind::Budget => "failed: budget",
            FailureKind::OutputSchema => "failed: output_schema",
            FailureKind::LimitExceeded => "failed: limit_exceeded",
            FailureKind::WorkerLost => "failed: worker_lost",
            FailureKind::Refused => "failed: refused",
            FailureKind::Condition => "failed: condition",
            FailureKind::Step => "failed: step",
            FailureKind::InputRequired => "failed: input_required",
            FailureKind::Denied => "failed: denied",
        }),
    }
}
