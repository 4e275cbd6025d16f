//! The messages that every implementation of the bus carries: outgoing, stored, received from a
//! queue, and broadcast. Plain values.

use std::{fmt, time::Duration};

use bytes::Bytes;

use domain::{span::Headers, subject::Subject, time::Timestamp};

/// Headers that the server adds to a copy of a stored message. Receivers reject such a copy: no
/// sender published it on its subject.
pub(super) const HEADERS_OF_REPLAYS: [&str; 3] = ["Nats-Stream", "Nats-Subject", "Nats-Sequence"];

/// The header with the reason why a payload can't be read. Only this crate sets it; the same header
/// from a sender is dropped.
pub(super) const LOST_HEADER: &str = "Trellis-Object-Lost";

/// The header with the sender's identity. A server writes it when it passes a message between
/// accounts (`share: true` of a service import). Within one account any sender can forge it.
pub const REQUEST_INFO: &str = "Nats-Request-Info";

/// A message for a stream. A publish succeeds once the server has stored the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub subject: Subject,
    /// The server stores one message per id, for as long as it remembers the id.
    pub id: Option<String>,
    pub headers: Headers,
    pub payload: Bytes,
    /// The message is stored only if the last message on its subject has this sequence. With 0, it
    /// is stored only if the subject has no message.
    pub expect_last: Option<u64>,
}

/// The result of storing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishReceipt {
    pub sequence: u64,
    /// A message with the same id was already stored.
    pub duplicate: bool,
}

/// A message, as a reader of its stream receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    pub subject: Subject,
    /// The id from [`Outgoing::id`].
    pub id: Option<String>,
    pub headers: Headers,
    pub payload: Bytes,
    pub sequence: u64,
    pub at: Timestamp,
}

/// A stored message without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub subject: Subject,
    pub sequence: u64,
    /// The id from [`Outgoing::id`].
    pub id: Option<String>,
}

/// A place in a log: after the message with this sequence. The sequences of a recreated log start
/// at one again, so they are comparable only within the same `log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Identifies the log by a number computed from the time of its creation.
    pub log: u64,
    pub sequence: u64,
}

impl Position {
    /// Parses the text of its `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let (log, sequence) = text.split_once('-')?;
        Some(Position { log: log.parse().ok()?, sequence: sequence.parse().ok()? })
    }

    /// Returns true if this position is in the log that ends at `end`, and not after its end.
    pub fn is_in(self, end: Position) -> bool {
        self.log == end.log && self.sequence <= end.sequence
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.log, self.sequence)
    }
}

/// The place at which to start reading a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    Sequence(u64),
    Now,
}

/// The name of a service and its subjects.
#[derive(Debug, Clone)]
pub struct Service {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub subjects: Vec<Subject>,
}

/// The server answers a request on this subject with the identity of the sender. Every user may
/// publish to it.
pub(crate) const ABOUT_US: &str = "$SYS.REQ.USER.INFO";

/// The user as which this process is connected to the server, and the permissions of that user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub account: String,
    /// The subjects that the user may publish to. `None` allows every subject.
    pub publish: Option<Vec<String>>,
    /// The subjects that the user may subscribe to. `None` allows every subject.
    pub subscribe: Option<Vec<String>>,
    /// True if the server requires TLS.
    pub encrypted: bool,
}

/// A message that is not stored: a broadcast, or a request if `reply_to` is set.
#[derive(Debug, Clone)]
pub struct Message {
    pub subject: Subject,
    pub headers: Headers,
    pub payload: Bytes,
    /// The subject for the answer, for [`super::Bus::reply`].
    pub reply_to: Option<String>,
}

/// A message from a queue, as an implementation received it.
#[derive(Debug)]
pub(super) struct ReceivedMessage {
    pub(super) subject: String,
    pub(super) headers: Headers,
    pub(super) payload: Bytes,
    pub(super) sequence: u64,
    pub(super) at: Timestamp,
    pub(super) delivered: u64,
}

/// The result of handling a delivery, as it is sent to the server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Acknowledgement {
    Ack,
    Nak(Duration),
    Progress,
    Terminate,
}
