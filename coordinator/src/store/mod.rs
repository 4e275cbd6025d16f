//! Where traces are stored: opaque strings under a version, written by compare-and-set. The store does not
//! know their meaning and decides nothing. Three implementations with one behaviour (the conformance suite
//! runs on each); only this module knows Redis.
//!
//! After an `Err` it is unknown whether the write happened. That is harmless: load again and compare the version.

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
    AgentVersion, Agents, Committed, Correction, DefaultUser, Durability, Error, Find, Loaded, LogMark,
    Marked, Member, Members, NewMark, OutboxKey, Record, Replaces, Sent, StoreTime, UNREADABLE, Write,
};

/// Whether an error, or the cause of one, is that the server could not be reached or did not do as asked: its connection tells that.
pub(crate) fn is_outage(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(Error::Unavailable { .. })) || redis::is_error(error)
}

#[derive(Debug, Clone)]
pub enum Store {
    Redis(Redis),
    Memory(Memory),
    Disk(Disk),
}

impl Store {
    /// The traces as stored, in the order asked. Each comes with the counter of its partition, read before
    /// the trace: a counter lower than one seen before means that acknowledged writes were lost. Each is as it was at one
    /// moment; a large one that others change all the time is an error that names it.
    pub async fn load(&self, traces: &[TraceId]) -> Result<Vec<Loaded>, Error> {
        measured("load", async {
            match self {
                Store::Redis(redis) => redis.load(traces).await,
                Store::Memory(memory) => memory.ask("load traces", traces, Memory::load).await,
                Store::Disk(disk) => disk.load(traces),
            }
        })
        .await
    }

    /// Each write is all or nothing, and happens only if the trace has the version it expects. All writes
    /// together are one round trip. The answers are in the order of the writes.
    pub async fn commit(&self, writes: &[Write]) -> Result<Vec<Committed>, Error> {
        let reserved = |name: &str| [keys::VERSION, keys::INDEX].contains(&name) || keys::is_beside(name);
        debug_assert!(writes.iter().flat_map(|write| &write.fields).all(|(name, _)| !reserved(name)));
        measured("commit", async {
            match self {
                Store::Redis(redis) => redis.commit(writes).await,
                Store::Memory(memory) => memory.ask("commit", writes, Memory::commit).await,
                Store::Disk(disk) => disk.commit(writes).await,
            }
        })
        .await
    }

    /// Clears outboxes that were sent, and sets the timer if the trace still has the given version and stamp. A trace
    /// that is gone has version 0: so its timer can be removed too.
    pub async fn sent(&self, sent: &[Sent]) -> Result<(), Error> {
        let sent = async {
            match self {
                Store::Redis(redis) => redis.sent(sent).await?,
                Store::Memory(memory) => memory.ask("clear outboxes", sent, Memory::sent).await?,
                Store::Disk(disk) => disk.sent(sent).await?,
            }
            Ok(())
        };
        measured("sent", sent).await
    }

    /// Traces whose timer is due, the longest due first, at most `limit` of each partition.
    pub async fn due(
        &self,
        partitions: &[Partition],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        measured("due", async {
            match self {
                Store::Redis(redis) => redis.due(partitions, now, limit).await,
                Store::Memory(memory) => {
                    let due = move |memory: &Memory, partitions: &[_]| memory.due(partitions, now, limit);
                    memory.ask("find due timers", partitions, due).await
                }
                Store::Disk(disk) => disk.due(partitions, now, limit),
            }
        })
        .await
    }

    /// Traces that ended at this time or before, the first to end first, at most `limit` of each partition.
    pub async fn ended(
        &self,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        match self {
            Store::Redis(redis) => redis.ended(partitions, until, limit).await,
            Store::Memory(memory) => {
                let ended = move |memory: &Memory, partitions: &[_]| memory.ended(partitions, until, limit);
                memory.ask("find ended traces", partitions, ended).await
            }
            Store::Disk(disk) => disk.ended(partitions, until, limit),
        }
    }

    /// Sets the timer of a trace that has one, whatever is stored of it.
    pub async fn delay(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        match self {
            Store::Redis(redis) => redis.delay(trace, until).await,
            Store::Memory(memory) => {
                let delay = move |memory: &Memory, trace: &TraceId| memory.delay(*trace, until);
                memory.ask("delay a timer", &trace, delay).await
            }
            Store::Disk(disk) => disk.delay(trace, until).await,
        }
    }

