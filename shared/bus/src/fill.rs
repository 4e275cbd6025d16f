//! How full the storage of a deployment is: each stream, and the buckets of objects. Plain values.

use std::time::Duration;

use domain::time::Timestamp;

use super::topology::{Stream, Topology};

/// The time for which an answer that is too large for a message can be read.
const ANSWERS_KEPT: Duration = Duration::from_secs(60);
/// The most bytes of all such answers.
const MAX_ANSWER_BYTES: i64 = 512 << 20;

/// The number of deliveries that a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Not delivered yet.
    pub pending: u64,
    /// Delivered and not acknowledged.
    pub unacknowledged: u64,
    /// The time when the oldest undelivered message was stored.
    pub oldest: Option<Timestamp>,
}

/// A part of the storage with a size limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    Stream(Stream),
    Objects,
    /// Objects of coordinators: payloads that are too large for a message. Only coordinators write
    /// there.
    Core,
    /// Answers of coordinators that are too large for a message. The server drops them after a
    /// short time, and drops the oldest when the bucket is full: requests must not fill the storage
    /// that runs need (S6).
    Answers,
}

impl Storage {
    /// The parts that hold objects.
    pub const BUCKETS: [Storage; 3] = [Storage::Objects, Storage::Core, Storage::Answers];

    /// All parts of a deployment.
    pub fn all() -> impl Iterator<Item = Storage> {
        Stream::ALL.into_iter().map(Storage::Stream).chain(Storage::BUCKETS)
    }

    /// Its name, without the namespace.
    pub fn name(self) -> &'static str {
        match self {
            Storage::Stream(stream) => stream.name(),
            Storage::Objects => OBJECTS,
            Storage::Core => CORE_OBJECTS,
            Storage::Answers => "AGENT_ANSWERS",
        }
    }

    /// True for journals and objects, which hold the data of runs until it is removed. A queue
    /// empties by itself, and a message that it rejects is sent again. Here a rejected message
    /// would lose a step that was already paid for.
    pub fn is_kept_for_runs(self) -> bool {
        match self {
            Storage::Stream(Stream::History) | Storage::Objects | Storage::Core => true,
            Storage::Stream(
                Stream::Intake
                | Stream::Execute
                | Stream::Report
                | Stream::Event
                | Stream::Dead
                | Stream::Profile
                | Stream::Schedule
                | Stream::Graph
                | Stream::Audit
                | Stream::Span
                | Stream::Webhook,
            )
            | Storage::Answers => false,
        }
    }

    /// True if it drops its oldest entry when it is full, instead of rejecting the newest.
    pub fn drops_the_oldest(self) -> bool {
        match self {
            Storage::Stream(stream) => stream.drops_the_oldest(),
            Storage::Objects | Storage::Core => false,
            Storage::Answers => true,
        }
    }
}

impl Topology {
    /// The bytes that each server with a copy reserves for all streams and buckets of a deployment.
    pub fn reserved_bytes(&self) -> u64 {
        let streams = Stream::ALL.into_iter().map(|stream| self.max_bytes(stream));
        let buckets = Storage::BUCKETS.into_iter().map(|bucket| self.max_bytes_in(bucket));
        streams.chain(buckets).map(|bytes| u64::try_from(bytes).unwrap_or(0)).sum()
    }

    /// The most bytes of a stream or a bucket.
    pub(super) fn max_bytes_in(&self, storage: Storage) -> i64 {
        match storage {
            Storage::Stream(stream) => self.max_bytes(stream),
            Storage::Objects => self.max_object_bytes.unwrap_or(self.max_log_bytes),
            Storage::Core => self.max_queue_bytes,
            Storage::Answers => self.max_queue_bytes.min(MAX_ANSWER_BYTES),
        }
    }

    /// The age limit of objects: longer than that of the messages that name them. An answer is read
    /// at once, so its limit is short.
    pub(super) fn max_object_age(&self, bucket: Storage) -> Duration {
        match bucket {
            Storage::Answers => ANSWERS_KEPT,
            Storage::Objects | Storage::Core | Storage::Stream(_) => {
                self.keep_logs + self.keep_logs.max(self.keep_journals)
            }
        }
    }
}

pub(super) const OBJECTS: &str = "AGENT_OUTPUTS";
const CORE_OBJECTS: &str = "AGENT_CORE";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    pub storage: Storage,
    pub bytes: u64,
    /// The sequence of its oldest message; `last` is that of its newest.
    pub first: u64,
    pub last: u64,
    /// None: no limit.
    pub max_bytes: Option<u64>,
}

impl Fill {
    /// The used part of the limit, in percent; 0 without a limit.
    pub fn percent(&self) -> u64 {
        self.max_bytes.map_or(0, |max| self.bytes.saturating_mul(100) / max.max(1))
    }
}
