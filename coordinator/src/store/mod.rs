//! Stores traces: opaque strings under a version, written by compare-and-set. The store does not
//! read their meaning and makes no decisions. Three implementations behave the same (the
//! conformance suite runs on each); only this module uses Redis.
//!
//! After an `Err` the outcome of a write is unknown. That is harmless: the caller loads again and
//! compares the version.

mod disk;
mod keys;
mod measured;
mod memory;
mod record;
mod redis;

use std::collections::HashMap;

use domain::{Timestamp, TraceId, subject::Partition};

pub use self::redis::{COMMANDS, Login, Redis, key_patterns};
pub use disk::Disk;
pub(crate) use keys::INDEX as INDEX_FIELD;
use measured::measured;
pub use memory::{Memory, Snapshot};
pub use record::{
    AgentVersion, Agents, CommitOutcome, Correction, DefaultUser, Durability, Error, Find, LoadedRecord,
    LogMark, MarkOutcome, Member, Members, NewMark, OutboxKey, Record, Replaces, SentOutboxes, StoreTime,
    UNREADABLE, Write,
};

/// Returns true if an error, or its cause, means that the server was unreachable or did not carry
/// out a request. The connection to the server logs such an error.
pub(crate) fn is_outage(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(Error::Unavailable { .. })) || redis::is_error(error)
}

/// Makes one call on the store of a handle. A store in memory answers on the other side of its
/// link, where errors name the call by the text. A borrowed argument, marked by `&`, crosses the
/// link as a copy.
macro_rules! dispatch {
    ($store:expr, $doing:literal, $call:ident(& $about:expr $(, $more:expr)*)) => {
        match $store {
            Store::Redis(redis) => redis.$call($about $(, $more)*).await,
            Store::Memory(memory) => {
                memory.ask($doing, $about, move |memory, about| memory.$call(about $(, $more)*)).await
            }
            Store::Disk(disk) => disk.$call($about $(, $more)*).await,
        }
    };
    ($store:expr, $doing:literal, $call:ident($($given:expr),*)) => {
        match $store {
            Store::Redis(redis) => redis.$call($($given),*).await,
            Store::Memory(memory) => memory.ask($doing, &(), move |memory, ()| memory.$call($($given),*)).await,
            Store::Disk(disk) => disk.$call($($given),*).await,
        }
    };
}

#[derive(Debug, Clone)]
pub enum Store {
    Redis(Redis),
    Memory(Memory),
    Disk(Disk),
}

impl Store {
    /// Loads traces, in the order of the request. Each comes with the counter of its partition,
    /// read before the trace: a counter lower than an earlier one means that acknowledged writes
    /// were lost. Each trace is the state of one moment. A large trace that changes during every
    /// attempt is an error that names it.
    pub async fn load(&self, traces: &[TraceId]) -> Result<Vec<LoadedRecord>, Error> {
        measured("load", async { dispatch!(self, "load traces", load(&traces)) }).await
    }

    /// Commits writes in one round trip. Each write is all or nothing, and happens only if the
    /// trace has the version that the write expects. The answers are in the order of the writes.
    pub async fn commit(&self, writes: &[Write]) -> Result<Vec<CommitOutcome>, Error> {
        let reserved = |name: &str| [keys::VERSION, keys::INDEX].contains(&name) || keys::is_beside(name);
        debug_assert!(writes.iter().flat_map(|write| &write.fields).all(|(name, _)| !reserved(name)));
        measured("commit", async { dispatch!(self, "commit", commit(&writes)) }).await
    }

    /// Clears outboxes that were sent, and sets the timer if the trace still has the given version
    /// and stamp. A missing trace has version 0, so its timer can be removed too.
    pub async fn sent(&self, sent: &[SentOutboxes]) -> Result<(), Error> {
        measured("sent", async { dispatch!(self, "clear outboxes", sent(&sent)) }).await
    }

    /// Traces whose timer is due, the longest due first, at most `limit` of each partition.
    pub async fn due(
        &self,
        partitions: &[Partition],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        measured("due", async { dispatch!(self, "find due timers", due(&partitions, now, limit)) }).await
    }

    /// Traces that ended at this time or before, the first to end first, at most `limit` of each
    /// partition.
    pub async fn ended(
        &self,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        dispatch!(self, "find ended traces", ended(&partitions, until, limit))
    }

    /// Sets the timer of a trace that has one, without checking the trace.
    pub async fn delay(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        dispatch!(self, "delay a timer", delay(trace, until))
    }

    /// Changes the time at which an ended trace is listed as ended.
    pub async fn put_off(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        dispatch!(self, "put off a removal", put_off(trace, until))
    }

    /// Removes a trace and all data stored with it, if it still has the version and no timer (a
    /// timer means that something is left to send). Returns true if it was removed. With version 0
    /// the trace is missing already, and only its list entries are removed.
    pub async fn remove(&self, trace: TraceId, version: u64) -> Result<bool, Error> {
        dispatch!(self, "remove a trace", remove(trace, version))
    }

    /// Records that traces are submitted as branches of another one. The record is kept until that
    /// trace is removed.
    pub async fn add_branches(&self, of: TraceId, by: &[TraceId]) -> Result<(), Error> {
        match self {
            Store::Redis(redis) => redis.add_branches(of, by).await,
            Store::Memory(memory) => {
                let add = move |memory: &Memory, by: &[_]| memory.add_branches(of, by);
                memory.ask("note a branch", by, add).await
            }
            Store::Disk(disk) => disk.add_branches(of, by).await,
        }
    }

