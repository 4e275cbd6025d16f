//! The values that the stages of a turn pass on: decided traces, committed traces, sent messages.

use std::{ops::Range, sync::Arc};

use bus::{PublishError, PublishReceipt};
use domain::{ChildId, TraceId};
use trace::Event;

use super::{lines::Line, outbox::Outbox, reply::Reply, turn_metrics::TurnMetrics};
use crate::store::OutboxKey;

/// A trace in a turn, with the decisions on it so far.
pub(super) struct Open {
    pub(super) expected: u64,
    /// The text of `Trace::MADE_FIELD` on which the decisions were made; none for a trace that did
    /// not exist.
    pub(super) stamp: Option<String>,
    pub(super) had_root: bool,
    pub(super) events: Vec<Event>,
    /// Some of the events may have freed budget for holds that wait.
    pub(super) frees_room: bool,
    pub(super) replies: Vec<Reply>,
    /// The log lines that are written once the trace is committed.
    pub(super) lines: Vec<Line>,
    /// The revision of the agent profiles that the decisions used, if profiles were looked up.
    pub(super) profiles: Option<u64>,
    /// The metrics that are recorded once the trace is committed.
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
    /// Contexts whose journal and objects are removed after all replies are sent.
    pub(super) removed: Vec<RemovedContext>,
}

/// A context that was deleted.
pub(super) struct RemovedContext {
    pub(super) trace_id: TraceId,
    pub(super) child_id: ChildId,
    /// The context is the root: the whole trace was deleted.
    pub(super) whole_trace: bool,
}

pub(super) struct Part {
    pub(super) trace_id: TraceId,
    /// The version of the trace that its replies report.
    pub(super) version: u64,
    /// The outboxes that were sent, and the range of each one's event messages within the part.
    pub(super) outboxes: Vec<(OutboxKey, Range<usize>)>,
    pub(super) messages: Range<usize>,
    pub(super) replies: Vec<Reply>,
}
