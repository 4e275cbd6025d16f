//! Spans of a delivery: how long the work was queued, and the attempt itself. Both lie under the span of
//! their context, whose id follows from the trace and the context.

use shared::{
    Timestamp,
    telemetry::{self, Kind, Span, span_id},
};

use crate::attempt::Attempt;

/// How long the work waited in the queue.
pub(super) fn emit_queue_wait(attempt: &Attempt, queued_at: Timestamp, claimed_at: Timestamp) {
    if !telemetry::is_on() {
        return;
    }
    Span {
        name: "queue wait".into(),
        trace_id: attempt.trace_id(),
        span_id: None,
        parent: Some(context_span(attempt)),
        start: queued_at,
        end: claimed_at,
        kind: Kind::Consumer,
        attributes: vec![
            ("trellis.child_id", attempt.child_id().as_str().into()),
            ("trellis.attempt", attempt.number().into()),
        ],
        error: None,
        link: None,
    }
    .emit();
}

/// The attempt, once it has ended: how, and what was wrong if anything was.
pub(super) fn emit_attempt(
    attempt: &Attempt,
    start: Timestamp,
    verdict: &'static str,
    error: Option<&'static str>,
) {
    if !telemetry::is_on() {
        return;
    }
    let agent_id = &attempt.work.agent.agent_id;
    Span {
        name: format!("invoke_agent {agent_id}").into(),
        trace_id: attempt.trace_id(),
        span_id: Some(attempt.span),
        parent: Some(context_span(attempt)),
        start,
        end: attempt.now(),
        kind: Kind::Internal,
        attributes: vec![
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.agent.name", agent_id.as_str().into()),
            ("trellis.child_id", attempt.child_id().as_str().into()),
            ("trellis.attempt", attempt.number().into()),
            ("trellis.verdict", verdict.into()),
        ],
        error,
        link: None,
    }
    .emit();
}

fn context_span(attempt: &Attempt) -> u64 {
    span_id(attempt.trace_id(), attempt.child_id().as_str())
}
