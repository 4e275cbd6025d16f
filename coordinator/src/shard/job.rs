//! What a shard is given to do: a command for a trace, and who waits for it to be done.

use shared::{
    ChildId, ContextKey, TraceId,
    bus::Delivery,
    subject::Subject,
    wire::{Claim, Lease, Tick},
};

use tokio::sync::mpsc;

use crate::trace::Command;

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) trace_id: TraceId,
    pub(crate) work: Work,
    pub(crate) origin: Origin,
    /// How often it met somebody else's commit and was decided again.
    pub(crate) tries: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Work {
    Command(Box<Command>),
    /// Several that came in one message; each may be refused by itself.
    Commands(Vec<Command>),
    ReadValue(Lease, ContextKey),
    ListValues(Lease),
    /// A look at a trace that may need one: what is due, what was never sent.
    Wake,
}

/// Where a job came from, and so what is to be said and acknowledged when it is done.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Our own timers; nobody waits.
    Timer,
    /// A sweep, which waits until all its jobs are gone. It has reason to doubt the store.
    Sweep { _waiting: mpsc::Sender<()> },
    /// A worker's question.
    Ask { reply_to: String, kind: AnswerKind },
    /// A request for a run.
    Submission(Box<Submission>),
    /// A message from a queue that gets no answer but an ack.
    Queue { delivery: Box<Delivery>, subject: Subject },
}

/// What of the state answers a worker.
#[derive(Debug, Clone)]
pub(crate) enum AnswerKind {
    Claim(Claim),
    Tick(Tick),
    Spawn(ChildId),
    /// Done, or why not.
    Plain,
    Read,
}

#[derive(Debug)]
pub(crate) struct Submission {
    /// None if it came by request.
    pub(crate) delivery: Option<Delivery>,
    pub(crate) reply_to: Option<String>,
    pub(crate) subject: Subject,
    pub(crate) child_id: ChildId,
    /// Its trace id was made for it and used by nobody before.
    pub(crate) fresh: bool,
    /// X2: where it goes if the trace its caller has is taken. The caller's trace is then linked.
    pub(crate) elsewhere: Option<TraceId>,
    pub(crate) link: Option<(TraceId, u64)>,
    /// The caller's span.
    pub(crate) parent_span: Option<u64>,
    pub(crate) received_at: shared::Timestamp,
}

impl Job {
    pub(crate) fn new(trace_id: TraceId, work: Work, origin: Origin) -> Self {
        Job { trace_id, work, origin, tries: 0 }
    }

    pub(crate) fn command(trace_id: TraceId, command: Command, origin: Origin) -> Self {
        Self::new(trace_id, Work::Command(Box::new(command)), origin)
    }
}
