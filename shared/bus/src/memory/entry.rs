//! A stored message with its full subject: its size, and its form as a delivery.

use crate::message::{ReceivedMessage, StoredMessage};

/// The bytes that the server adds to a message's size.
const OVERHEAD_BYTES: usize = 30;

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The subject's name on the server, with the namespace.
    pub(crate) subject: String,
    pub(crate) stored: StoredMessage,
}

impl Entry {
    /// The bytes that it adds to the size of its stream.
    pub(crate) fn size(&self) -> usize {
        let headers = self.stored.headers.iter().map(|(name, value)| name.len() + value.len() + 4);
        self.subject.len() + self.stored.payload.len() + headers.sum::<usize>() + OVERHEAD_BYTES
    }

    pub(crate) fn received(self, delivered: u64) -> ReceivedMessage {
        let StoredMessage { headers, payload, sequence, at, .. } = self.stored;
        ReceivedMessage { subject: self.subject, headers, payload, sequence, at, delivered }
    }
}
