//! What goes over the bus in either implementation: messages to be stored, stored, received and broadcast.
//! Plain values.

use std::{fmt, time::Duration};

use bytes::Bytes;

use domain::{span::Headers, subject::Subject, time::Timestamp};

/// The server writes these into what it takes out of a stream.
pub(super) const HEADERS_OF_REPLAYS: [&str; 3] = ["Nats-Stream", "Nats-Subject", "Nats-Sequence"];

/// Why the payload of a message can't be read, on messages of which that is so. Whoever sends it is not heard.
pub(super) const LOST_HEADER: &str = "Trellis-Object-Lost";

/// Who sent it, as a server says that passes it on between accounts (`share: true` of a service import). Within one account
/// anybody can write it.
pub const REQUEST_INFO: &str = "Nats-Request-Info";

/// A message to be stored; it counts as sent once it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub subject: Subject,
    /// A message sent again under the same id is stored once (as long as the server remembers the id).
    pub id: Option<String>,
    pub headers: Headers,
    pub payload: Bytes,
    /// Stored only if this is the last sequence on its subject; 0: only if there is none.
    pub expect_last: Option<u64>,
}

/// The result of storing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishReceipt {
    pub sequence: u64,
    /// A message with its id was already stored.
    pub duplicate: bool,
}

/// A message as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    pub subject: Subject,
    /// The id that it was published with.
    pub id: Option<String>,
    pub headers: Headers,
    pub payload: Bytes,
    pub sequence: u64,
    pub at: Timestamp,
}

/// A stored message without what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub subject: Subject,
    pub sequence: u64,
    /// The id that it was published with.
    pub id: Option<String>,
}

/// A place in a log: behind the message with this sequence. A log that was made anew counts from one again, so that its
/// sequences mean something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// When the log was made, in milliseconds.
    pub log: u64,
    pub sequence: u64,
}

impl Position {
    /// From the text that it is displayed as.
    pub fn parse(text: &str) -> Option<Self> {
        let (log, sequence) = text.split_once('-')?;
        Some(Position { log: log.parse().ok()?, sequence: sequence.parse().ok()? })
    }

    /// Whether it is a place in a log that ends there.
    pub fn is_in(self, end: Position) -> bool {
        self.log == end.log && self.sequence <= end.sequence
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.log, self.sequence)
    }
}

/// Where to start reading a log.
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

/// Every user may ask the server about itself.
pub(crate) const ABOUT_US: &str = "$SYS.REQ.USER.INFO";

/// Who we are for the server, and what it permits us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub account: String,
    /// None: everything.
    pub publish: Option<Vec<String>>,
    pub subscribe: Option<Vec<String>>,
    /// Whether the server insists on TLS.
    pub encrypted: bool,
}

/// A message that is not stored: a broadcast, or a request if somebody waits for the answer.
#[derive(Debug, Clone)]
pub struct Message {
    pub subject: Subject,
    pub headers: Headers,
    pub payload: Bytes,
    /// Where the answer goes, for [`super::Bus::reply`].
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

/// How a delivery was handled, as the server is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Acknowledgement {
    Ack,
    Nak(Duration),
    Progress,
    Terminate,
}
