//! The keys of the rows of one stream. They are made only in this file.

use disk::{Error, Key, Kind, Reader, Rows};
use domain::subject::Namespace;

use crate::topology::Stream;

/// Makes the keys of the rows of one stream.
#[derive(Debug, Clone)]
pub(super) struct Log {
    number: u8,
    pub(super) namespace: Namespace,
}

/// The totals of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    /// The sequence of the last message that was stored.
    pub(super) last: u64,
    pub(super) bytes: u64,
}

impl Log {
    pub(super) fn new(stream: Stream, namespace: &Namespace) -> Log {
        // These numbers never change, because they are stored on disk.
        let number = match stream {
            Stream::Intake => 1,
            Stream::Execute => 2,
            Stream::Report => 3,
            Stream::Event => 4,
            Stream::History => 5,
            Stream::Dead => 6,
            Stream::Profile => 7,
            Stream::Schedule => 8,
            Stream::Graph => 9,
            Stream::Audit => 10,
            Stream::Span => 11,
            Stream::Webhook => 12,
        };
        Log { number, namespace: namespace.clone() }
    }

    pub(super) fn rows(&self, kind: Kind) -> Key {
        Key::new(kind).byte(self.number)
    }

    pub(super) fn message(&self, sequence: u64) -> Key {
        self.rows(Kind::Message).number(sequence)
    }

    pub(super) fn of_subject(&self, subject: &str) -> Key {
        self.rows(Kind::Subject).name(subject)
    }

    pub(super) fn head(&self, rows: &impl Rows) -> Result<Head, Error> {
        let Some(value) = rows.get(&self.rows(Kind::Stream))? else { return Ok(Head::default()) };
        let mut reader = Reader::new(&value);
        Ok(Head { last: reader.number()?, bytes: reader.number()? })
    }
}
