//! Loads the traces of a turn: from the store, or from the event log where the store can't be trusted.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use futures_util::StreamExt;
use shared::{Timestamp, TraceId};

use super::{
    Shard,
    cache::Entry,
    job::{Job, Origin, Work},
    outbox::Outbox,
    rebuild::{self, Rebuilt},
};
use crate::{
    branches,
    store::{self, Committed, Loaded, OutboxKey, Sent, Write},
    trace::Trace,
};

/// Traces loaded in one pipeline, apart from large ones: few enough that they arrive before the timeout.
const LOAD_BATCH: usize = 128;
/// Logs read at once.
const LOGS_AT_ONCE: usize = 32;
/// How often a trace is loaded that others commit to meanwhile.
const MAX_LOADS: usize = 5;
/// Delay before a trace that could not be loaded is tried again.
const RETRY_LOAD_MS: u64 = 30_000;

/// A trace as it was loaded.
struct Found {
    trace: Trace,
    /// The version in the store; not the trace's own if the trace could not be read.
    version: u64,
    unsent: Vec<Arc<Outbox>>,
    corrupt: bool,
}

/// What did not come of loading traces.
struct Fetched {
    /// Those that can't be loaded.
    not_had: HashSet<TraceId>,
    /// Those that others committed to while their log was read: to be loaded again.
    moved_on: Vec<TraceId>,
}