    /// Lists an ended trace as one that ended at this time.
    pub async fn put_off(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        match self {
            Store::Redis(redis) => redis.put_off(trace, until).await,
            Store::Memory(memory) => {
                let put_off = move |memory: &Memory, trace: &TraceId| memory.put_off(*trace, until);
                memory.ask("put off a removal", &trace, put_off).await
            }
            Store::Disk(disk) => disk.put_off(trace, until).await,
        }
    }

    /// Removes a trace and all that is kept with it, if it still has the version and no timer (something to send); tells
    /// whether it was removed. Version 0: the trace is gone already, and is only taken from the lists.
    pub async fn remove(&self, trace: TraceId, version: u64) -> Result<bool, Error> {
        match self {
            Store::Redis(redis) => redis.remove(trace, version).await,
            Store::Memory(memory) => {
                let remove = move |memory: &Memory, trace: &TraceId| memory.remove(*trace, version);
                memory.ask("remove a trace", &trace, remove).await
            }
            Store::Disk(disk) => disk.remove(trace, version).await,
        }
    }

    /// Notes that traces are submitted as branches of another one. The note is kept until that one is removed.
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

    /// The traces that were noted as branches of this one, sorted. Some may never have begun.
    pub async fn branches(&self, of: TraceId) -> Result<Vec<TraceId>, Error> {
        match self {
            Store::Redis(redis) => redis.branches(of).await,
            Store::Memory(memory) => {
                memory.ask("list branches", &of, |memory, of| memory.branches(*of)).await
            }
            Store::Disk(disk) => disk.branches(of),
        }
    }

    /// The clock of record, and its correction.
    pub async fn time(&self) -> Result<StoreTime, Error> {
        match self {
            Store::Redis(redis) => redis.time().await,
            Store::Memory(memory) => memory.ask("read the clock", &(), |memory, ()| memory.time()).await,
            Store::Disk(disk) => disk.time(),
        }
    }

    /// Proposes a correction of the clock; nothing happens if there is one of its number.
    pub async fn correct_time(&self, correction: Correction) -> Result<(), Error> {
        match self {
            Store::Redis(redis) => redis.correct_time(correction).await,
            Store::Memory(memory) => {
                let correct = |memory: &Memory, correction: &Correction| memory.correct_time(*correction);
                memory.ask("correct the clock", &correction, correct).await
            }
            Store::Disk(disk) => disk.correct_time(correction).await,
        }
    }

    /// Records a heartbeat of a coordinator. Those whose heartbeat is younger than `ttl_ms` are alive, itself included.
    pub async fn heartbeat(&self, coordinator: &Member, ttl_ms: u64) -> Result<Members, Error> {
        measured("heartbeat", async {
            match self {
                Store::Redis(redis) => redis.heartbeat(coordinator, ttl_ms).await,
                Store::Memory(memory) => {
                    let beat = move |memory: &Memory, coordinator: &_| memory.heartbeat(coordinator, ttl_ms);
                    memory.ask("record a heartbeat", coordinator, beat).await
                }
                Store::Disk(disk) => Ok(disk.heartbeat(coordinator, ttl_ms)),
            }
        })
        .await
    }

    pub async fn leave(&self, coordinator: &Member) -> Result<(), Error> {
        match self {
            Store::Redis(redis) => redis.leave(coordinator).await?,
            Store::Memory(memory) => memory.ask("leave", coordinator, Memory::leave).await?,
            Store::Disk(disk) => disk.leave(coordinator),
        }
        Ok(())
    }

    /// All agent profiles, as they were at one moment.
    pub async fn agents(&self) -> Result<Agents, Error> {
        match self {
            Store::Redis(redis) => redis.agents().await,
            Store::Memory(memory) => memory.ask("read the agents", &(), |memory, ()| memory.agents()).await,
            Store::Disk(disk) => disk.agents(),
        }
    }

    pub async fn agents_revision(&self) -> Result<u64, Error> {
        match self {
            Store::Redis(redis) => redis.agents_revision().await,
            Store::Memory(memory) => {
                memory
                    .ask("read the revision of the agents", &(), |memory, ()| memory.agents_revision())
                    .await
            }
            Store::Disk(disk) => disk.agents_revision(),
        }
    }

