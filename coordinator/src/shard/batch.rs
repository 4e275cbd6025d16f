//! What the stages of a turn hand to each other: traces decided on, traces committed, messages sent.
//! Plain values.

use std::{ops::Range, sync::Arc};

use bus::{PublishError, PublishReceipt};
use domain::{ChildId, TraceId};
use trace::Event;

use super::{lines::Line, outbox::Outbox, reply::Reply, turn_metrics::TurnMetrics};
use crate::store::OutboxKey;

/// A trace in a turn, with what was decided on it.
pub(super) struct Open {
    pub(super) expected: u64,
    /// The text of `Trace::MADE_FIELD` that it was decided on; none for a trace that was not there.
    pub(super) stamp: Option<String>,
    pub(super) had_root: bool,
    pub(super) events: Vec<Event>,
    /// Some of the events may have made room for holds that wait.
    pub(super) frees_room: bool,
    pub(super) replies: Vec<Reply>,
    /// What the log says of it, once it is committed.
    pub(super) lines: Vec<Line>,
    /// The revision of the agent profiles that it was decided with, if profiles were looked up.
    pub(super) profiles: Option<u64>,
    /// What metrics are told once it is committed.
    pub(super) counted: TurnMetrics,
}

/// A trace whose turn is committed, or needed no commit.
pub(super) struct SettledTrace {
    pub(super) trace_id: TraceId,
    pub(super) outbox: Option<Arc<Outbox>>,
    pub(super) frees_room: bool,
    pub(super) replies: Vec<Reply>,
}

/// Messages that were sent together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) parts: Vec<Part>,
    pub(super) results: Vec<Result<PublishReceipt, PublishError>>,
    /// Contexts whose journal and objects are removed once all replies are given.
    pub(super) removed: Vec<RemovedContext>,
}

/// A context that was deleted.
pub(super) struct RemovedContext {
    pub(super) trace_id: TraceId,
    pub(super) child_id: ChildId,
    /// It is the root: all of the trace was deleted.
    pub(super) whole_trace: bool,
}

pub(super) struct Part {
    pub(super) trace_id: TraceId,
    /// The version of the trace that its replies tell of.
    pub(super) version: u64,
    /// The outboxes that were sent, and which messages of the part are their events.
    pub(super) outboxes: Vec<(OutboxKey, Range<usize>)>,
    pub(super) messages: Range<usize>,
    pub(super) replies: Vec<Reply>,
}
