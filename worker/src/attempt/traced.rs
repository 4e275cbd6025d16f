//! The part of an attempt in its run's trace: whether that is exported, and the time that its spans have.

use domain::{
    Timestamp, TraceId,
    span::{Headers, Moment, SpanId},
};
use host::clock::{Clock, Mark};

#[derive(Debug)]
pub(crate) struct AttemptSpan {
    /// The run is exported, by this process or by others.
    pub(super) is_exported: bool,
    /// When the attempt was claimed, by the coordinator's time, which all spans of a run have.
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