    /// Replaces what is earlier than these versions, atomically. If anything changed, the revision rises, and it is at
    /// least `at_least`. Then every partition knows the revision: a commit decided with an earlier one is refused. Returns
    /// the revision.
    pub async fn apply_agents(&self, versions: &[AgentVersion], at_least: u64) -> Result<u64, Error> {
        match self {
            Store::Redis(redis) => redis.apply_agents(versions, at_least).await,
            Store::Memory(memory) => {
                let apply = move |memory: &Memory, versions: &[_]| memory.apply_agents(versions, at_least);
                memory.ask("store agents", versions, apply).await
            }
            Store::Disk(disk) => disk.apply_agents(versions, at_least).await,
        }
    }

    /// The runs over all partitions that the index lists so, newest first: fewer than the limit only if there are no more.
    pub async fn find(&self, find: &Find) -> Result<Vec<(TraceId, Timestamp)>, Error> {
        measured("find", async {
            match self {
                Store::Redis(redis) => redis.find(find).await,
                Store::Memory(memory) => memory.ask("find runs", find, Memory::find).await,
                Store::Disk(disk) => disk.find(find),
            }
        })
        .await
    }

    /// Traces of the index whose id begins with these hex digits, in order, at most `limit`.
    pub async fn with_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<TraceId>, Error> {
        match self {
            Store::Redis(redis) => redis.with_prefix(prefix, limit).await,
            Store::Memory(memory) => {
                let find = move |memory: &Memory, prefix: &str| memory.with_prefix(prefix, limit);
                memory.ask("find traces by their ids", prefix, find).await
            }
            Store::Disk(disk) => disk.with_prefix(prefix, limit),
        }
    }

    /// How many runs are listed.
    pub async fn run_count(&self) -> Result<u64, Error> {
        match self {
            Store::Redis(redis) => redis.run_count().await,
            Store::Memory(memory) => memory.ask("count runs", &(), |memory, ()| memory.run_count()).await,
            Store::Disk(disk) => disk.run_count(),
        }
    }

    /// The versions of traces; 0 for a trace that does not exist.
    pub async fn versions(&self, traces: &[TraceId]) -> Result<Vec<u64>, Error> {
        match self {
            Store::Redis(redis) => redis.versions(traces).await,
            Store::Memory(memory) => memory.ask("read versions", traces, Memory::versions).await,
            Store::Disk(disk) => disk.versions(traces),
        }
    }

    /// The number of commits in each partition, in the order asked.
    pub async fn counters(&self, partitions: &[Partition]) -> Result<Vec<u64>, Error> {
        measured("counters", async {
            match self {
                Store::Redis(redis) => redis.counters(partitions).await,
                Store::Memory(memory) => memory.ask("read counters", partitions, Memory::counters).await,
                Store::Disk(disk) => disk.counters(partitions),
            }
        })
        .await
    }

    /// Up to where the event log is in each partition, in the order asked.
    pub async fn log_marks(&self, partitions: &[Partition]) -> Result<Vec<LogMark>, Error> {
        match self {
            Store::Redis(redis) => redis.log_marks(partitions).await,
            Store::Memory(memory) => memory.ask("read marks", partitions, Memory::log_marks).await,
            Store::Disk(disk) => disk.log_marks(partitions),
        }
    }

    /// Sets each mark whose partition is as it was seen. The answers are in the order of the marks.
    pub async fn set_log_marks(&self, marks: &[NewMark]) -> Result<Vec<Marked>, Error> {
        match self {
            Store::Redis(redis) => redis.set_log_marks(marks).await,
            Store::Memory(memory) => memory.ask("set marks", marks, Memory::set_log_marks).await,
            Store::Disk(disk) => disk.set_log_marks(marks).await,
        }
    }

    /// Some fields of many traces, as far as they exist.
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
                Store::Disk(disk) => disk.fields(traces, fields),
            }
        })
        .await
    }

    /// The first coordinator of a deployment fixes its partition count. A coordinator with another count
    /// would look for traces in the wrong partitions.
    pub async fn settle_partitions(&self, count: u16) -> Result<(), Error> {
        let found = match self {
            Store::Redis(redis) => redis.settle_partitions(count).await?,
            Store::Memory(memory) => {
                let settle = |memory: &Memory, count: &u16| memory.settle_partitions(*count);
                memory.ask("settle the partitions", &count, settle).await?
            }
            Store::Disk(disk) => disk.settle_partitions(count).await?,
        };
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

    /// The permissions of the user as which Redis replays its append-only file; unrestricted in other stores.
    pub async fn default_user(&self) -> Result<DefaultUser, Error> {
        match self {
            Store::Redis(redis) => redis.default_user().await,
            Store::Memory(_) | Store::Disk(_) => Ok(DefaultUser::Unrestricted),
        }
    }
}