    /// The recorded branches of a trace, sorted. Some may never have begun.
    pub async fn branches(&self, of: TraceId) -> Result<Vec<TraceId>, Error> {
        dispatch!(self, "list branches", branches(of))
    }

    /// The store's clock, and its correction.
    pub async fn time(&self) -> Result<StoreTime, Error> {
        dispatch!(self, "read the clock", time())
    }

    /// Proposes a correction of the clock. If a correction with its number exists, nothing changes.
    pub async fn correct_time(&self, correction: Correction) -> Result<(), Error> {
        dispatch!(self, "correct the clock", correct_time(correction))
    }

    /// Records a heartbeat of a coordinator, and returns the members. A coordinator whose heartbeat
    /// is younger than `ttl_ms` is alive; that includes the caller.
    pub async fn heartbeat(&self, coordinator: &Member, ttl_ms: u64) -> Result<Members, Error> {
        measured("heartbeat", async {
            dispatch!(self, "record a heartbeat", heartbeat(&coordinator, ttl_ms))
        })
        .await
    }

    pub async fn leave(&self, coordinator: &Member) -> Result<(), Error> {
        dispatch!(self, "leave", leave(&coordinator))
    }

    /// All agent profiles, at one moment.
    pub async fn agents(&self) -> Result<Agents, Error> {
        dispatch!(self, "read the agents", agents())
    }

    pub async fn agents_revision(&self) -> Result<u64, Error> {
        dispatch!(self, "read the revision of the agents", agents_revision())
    }

    /// Replaces profiles that are earlier than these versions, atomically. If any profile changed,
    /// the revision rises, and it is at least `at_least`. Then every partition gets the revision: a
    /// commit that was decided with an earlier one is rejected. Returns the revision.
    pub async fn apply_agents(&self, versions: &[AgentVersion], at_least: u64) -> Result<u64, Error> {
        dispatch!(self, "store agents", apply_agents(&versions, at_least))
    }

    /// The runs of all partitions that match, newest first: fewer than the limit only if no more
    /// match.
    pub async fn find(&self, find: &Find) -> Result<Vec<(TraceId, Timestamp)>, Error> {
        measured("find", async { dispatch!(self, "find runs", find(&find)) }).await
    }

    /// Traces of the index whose id begins with these hex digits, in order, at most `limit`.
    pub async fn with_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<TraceId>, Error> {
        dispatch!(self, "find traces by their ids", with_prefix(&prefix, limit))
    }

    /// The number of listed runs.
    pub async fn run_count(&self) -> Result<u64, Error> {
        dispatch!(self, "count runs", run_count())
    }

    /// The versions of traces; 0 for a trace that does not exist.
    pub async fn versions(&self, traces: &[TraceId]) -> Result<Vec<u64>, Error> {
        dispatch!(self, "read versions", versions(&traces))
    }

    /// The number of commits in each partition, in the order of the request.
    pub async fn counters(&self, partitions: &[Partition]) -> Result<Vec<u64>, Error> {
        measured("counters", async { dispatch!(self, "read counters", counters(&partitions)) }).await
    }

    /// The marks of partitions, in the order of the request.
    pub async fn log_marks(&self, partitions: &[Partition]) -> Result<Vec<LogMark>, Error> {
        dispatch!(self, "read marks", log_marks(&partitions))
    }

    /// Sets each mark whose partition is still in the state that the mark names as seen. The
    /// answers are in the order of the marks.
    pub async fn set_log_marks(&self, marks: &[NewMark]) -> Result<Vec<MarkOutcome>, Error> {
        dispatch!(self, "set marks", set_log_marks(&marks))
    }

    /// Some fields of many traces; missing fields are left out.
    pub async fn fields(
        &self,
        traces: &[TraceId],
        fields: &[&str],
    ) -> Result<Vec<HashMap<String, String>>, Error> {
        measured("fields", async {
            match self {
                Store::Redis(redis) => redis.fields(traces, fields).await,
                Store::Memory(memory) => {
                    let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
                    let fields = move |memory: &Memory, traces: &[_]| memory.fields(traces, &fields);
                    memory.ask("read fields", traces, fields).await
                }
                Store::Disk(disk) => disk.fields(traces, fields).await,
            }
        })
        .await
    }

    /// The first coordinator of a deployment fixes its partition count. A coordinator with another
    /// count would look for traces in the wrong partitions.
    pub async fn settle_partitions(&self, count: u16) -> Result<(), Error> {
        let found = dispatch!(self, "settle the partitions", settle_partitions(count))?;
        if found == count { Ok(()) } else { Err(Error::Mismatch { found, asked: count }) }
    }

    pub async fn ping(&self) -> Result<(), Error> {
        match self {
            Store::Redis(redis) => redis.ping().await,
            Store::Memory(_) => Ok(()),
            Store::Disk(disk) => disk.ping(),
        }
    }

    pub async fn durability(&self) -> Result<Durability, Error> {
        match self {
            Store::Redis(redis) => redis.durability().await,
            Store::Memory(_) | Store::Disk(_) => Ok(Durability::default()),
        }
    }

    /// The permissions of the user as which Redis replays its append-only file; unrestricted in
    /// other stores.
    pub async fn default_user(&self) -> Result<DefaultUser, Error> {
        match self {
            Store::Redis(redis) => redis.default_user().await,
            Store::Memory(_) | Store::Disk(_) => Ok(DefaultUser::Unrestricted),
        }
    }
}
