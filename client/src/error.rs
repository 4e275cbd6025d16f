//! The errors of a client. The refusal of a coordinator is a value of [`crate::Reply`], not an error.

use bus::{PublishError, RequestError};
use domain::{
    ChildId, Problems, TraceId,
    wire::{QueryAnswer, Refusal},
};
use tokio::task::JoinError;

/// The reason why a client's operation failed. The texts have no hints, because a useful hint
/// depends on the interface.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} has no answer")]
    Request {
        what: &'static str,
        /// True if the request went to a server over HTTP, and not to a bus.
        is_over_http: bool,
        #[source]
        source: RequestError,
    },
    /// The message was not stored.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The bus could not be read.
    #[error(transparent)]
    Bus(#[from] bus::Error),
    #[error("a message could not be written")]
    Message(#[source] serde_json::Error),
    #[error("could not read the coordinator's answer")]
    Answer {
        /// The kind of the request, such as `query`.
        kind: &'static str,
        #[source]
        source: serde_json::Error,
    },
    /// The answer belongs to another query: the coordinator may have another version.
    #[error("the coordinator gave an answer that does not fit the query: {0:?}")]
    OtherAnswer(Box<QueryAnswer>),
    #[error("the log has an event this version of trellis does not know")]
    Event(#[source] serde_json::Error),
    #[error("could not read an outcome")]
    Outcome(#[source] serde_json::Error),
    #[error("the journal has an entry that this version of trellis can't read\n\n{0}")]
    Entry(Problems),
    #[error("there is no run {0}")]
    NoRun(TraceId),
    #[error("run {0} can't be shown: the beginning of its event log has expired")]
    Expired(TraceId),
    #[error("run {0} can't be shown: it was cancelled before any context began")]
    NotBegun(TraceId),
    #[error(transparent)]
    NoJournal(#[from] NoJournal),
    /// `why` is the reason of the first message that was left out.
    #[error("no message in the log of run {trace_id} is authentic: {why}")]
    NotAuthentic { trace_id: TraceId, why: String },
    #[error("the event log ended")]
    LogEnded,
    /// A decoder panicked, or the runtime is stopping.
    #[error("a log could not be read to its end")]
    Interrupted(#[source] JoinError),
}

impl Error {
    /// The error for an answer that belongs to another query.
    pub fn other_answer(answer: QueryAnswer) -> Self {
        Error::OtherAnswer(Box::new(answer))
    }

    /// The error for the refusal of a query that coordinators never refuse.
    pub fn refused(refusal: Refusal) -> Self {
        Self::other_answer(QueryAnswer::Refused(refusal))
    }

    /// The missing permission on the server of the bus, if that is the cause.
    pub fn denied(&self) -> Option<&bus::Denied> {
        match self {
            Error::Request { source: RequestError::Denied(denied), .. }
            | Error::Publish(PublishError::Denied(denied))
            | Error::Bus(bus::Error::Denied(denied)) => Some(denied),
            Error::Request { .. }
            | Error::Publish(_)
            | Error::Bus(_)
            | Error::Message(_)
            | Error::Answer { .. }
            | Error::OtherAnswer(_)
            | Error::Event(_)
            | Error::Outcome(_)
            | Error::Entry(_)
            | Error::NoRun(_)
            | Error::Expired(_)
            | Error::NotBegun(_)
            | Error::NoJournal(_)
            | Error::NotAuthentic { .. }
            | Error::LogEnded
            | Error::Interrupted(_) => None,
        }
    }
}

/// A context without a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{child_id}` of run {trace_id} has no journal")]
pub struct NoJournal {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The contexts of the run that have a journal.
    pub others: Vec<ChildId>,
}

impl NoJournal {
    /// The reason, or the contexts that have a journal.
    pub fn hint(&self) -> String {
        if self.others.is_empty() {
            return "built-in agents and graphs keep no journal, and journals are kept for a limited time"
                .to_owned();
        }
        let others: Vec<String> = self.others.iter().map(|id| format!("`{id}`")).collect();
        format!("these contexts have one: {}", others.join(", "))
    }
}
