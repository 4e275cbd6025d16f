//! What a shard is given to do: work on a trace, and who waits for the answer.

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
    /// How often it was decided again because another coordinator had committed first.
    pub(crate) tries: u32,
    /// It was refused once: before that is final, the trace is compared with its log.
    pub(crate) refused: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// The orders of one message, in most cases one. Each may be refused by itself.
    Orders(Vec<Order>),
    /// What an attempt of a worker of this pool reads.
    Read { pool: PoolName, lease: Lease, what: Reading },
    /// Checks what is due in a trace, and what was never sent.
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

/// What an attempt may read.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    Value(ContextKey),
    Keys,
    Part(PartName),
}

/// How long leases are spared: a worker whose ticks are not answered waits 2 s for an answer, and asks again after half a
/// second.
pub(crate) const SPARED_MS: u64 = 5_000;

/// What becomes of leases that expired while nobody served the trace.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeaseGrace {
    /// They are over.
    No,
    /// They last until then.
    Until(Timestamp),
    /// They last for a moment more.
    Anew,
}

/// Where a job came from: this determines who gets an answer and what is acknowledged.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Our own timers; nobody waits for an answer.
    Timer,
    /// A sweep. It has reason to distrust the store.
    Sweep(SweepProgress),
    /// A worker's ask.
    Ask { reply_to: String },
    /// A client's request: a message to an agent, the answer to a question, or an amend of a graph. It is
    /// answered after the commit.
    Query { reply_to: Option<String> },
    /// A submission of a client.
    Submission(Box<Submission>),
    /// A message from a queue; it is acknowledged and gets no other answer.
    Queue { delivery: Box<Delivery>, subject: Subject },
}

impl Origin {
    /// Whether its sender is not asked again, and may speak of a trace that there was before.
    pub(crate) fn is_sent_once(&self) -> bool {
        match self {
            Origin::Queue { .. } => true,
            Origin::Submission(submission) => submission.delivery.is_some() && !submission.fresh,
            Origin::Timer | Origin::Sweep(_) | Origin::Ask { .. } | Origin::Query { .. } => false,
        }
    }
}

/// How a sweep learns what became of its jobs.
#[derive(Debug, Clone)]
pub(crate) struct SweepProgress {
    /// The sweep waits until all of these are gone.
    pub(crate) _waiting: mpsc::Sender<()>,
    /// Its log is to be read as a whole, whatever its last message says.
    pub(crate) whole: bool,
    /// How many traces could not be loaded.
    pub(crate) failed: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(crate) struct Submission {
    /// None if it came as a request.
    pub(crate) delivery: Option<Delivery>,
    pub(crate) reply_to: Option<String>,
    pub(crate) subject: Subject,
    pub(crate) child_id: ChildId,
    /// Its trace id was made for it: no such trace can exist.
    pub(crate) fresh: bool,
    /// No coordinator can have handled it before.
    pub(crate) comes_first: bool,
    pub(crate) elsewhere: Option<Elsewhere>,
}

/// X2: the trace that a submission is decided in if the caller's trace is taken. The caller's trace is then linked.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    pub(crate) trace_id: TraceId,
    /// What its spans tell of its beginning, if they are exported.
    pub(crate) traced: Option<Box<RunOrigin>>,
}

impl Job {
    pub(crate) fn new(trace_id: TraceId, work: Work, origin: Origin) -> Self {
        Job { trace_id, work, origin, tries: 0, refused: false }
    }

    /// The revision of the agent profiles that were looked up for it, if any were.
    pub(crate) fn profiles(&self) -> Option<u64> {
        self.work.orders().iter().find_map(|order| order.command.profiles())
    }

    pub(crate) fn order(trace_id: TraceId, order: impl Into<Order>, origin: Origin) -> Self {
        Self::new(trace_id, Work::Orders(vec![order.into()]), origin)
    }
}