impl Shard {
    /// Returns the jobs that can be decided, and the traces that were loaded for them.
    pub(super) async fn load(&mut self, jobs: Vec<Job>, now: Timestamp) -> (Vec<Job>, BTreeSet<TraceId>) {
        let mut missing = BTreeSet::new();
        let (mut known_new, mut doubted, mut compared) = (HashSet::new(), HashSet::new(), HashSet::new());
        for job in &jobs {
            if job.refused && self.is_behind(job.trace_id).await {
                doubted.insert(job.trace_id);
                self.cache.remove(job.trace_id);
            }
            // What we remember may be what the store has lost, or lack what it had.
            let sweeps = matches!(job.origin, Origin::Sweep(_));
            if matches!(&job.origin, Origin::Sweep(swept) if swept.whole) {
                compared.insert(job.trace_id);
            }
            match self.cache.peek(job.trace_id) {
                None if sweeps => drop(doubted.insert(job.trace_id)),
                Some(entry) if (sweeps || entry.doubted) && entry.in_flight == 0 => {
                    self.cache.remove(job.trace_id);
                    doubted.insert(job.trace_id);
                }
                Some(entry) => entry.doubted |= sweeps,
                None => {}
            }
            // Only the store knows whether our unsent outboxes are still unsent. And if it wakes a trace for which we know
            // of nothing due, it may have lost that we cleared one.
            let delays = self.handles.delays();
            let doubtful = |entry: &mut Entry| {
                let idle = entry.stored_timer(delays).is_none_or(|timer| timer > now);
                entry.in_flight == 0 && (idle || !entry.unsent.is_empty())
            };
            let unsure =
                matches!(job.work, Work::Wake(_)) && self.cache.peek(job.trace_id).is_some_and(doubtful);
            if unsure {
                self.cache.remove(job.trace_id);
                // The log is asked too: what we send again would hide, as its last message, that the store is behind.
                doubted.insert(job.trace_id);
            }
            if let Origin::Submission(submission) = &job.origin {
                let swept = || self.handles.epoch.trusts_absence(self.handles.partition(job.trace_id));
                let absent = submission.fresh || submission.comes_first && swept();
                if absent {
                    known_new.insert(job.trace_id);
                }
                // Nearly always the trace is new. If it is not, the commit fails and the trace is loaded.
                if absent && job.tries == 0 && !self.cache.has(job.trace_id) {
                    self.cache.put(Trace::new(job.trace_id), Vec::new());
                }
            }
            if !self.cache.has(job.trace_id) {
                missing.insert(job.trace_id);
            }
        }
        if missing.is_empty() {
            return (jobs, missing);
        }
        let ids: Vec<TraceId> = missing.iter().copied().collect();
        let mut failed = HashSet::new();
        for some in ids.chunks(LOAD_BATCH) {
            let known_new = known_new.difference(&doubted).copied().collect();
            let mut some = some.to_vec();
            for _ in 0..MAX_LOADS {
                match self.fetch(&some, &known_new, &doubted, &compared, now).await {
                    Ok(Fetched { not_had, moved_on }) => {
                        failed.extend(not_had);
                        some = moved_on;
                    }
                    // The others are loaded without it.
                    Err(error @ store::Error::MovedOn { trace_id }) => {
                        tracing::warn!(%error, "a trace can't be loaded; its jobs are answered as unavailable");
                        failed.insert(trace_id);
                        some.retain(|id| *id != trace_id);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "traces can't be loaded; their jobs are answered as unavailable");
                        failed.extend(std::mem::take(&mut some));
                    }
                }
                if some.is_empty() {
                    break;
                }
            }
            failed.extend(some);
        }
        let mut ready = Vec::with_capacity(jobs.len());
        for job in jobs {
            if failed.contains(&job.trace_id) {
                self.unavailable(job).await;
            } else {
                ready.push(job);
            }
        }
        (ready, missing)
    }

    /// Whether the log may have commits that we don't know of.
    async fn is_behind(&mut self, id: TraceId) -> bool {
        match self.cache.peek(id).map(|entry| (entry.in_flight, entry.trace.made())) {
            Some((0, made)) => rebuild::last_made(&self.handles.bus, id).await > Some(made),
            Some(_) => false,
            None => true,
        }
    }

    async fn fetch(
        &mut self,
        ids: &[TraceId],
        known_new: &HashSet<TraceId>,
        doubted: &HashSet<TraceId>,
        compared: &HashSet<TraceId>,
        now: Timestamp,
    ) -> Result<Fetched, store::Error> {
        let handles = self.handles.clone();
        let floors: Vec<u64> = ids.iter().map(|id| handles.epoch.floor(handles.partition(*id))).collect();
        let loaded = handles.store.load(ids).await?;
        for ((id, floor), loaded) in ids.iter().zip(floors).zip(&loaded) {
            handles.epoch.observe(handles.partition(*id), floor, loaded.counter, now);
        }
        let mut failed = BTreeMap::new();
        let mut doubtful = Vec::new();
        for (id, loaded) in ids.iter().zip(loaded) {
            let found = read(*id, loaded);
            if !doubted.contains(id) && self.trusts(&found, known_new) {
                self.keep(found.trace, found.unsent, now);
            } else {
                doubtful.push(found);
            }
        }
        let lost_at = handles.epoch.lost_at();
        let checks = doubtful.into_iter().map(|found| async {
            // What began after the loss was not lost.
            let began = found.trace.root().map(|root| root.started_at);
            let lost_at = lost_at.filter(|lost_at| began.is_none_or(|began| began <= *lost_at));
            let lost_at = if compared.contains(&found.trace.id()) { Some(now) } else { lost_at };
            let checked =
                rebuild::check(&handles, &found.trace, found.version, &found.unsent, lost_at, now).await;
            (found, checked)
        });
        let checked: Vec<_> =
            futures_util::stream::iter(checks).buffer_unordered(LOGS_AT_ONCE).collect().await;
        let mut moved_on = Vec::new();
        for (found, checked) in checked {
            let (id, version) = (found.trace.id(), found.version);
            // Another coordinator may have committed since it was read: the log then has more, and nothing is lost.
            let is_ahead = matches!(checked, Ok(Some(_)) | Err(rebuild::Error::Gap(_)));
            if is_ahead && handles.store.versions(&[id]).await? != [version] {
                moved_on.push(id);
                continue;
            }
            let kept = match checked {
                Ok(Some(rebuilt)) if rebuilt.trace.version() > version => {
                    self.keep_rebuilt(rebuilt, found, now).await
                }
                // It was read in doubt only, and goes on without the log.
                Err(rebuild::Error::Bus(_)) if self.trusts(&found, known_new) => {
                    self.keep(found.trace, found.unsent, now);
                    Ok(())
                }
                // What is stored goes on, whatever its log says.
                Err(error @ (rebuild::Error::Contradicts | rebuild::Error::Unreadable(_)))
                    if !found.corrupt && version > 0 =>
                {
                    tracing::error!(trace_id = %id, %error, "the event log of a trace can't be read; it can't be rebuilt if the store is lost");
                    self.keep(found.trace, found.unsent, now);
                    Ok(())
                }
                Ok(_) if found.corrupt => Err("it is corrupt, and its event log can't rebuild it".into()),
                Ok(_) => {
                    self.keep(found.trace, found.unsent, now);
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = kept {
                failed.insert(id, (reason, version));
            }
        }
        self.postpone(&failed, now).await;
        Ok(Fetched { not_had: failed.into_keys().collect(), moved_on })
    }

    /// Whether a loaded trace can be decided on without comparing it with the event log.
    fn trusts(&self, found: &Found, known_new: &HashSet<TraceId>) -> bool {
        let epoch = &self.handles.epoch;
        let partition = self.handles.partition(found.trace.id());
        match found.trace.root().map(|root| root.started_at) {
            _ if found.corrupt => false,
            Some(began) => epoch.trusts(partition, began),
            // Whoever speaks of a trace that is not there may know it: the store may have lost it.
            None => found.version == 0 && known_new.contains(&found.trace.id()),
        }
    }

    fn keep(&mut self, mut trace: Trace, unsent: Vec<Arc<Outbox>>, now: Timestamp) {
        trace.renewed_by(self.handles.epoch.since(self.handles.partition(trace.id())).unwrap_or(now));
        self.cache.put(trace, unsent);
    }

    /// Nothing is decided on a trace that can't be loaded. Its timer is moved ahead, so that it is not
    /// tried at every timer round.
    async fn postpone(&mut self, failed: &BTreeMap<TraceId, (String, u64)>, now: Timestamp) {
        if failed.is_empty() {
            return;
        }
        let later = |(id, (reason, version)): (&TraceId, &(String, u64))| {
            tracing::error!(trace_id = %id, reason, "a trace can't be loaded; nothing is decided on it");
            let timer = (*version > 0).then(|| now.plus_millis(RETRY_LOAD_MS));
            Sent {
                trace_id: *id,
                outboxes: Vec::new(),
                version: Some(*version),
                stamp: None,
                timer,
                all: false,
            }
        };
        let sent: Vec<Sent> = failed.iter().map(later).collect();
        if let Err(error) = self.handles.store.sent(&sent).await {
            tracing::warn!(%error, "the timers of traces that can't be loaded could not be moved ahead");
        }
    }

    /// Stores a rebuilt trace. Its outbox has everything that may never have been sent, and is due at once.
    async fn keep_rebuilt(&mut self, rebuilt: Rebuilt, found: Found, now: Timestamp) -> Result<(), String> {
        let Rebuilt { mut trace, messages, published, rest } = rebuilt;
        let due = Timestamp::from_millis(now.millis().saturating_sub(self.handles.resend_ms()));
        let outbox = Arc::new(Outbox::of_rebuilt(&trace, messages, &published, due));
        let changes = trace.take_changes();
        let write = Write {
            trace_id: trace.id(),
            expected: found.version,
            stamp: found.trace.stamp(),
            version: trace.version(),
            replaces: true,
            fields: changes.fields,
            values: changes.values,
            outbox: Some((outbox.key(), super::commit::text(&*outbox))),
            cleared: Vec::new(),
            timer: Some(now),
            ended_at: super::commit::ended_at(&trace, now),
            opened_at: trace.root().map(|root| root.started_at),
            profiles: None,
            index: changes.index,
        };
        let origin = trace.branches_from().map(|from| from.trace_id);
        for from in origin.into_iter().chain(trace.rerun_of().into_iter().flat_map(branches::needed_by)) {
            let noted = branches::note(&self.handles, from, &[trace.id()]).await;
            noted.map_err(|error| error.to_string())?;
        }
        let home = self.handles.partition(trace.id());
        let floor = self.handles.epoch.floor(home);
        let committed = self.handles.store.commit(&[write]).await.map_err(|error| error.to_string())?;
        match committed.first() {
            Some(Committed::Done { counter }) => {
                self.handles.epoch.committed(home, floor, *counter, now);
                tracing::warn!(trace_id = %trace.id(), from = found.version, to = trace.version(), left_out = ?rest, "a trace was rebuilt from the event log");
                let unsent = found.unsent.into_iter().chain([outbox]).collect();
                self.keep(trace, unsent, now);
                Ok(())
            }
            Some(Committed::Conflict { .. } | Committed::Outdated { .. }) | None => {
                Err("another coordinator rebuilt it first".into())
            }
        }
    }
}

/// Reads a stored trace. One that can't be read may still be rebuilt from its event log.
fn read(id: TraceId, loaded: Loaded) -> Found {
    let Some(record) = loaded.record else {
        return Found { trace: Trace::new(id), version: 0, unsent: Vec::new(), corrupt: false };
    };
    let outbox = |(key, text): (&OutboxKey, &String)| {
        serde_json::from_str::<Outbox>(text).map(|outbox| Arc::new(outbox.stored_as(*key)))
    };
    let unsent: Result<Vec<_>, _> = record.outbox.iter().map(outbox).collect();
    let version = record.version;
    let unsent = match unsent {
        Ok(unsent) => unsent,
        Err(error) => {
            tracing::error!(trace_id = %id, %error, "an outbox of a stored trace can't be read; trying its event log");
            return Found { trace: Trace::new(id), version, unsent: Vec::new(), corrupt: true };
        }
    };
    match Trace::from_stored(id, version, &record.fields, &record.values) {
        Ok(trace) => Found { trace, version, unsent, corrupt: false },
        Err(error) => {
            tracing::error!(trace_id = %id, %error, "a stored trace can't be read; trying its event log");
            Found { trace: Trace::new(id), version, unsent, corrupt: true }
        }
    }
}
