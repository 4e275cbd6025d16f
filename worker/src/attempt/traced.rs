//! The trace of an attempt: whether its run is exported, and the clock of its spans.

use domain::{
    Timestamp, TraceId,
    span::{Headers, Moment, SpanId},
};
use host::clock::{Clock, Mark};

#[derive(Debug)]
pub(crate) struct AttemptSpan {
    /// The run is exported, by this process or another.
    pub(super) is_exported: bool,
    /// The time of the claim by the coordinator's clock, which all spans of a run use.
    claimed_at: Timestamp,
    since: Mark,
    clock: Clock,
}

impl AttemptSpan {
    pub(crate) fn new(is_exported: bool, claimed_at: Timestamp, clock: Clock) -> Self {
        AttemptSpan { is_exported, claimed_at, since: clock.mark(), clock }
    }

    pub(super) fn now(&self) -> Moment {
        Moment::from(self.claimed_at).plus(self.clock.since(self.since))
    }
}

/// The trace context of a message, if its run is exported.
pub(crate) fn headers(is_exported: bool, trace_id: TraceId, span: SpanId) -> Headers {
    if is_exported { domain::span::headers(trace_id, span) } else { Headers::default() }
}
