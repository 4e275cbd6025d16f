//! A job of a shard: work on a trace, and the origin that waits for the answer.

use std::sync::{Arc, atomic::AtomicUsize};

use bus::Delivery;
use domain::{
    ChildId, ContextKey, PoolName, Timestamp, TraceId,
    subject::Subject,
    wire::{Lease, PartName},
};

use tokio::sync::mpsc;

use trace::{Order, RunOrigin};

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) trace_id: TraceId,
    pub(crate) work: Work,
    pub(crate) origin: Origin,
    /// The number of decisions that were lost because another coordinator had committed first.
    pub(crate) tries: u32,
    /// The job was refused once: before the refusal is final, the trace is compared with its log.
    pub(crate) refused: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// The orders of one message, in most cases one. Each may be refused on its own.
    Orders(Vec<Order>),
    /// A read by an attempt of a worker of this pool.
    Read { pool: PoolName, lease: Lease, what: Reading },
    /// Checks which timers of a trace are due, and which of its messages were never sent.
    Wake(LeaseGrace),
}

impl Work {
    pub(crate) fn orders(&self) -> &[Order] {
        match self {
            Work::Orders(orders) => orders,
            Work::Read { .. } | Work::Wake(_) => &[],
        }
    }

    pub(crate) fn orders_mut(&mut self) -> &mut [Order] {
        match self {
            Work::Orders(orders) => orders,
            Work::Read { .. } | Work::Wake(_) => &mut [],
        }
    }
}

/// The data that an attempt may read.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    Value(ContextKey),
    Keys,
    Part(PartName),
}

/// The time by which expired leases are extended: a worker whose tick is not answered waits 2 s for
/// an answer, and asks again after half a second.
pub(crate) const SPARED_MS: u64 = 5_000;

/// The treatment of leases that expired while no coordinator served the trace.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeaseGrace {
    /// They are expired.
    No,
    /// They last until this time.
    Until(Timestamp),
    /// They last `SPARED_MS` longer.
    Anew,
}

/// The source of a job: it determines which caller gets an answer and which delivery is
/// acknowledged.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Our own timers; no caller waits for an answer.
    Timer,
    /// A sweep. It runs when the store may have lost writes.
    Sweep(SweepProgress),
    /// A worker's ask.
    Ask { reply_to: String },
    /// A client's request: a message to an agent, the answer to a question, or an amend of a graph.
    /// It is answered after the commit.
    Query { reply_to: Option<String> },
    /// A submission of a client.
    Submission(Box<Submission>),
    /// A message from a queue; it is acknowledged and gets no other answer.
    Queue { delivery: Box<Delivery>, subject: Subject },
}

impl Origin {
    /// Returns true if the sender does not ask again, and may refer to a trace that existed before.
    pub(crate) fn is_sent_once(&self) -> bool {
        match self {
            Origin::Queue { .. } => true,
            Origin::Submission(submission) => submission.delivery.is_some() && !submission.fresh,
            Origin::Timer | Origin::Sweep(_) | Origin::Ask { .. } | Origin::Query { .. } => false,
        }
    }
}

/// Reports to a sweep that its jobs are done, and how many failed.
#[derive(Debug, Clone)]
pub(crate) struct SweepProgress {
    /// The sweep waits until every clone of this sender is dropped.
    pub(crate) _waiting: mpsc::Sender<()>,
    /// The whole log of the trace is read, even if its last message is already known.
    pub(crate) whole: bool,
    /// How many traces could not be loaded.
    pub(crate) failed: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(crate) struct Submission {
    /// None if the submission came as a request.
    pub(crate) delivery: Option<Delivery>,
    pub(crate) reply_to: Option<String>,
    pub(crate) subject: Subject,
    pub(crate) child_id: ChildId,
    /// The trace id was made for this submission: no such trace can exist.
    pub(crate) fresh: bool,
    /// No coordinator can have handled the submission before.
    pub(crate) comes_first: bool,
    pub(crate) elsewhere: Option<Elsewhere>,
}

/// X2: the trace in which a submission is decided if the caller's trace already exists. The new
/// trace then links to the caller's trace.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    pub(crate) trace_id: TraceId,
    /// The origin that the new trace's spans report, if they are exported.
    pub(crate) traced: Option<Box<RunOrigin>>,
}

impl Job {
    pub(crate) fn new(trace_id: TraceId, work: Work, origin: Origin) -> Self {
        Job { trace_id, work, origin, tries: 0, refused: false }
    }

    /// The revision of the agent profiles that were looked up for this job, if any.
    pub(crate) fn profiles(&self) -> Option<u64> {
        self.work.orders().iter().find_map(|order| order.command.profiles())
    }

    pub(crate) fn order(trace_id: TraceId, order: impl Into<Order>, origin: Origin) -> Self {
        Self::new(trace_id, Work::Orders(vec![order.into()]), origin)
    }
}
