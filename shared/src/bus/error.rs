//! Why the bus could not do what it was asked.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Somebody else wrote to the subject first: a fence, not a fault.
    #[error("the subject has moved on: its last sequence is not the expected one")]
    WrongSequence,
    #[error("the stream is full: {0}")]
    Full(String),
    /// It may have been stored or not; sending again under the same id is safe.
    #[error("no acknowledgement in time")]
    Unacknowledged,
    #[error("could not publish: {0}")]
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("nobody answers there")]
    NoResponders,
    #[error("no answer in time")]
    TimedOut,
    #[error("could not ask: {0}")]
    Other(String),
}

/// The bus could not be reached, or is not what it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("could not connect to NATS at {url}: {reason}")]
    Connect { url: String, reason: String },
    #[error("nats-server {found} is too old: {needed} or newer is needed")]
    TooOld { found: String, needed: &'static str },
    #[error("{what} `{name}` is configured differently on the server: {difference}")]
    Mismatch { what: &'static str, name: String, difference: String },
    /// It will not be smaller next time.
    #[error("the object `{name}` has more than the {max} bytes that are allowed")]
    TooLarge { name: String, max: u64 },
    #[error("{doing}: {reason}")]
    Failed { doing: String, reason: String },
}
