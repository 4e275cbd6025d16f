//! The spans a coordinator emits. The span id of a context follows from its ids, so that its children can
//! name it long before it is emitted. It is emitted when the context ends, by the coordinator that decides
//! the end.

use shared::{
    ChildId, Timestamp,
    telemetry::{self, Kind, Span, Value},
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
    let error = end.error.as_ref().map(|error| error.message.as_str()).or(end.reason.as_deref());
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
