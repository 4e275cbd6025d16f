//! The errors of the bus.

use std::fmt;

use domain::wording;

/// An action that the server did not permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Publish,
    Subscribe,
}

/// The server does not permit an action on a subject to the user that this process signed in as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Denied {
    pub action: Action,
    /// The subject's name on the server.
    pub subject: String,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Publish => "publish to",
            Action::Subscribe => "subscribe to",
        };
        write!(f, "these credentials do not permit to {action} `{}`", self.subject)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Another writer stored a message first. This is expected where an append names the last
    /// sequence.
    #[error("another message was stored first: the last sequence of the subject is not the expected one")]
    WrongSequence,
    #[error("the stream is full: {0}")]
    Full(String),
    /// The message may have been stored or not. A publish of it under the same id is safe to
    /// repeat.
    #[error("no acknowledgement in time")]
    Unacknowledged,
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("could not publish: {0}")]
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("no process listens on that subject")]
    NoResponders,
    #[error("no answer in time")]
    TimedOut,
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("the request could not be sent: {0}")]
    Other(String),
}

/// The bus can't be reached, or is not set up as needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("could not connect to NATS at {url}: {reason}")]
    Connect { url: String, reason: String },
    /// An HTTP call did not reach the gateway, or the gateway did not accept it.
    #[error("the Trellis server at {url} was not reached: {reason}")]
    Unreached { url: String, reason: String },
    #[error("nats-server {found} is too old: {needed} or newer is needed")]
    TooOld { found: String, needed: &'static str },
    #[error("{what} `{name}` is configured differently on the server: {difference}")]
    Mismatch { what: &'static str, name: String, difference: String },
    /// The server reserves the maximum size of every stream at the time that it creates the stream.
    #[error(
        "nats-server refuses to reserve {} of storage for `{name}`: the streams and buckets of a deployment reserve {} together, and it has less",
        wording::size(*bytes),
        wording::size(*all)
    )]
    NoRoom { name: String, bytes: u64, all: u64 },
    /// A limit of an existing stream is higher than the given one.
    #[error("`{name}` has {found}, and {given} would delete messages or copies")]
    Lower { name: String, found: String, given: String },
    /// Permanent: a retry returns the same error.
    #[error("the object `{name}` has more than the {max} bytes that are allowed")]
    TooLarge { name: String, max: u64 },
    /// Permanent until the server's permissions change.
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("{doing}: {reason}")]
    Failed { doing: String, reason: String },
}
