//! What goes over the bus, on either implementation: messages to be stored, stored, received and
//! broadcast. Plain values.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;

use crate::{subject::Subject, time::Timestamp};

/// W3C trace context and the like. Few and short.
pub type Headers = BTreeMap<String, String>;

/// A message to be stored before it counts as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub subject: Subject,
    /// Sent again under the same id, it is stored once (as long as the server remembers).
    pub id: Option<String>,
    pub headers: Headers,
    pub payload: Bytes,
    /// Stored only if this is the last sequence on its subject; 0: only if it is the first.
    pub expect_last: Option<u64>,
}

/// A message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    pub sequence: u64,
    /// It was there already, by its id.
    pub duplicate: bool,
}

/// A message as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub subject: Subject,
    pub headers: Headers,
    pub payload: Bytes,
    pub sequence: u64,
    pub at: Timestamp,
}

/// From where a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    Sequence(u64),
    Now,
}

/// What a service is called and where it listens.
#[derive(Debug, Clone)]
pub struct Service {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub subjects: Vec<Subject>,
}

/// A message that is not stored: a broadcast, or a request if there is someone to answer.
#[derive(Debug, Clone)]
pub struct Message {
    pub subject: Subject,
    pub headers: Headers,
    pub payload: Bytes,
    /// Where the answer goes, for [`Bus::reply`].
    pub reply_to: Option<String>,
}

/// A message from a queue, as an implementation received it.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) subject: String,
    pub(super) headers: Headers,
    pub(super) payload: Bytes,
    pub(super) sequence: u64,
    pub(super) at: Timestamp,
    pub(super) delivered: u64,
}

/// What the server is told about a message from a queue.
#[derive(Debug, Clone, Copy)]
pub(super) enum Acknowledgement {
    Ack,
    Nak(Duration),
    Progress,
    Terminate,
}
