//! Loads the traces of a turn: from the store, or from the event log where the store may have lost
//! writes.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, atomic::Ordering},
};

use domain::{Timestamp, TraceId};
use futures_util::StreamExt;
use trace::Trace;

use super::{
    Shard,
    cache::Entry,
    job::{Job, Origin, Work},
    outbox::Outbox,
    rebuild::{self, Rebuilt},
};
use crate::{
    dependents, error_log,
    sealed::{Broken, OpenResult as Stored, Seal},
    store::{self, CommitOutcome, OutboxKey, Replaces, SentOutboxes, Write},
};

/// Traces loaded in one pipeline, apart from large ones: few enough to arrive before the timeout.
const LOAD_BATCH: usize = 128;
/// Logs read at the same time.
const LOGS_AT_ONCE: usize = 32;
/// The most loads of a trace to which another coordinator commits meanwhile.
const MAX_LOADS: usize = 5;
/// Delay before a trace that could not be loaded is tried again.
const RETRY_LOAD_MS: u64 = 30_000;

/// The reason for deciding nothing on data that a coordinator with other keys may have written.
const FOREIGN: &str = "its stored state has no code, or a code of a key that is not known here: perhaps a coordinator \
    with other keys wrote it";

/// A trace as it was loaded.
struct FoundTrace {
    trace: Trace,
    /// The version in the store; differs from the trace's own version if the trace could not be
    /// read.
    version: u64,
    unsent: Vec<Arc<Outbox>>,
    seal: Seal,
    /// The reason that the stored trace can't be used.
    fault: Option<Fault>,
    /// Outboxes that can't be used.
    refused: Vec<OutboxKey>,
    /// The stored data can't be read as a trace: none of it is used.
    damaged: bool,
}

/// The fault of a stored trace.
#[derive(Debug)]
enum Fault {
    Corrupt,
    /// It is not authentic, or not a trace.
    Forged,
    /// A coordinator with other keys, or none, may have written it.
    Foreign,
    /// Only outboxes are invalid. Holds the trace itself, for the case that its log can't rebuild
    /// it.
    Outbox(Box<(Trace, Seal)>),
}

impl FoundTrace {
    /// The version that a rebuilt trace has to pass, so that a reader can't take one for the other.
    /// A trace that is not authentic may have any number; the times at which the two were made
    /// distinguish them.
    fn version_to_pass(&self) -> u64 {
        if matches!(self.fault, Some(Fault::Forged)) { 0 } else { self.version }
    }
}

/// The reason that a trace can't be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadFailure {
    Unavailable,
    NotAuthentic,
    /// The store has no data of it, and its log has no authentic message.
    Unknown,
}

/// The traces of a batch that could not be loaded.
struct LoadBatch {
    not_had: BTreeMap<TraceId, LoadFailure>,
    /// Traces to which another coordinator committed while their log was read: to be loaded again.
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
            // The cache may have commits that the store has lost, or lack commits that the store
            // had.
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
            // Only the store knows whether our unsent outboxes are still unsent. If the store wakes
            // a trace that has no due timer in the cache, the store may have lost the write that
            // cleared an outbox.
            let delays = self.handles.delays();
            let doubtful = |entry: &mut Entry| {
                let idle = entry.stored_timer(delays).is_none_or(|timer| timer > now);
                entry.in_flight == 0 && (idle || !entry.unsent.is_empty())
            };
            let unsure =
                matches!(job.work, Work::Wake(_)) && self.cache.peek(job.trace_id).is_some_and(doubtful);
            if unsure {
                self.cache.remove(job.trace_id);
                // The log is compared too. Messages that we send again would become its last
                // messages, and would hide that the store is behind.
                doubted.insert(job.trace_id);
            }
            if let Origin::Submission(submission) = &job.origin {
                let swept = || self.handles.epoch.trusts_absence(self.handles.partition(job.trace_id));
                let absent = submission.fresh || submission.comes_first && swept();
                if absent {
                    known_new.insert(job.trace_id);
                }
                // A submission's trace is nearly always new. If it is not, the commit fails and the
                // trace is loaded.
                if absent
                    && job.tries == 0
                    && !doubted.contains(&job.trace_id)
                    && !self.cache.has(job.trace_id)
                {
                    self.cache.put(
                        Trace::new(job.trace_id),
                        Vec::new(),
                        self.handles.store.seal(job.trace_id),
                    );
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
        let mut failed: BTreeMap<TraceId, LoadFailure> = BTreeMap::new();
        for some in ids.chunks(LOAD_BATCH) {
            let known_new = known_new.difference(&doubted).copied().collect();
            let mut some = some.to_vec();
            for _ in 0..MAX_LOADS {
                match self.fetch(&some, &known_new, &doubted, &compared, now).await {
                    Ok(LoadBatch { not_had, moved_on }) => {
                        failed.extend(not_had);
                        some = moved_on;
                    }
                    // The other traces are loaded without this one.
                    Err(error @ store::Error::MovedOn { trace_id }) => {
                        tracing::warn!(%error, "a trace can't be loaded; its jobs are answered as unavailable");
                        failed.insert(trace_id, LoadFailure::Unavailable);
                        some.retain(|id| *id != trace_id);
                    }
                    Err(error) => {
                        error_log::tell(
                            &error,
                            None,
                            "traces can't be loaded; their jobs are answered as unavailable",
                        );
                        failed.extend(
                            std::mem::take(&mut some).into_iter().map(|id| (id, LoadFailure::Unavailable)),
                        );
                    }
                }
                if some.is_empty() {
                    break;
                }
            }
            failed.extend(some.into_iter().map(|id| (id, LoadFailure::Unavailable)));
        }
        let mut ready = Vec::with_capacity(jobs.len());
        for job in jobs {
            match failed.get(&job.trace_id) {
                // A sweep does not wait for this trace: a stranger could write such entries without
                // end.
                Some(LoadFailure::Unknown) if matches!(job.origin, Origin::Sweep(_)) => {}
                Some(LoadFailure::NotAuthentic | LoadFailure::Unknown) => self.not_authentic(job).await,
                Some(LoadFailure::Unavailable) => self.unavailable(job).await,
                None => ready.push(job),
            }
        }
        (ready, missing)
    }

    /// Returns true if the log may have commits that the cache lacks.
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
    ) -> Result<LoadBatch, store::Error> {
        let handles = self.handles.clone();
        let floors: Vec<u64> = ids.iter().map(|id| handles.epoch.floor(handles.partition(*id))).collect();
        let loaded = handles.store.load(ids).await?;
        for ((id, floor), loaded) in ids.iter().zip(floors).zip(&loaded) {
            handles.epoch.observe(handles.partition(*id), floor, loaded.counter, now);
        }
        let (mut failed, mut not_had) = (BTreeMap::new(), BTreeMap::new());
        let (mut doubtful, mut moved_on) = (Vec::new(), Vec::new());
        for (id, loaded) in ids.iter().zip(loaded) {
            let Some(found) = self.read(*id, loaded.found).await? else {
                moved_on.push(*id);
                continue;
            };
            if let Some(Fault::Foreign) = found.fault {
                not_had.insert(*id, LoadFailure::NotAuthentic);
                failed.insert(*id, (FOREIGN.to_owned(), found.version));
            } else if !doubted.contains(id) && self.trusts(&found, known_new) {
                self.keep(found, now);
            } else {
                doubtful.push(found);
            }
        }
        let lost_at = handles.epoch.lost_at();
        let checks = doubtful.into_iter().map(|found| async {
            // A trace that began after the loss was not lost.
            let began = found.trace.root().map(|root| root.identity.started_at);
            let lost_at = lost_at.filter(|lost_at| began.is_none_or(|began| began <= *lost_at));
            let lost_at = if compared.contains(&found.trace.id()) { Some(now) } else { lost_at };
            let passes = found.version_to_pass();
            let checked = rebuild::check(&handles, &found.trace, passes, &found.unsent, lost_at, now).await;
            (found, checked)
        });
        let checked: Vec<_> =
            futures_util::stream::iter(checks).buffer_unordered(LOGS_AT_ONCE).collect().await;
        for (found, checked) in checked {
            let (id, version, damaged) = (found.trace.id(), found.version, found.damaged);
            // Another coordinator may have committed after the read: the log then has more than was
            // loaded, and nothing is lost.
            let is_ahead =
                matches!(checked, Ok(Some(_)) | Err(rebuild::Error::Gap(_) | rebuild::Error::Foreign));
            if is_ahead && handles.store.versions(&[id]).await? != [version] {
                moved_on.push(id);
                continue;
            }
            let why_not = match (&checked, &found.fault) {
                (Err(rebuild::Error::Foreign), _) if version == 0 && !damaged => LoadFailure::Unknown,
                (Err(rebuild::Error::Foreign), _) | (_, Some(Fault::Forged)) => LoadFailure::NotAuthentic,
                (_, _) => LoadFailure::Unavailable,
            };
            let kept = match checked {
                Ok(Some(rebuilt)) if rebuilt.trace.version() > found.version_to_pass() => {
                    self.keep_rebuilt(rebuilt, found, now).await
                }
                // The bus can't be read. The trace was compared only to be sure, and is used
                // without its log.
                Err(rebuild::Error::Bus(_)) if self.trusts(&found, known_new) => {
                    self.keep(found, now);
                    Ok(())
                }
                // A valid stored trace is used, even if its log can't be read or contradicts
                // itself.
                Err(error @ (rebuild::Error::Contradicts | rebuild::Error::Unreadable(_)))
                    if found.fault.is_none() && version > 0 =>
                {
                    tracing::error!(trace_id = %id, %error, "the event log of a trace can't be read; it can't be rebuilt if the store is lost");
                    self.keep(found, now);
                    Ok(())
                }
                Ok(_) => match found.fault {
                    Some(Fault::Corrupt) => Err("it is corrupt, and its event log can't rebuild it".into()),
                    Some(Fault::Forged | Fault::Foreign) => {
                        Err("its stored state is not authentic, and its event log can't rebuild it".into())
                    }
                    Some(Fault::Outbox(whole)) => {
                        let (trace, seal) = *whole;
                        self.sent.entry(id).or_default().extend(&found.refused);
                        self.keep(FoundTrace { trace, seal, fault: None, ..found }, now);
                        Ok(())
                    }
                    None => {
                        self.keep(found, now);
                        Ok(())
                    }
                },
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = kept {
                not_had.insert(id, why_not);
                if damaged {
                    self.put_off(id, &reason, now).await;
                } else {
                    failed.insert(id, (reason, version));
                }
            }
        }
        self.postpone(&failed, now).await;
        Ok(LoadBatch { not_had, moved_on })
    }

    /// Returns true if a loaded trace can be decided on without comparing it with the event log.
    fn trusts(&self, found: &FoundTrace, known_new: &HashSet<TraceId>) -> bool {
        let epoch = &self.handles.epoch;
        let partition = self.handles.partition(found.trace.id());
        match found.trace.root().map(|root| root.identity.started_at) {
            _ if found.fault.is_some() => false,
            Some(began) => epoch.trusts(partition, began),
            // A request for a missing trace may refer to one that the store has lost.
            None => found.version == 0 && known_new.contains(&found.trace.id()),
        }
    }

    fn keep(&mut self, found: FoundTrace, now: Timestamp) {
        let FoundTrace { mut trace, unsent, seal, .. } = found;
        trace.renewed_by(self.handles.epoch.since(self.handles.partition(trace.id())).unwrap_or(now));
        self.cache.put(trace, unsent, seal);
    }

    /// Postpones the timers of traces that can't be loaded, or whose timers can't be handled. No
    /// decision is made on such a trace, and without the delay every timer round would try it
    /// again.
    pub(super) async fn postpone(&mut self, failed: &BTreeMap<TraceId, (String, u64)>, now: Timestamp) {
        if failed.is_empty() {
            return;
        }
        let later = |(id, (reason, version)): (&TraceId, &(String, u64))| {
            tracing::error!(trace_id = %id, reason, "a trace can't be processed");
            let timer = (*version > 0).then(|| now.plus_millis(RETRY_LOAD_MS));
            SentOutboxes {
                trace_id: *id,
                outboxes: Vec::new(),
                version: Some(*version),
                stamp: None,
                timer,
                keeps_earlier_timer: false,
                all: false,
            }
        };
        let sent: Vec<SentOutboxes> = failed.iter().map(later).collect();
        if let Err(error) = self.handles.store.sent(&sent).await {
            error_log::tell(
                &error,
                None,
                "the timers of traces that can't be loaded could not be moved ahead",
            );
        }
    }

    /// Handles stored data that can't be read as a trace. Its log may rebuild the trace and then
    /// replaces all of the data; otherwise the data stays for an operator to inspect. Returns none
    /// if the data is gone by now.
    async fn damaged(&mut self, id: TraceId, found: &str) -> Result<Option<FoundTrace>, store::Error> {
        tracing::error!(trace_id = %id, found, "the stored data of a trace is invalid; trying its event log");
        self.handles.damaged.fetch_add(1, Ordering::Relaxed);
        let version = self.handles.store.versions(&[id]).await?.first().copied().unwrap_or_default();
        // Loads after reading the version: a writer that replaces the data from now on changes the
        // version.
        let again = self.handles.store.load(&[id]).await?.pop();
        if !again.is_some_and(|again| matches!(again.found, Stored::Damaged(_))) {
            return Ok(None);
        }
        Ok(Some(FoundTrace { version, fault: Some(Fault::Forged), damaged: true, ..self.nothing(id) }))
    }

    /// Postpones the timer of data without a version.
    async fn put_off(&mut self, id: TraceId, reason: &str, now: Timestamp) {
        tracing::error!(trace_id = %id, reason, "a trace can't be processed");
        if let Err(error) = self.handles.store.delay(id, now.plus_millis(RETRY_LOAD_MS)).await {
            error_log::tell(&error, None, "the timer of a trace that can't be read could not be moved ahead");
        }
    }

    /// Stores a rebuilt trace. Its outbox has every message that may never have been sent, and is
    /// due at once.
    async fn keep_rebuilt(
        &mut self,
        rebuilt: Rebuilt,
        found: FoundTrace,
        now: Timestamp,
    ) -> Result<(), String> {
        let Rebuilt { mut trace, messages, published, rest } = rebuilt;
        let due = Timestamp::from_millis(now.millis().saturating_sub(self.handles.resend_ms()));
        let outbox = Arc::new(Outbox::of_rebuilt(&trace, messages, &published, due));
        let changes = trace.take_changes();
        let mut write = Write {
            trace_id: trace.id(),
            expected: found.version,
            stamp: found.trace.stamp(),
            version: trace.version(),
            replaces: if found.damaged { Replaces::Everything } else { Replaces::AllButOutboxes },
            fields: changes.fields,
            values: changes.values,
            outbox: Some((outbox.key(), super::commit::text(&*outbox))),
            cleared: found.refused.clone(),
            timer: Some(now),
            keeps_earlier_timer: false,
            ended_at: super::commit::ended_at(&trace, now),
            opened_at: trace.root().map(|root| root.identity.started_at),
            profiles: None,
            index: changes.index,
        };
        let mut seal = self.handles.store.seal(trace.id());
        seal.close(&mut write);
        let origin = trace.branches_from().map(|from| from.trace_id);
        for from in origin.into_iter().chain(trace.rerun_of().into_iter().flat_map(dependents::needed_by)) {
            let noted = dependents::note(&self.handles, from, &[trace.id()]).await;
            noted.map_err(|error| error.to_string())?;
        }
        let home = self.handles.partition(trace.id());
        let floor = self.handles.epoch.floor(home);
        let committed = self.handles.store.commit(&[write]).await.map_err(|error| error.to_string())?;
        match committed.first() {
            Some(CommitOutcome::Done { counter }) => {
                self.handles.epoch.committed(home, floor, *counter, now);
                tracing::warn!(trace_id = %trace.id(), from = found.version, to = trace.version(), left_out = ?rest, "a trace was rebuilt from the event log");
                let unsent = found.unsent.iter().cloned().chain([outbox]).collect();
                self.keep(FoundTrace { trace, unsent, seal, ..found }, now);
                Ok(())
            }
            Some(CommitOutcome::Conflict { .. } | CommitOutcome::Outdated { .. }) | None => {
                Err("another coordinator rebuilt it first".into())
            }
        }
    }
}

impl Shard {
    fn nothing(&self, id: TraceId) -> FoundTrace {
        FoundTrace {
            trace: Trace::new(id),
            version: 0,
            unsent: Vec::new(),
            seal: self.handles.store.seal(id),
            fault: None,
            refused: Vec::new(),
            damaged: false,
        }
    }

    /// Reads a stored trace. A trace that can't be used may still be rebuilt from its event log.
    /// Returns none if data that was not a trace is gone by now.
    async fn read(&mut self, id: TraceId, stored: Stored) -> Result<Option<FoundTrace>, store::Error> {
        Ok(Some(match stored {
            Stored::Nothing => self.nothing(id),
            Stored::Damaged(found) => return self.damaged(id, &found).await,
            Stored::Whole(record, seal) => {
                let version = record.version;
                let (unsent, refused) = read_outboxes(id, &record.outbox);
                let nothing = FoundTrace { version, unsent, refused, ..self.nothing(id) };
                match Trace::from_stored(id, version, &record.fields, &record.values) {
                    Ok(trace) if nothing.refused.is_empty() => FoundTrace { trace, seal, ..nothing },
                    Ok(trace) => {
                        FoundTrace { fault: Some(Fault::Outbox(Box::new((trace, seal)))), ..nothing }
                    }
                    Err(error) => {
                        tracing::error!(trace_id = %id, %error, "a stored trace can't be read; trying its event log");
                        FoundTrace { fault: Some(Fault::Corrupt), ..nothing }
                    }
                }
            }
            // All coordinators that sent heartbeats have our keys, so a stranger wrote this. If a
            // coordinator wrote it whose heartbeat was forgotten long ago, its commits are in the
            // log, and `rebuild::check` does not rebuild over them.
            Stored::Foreign(broken) if self.handles.policies.all_have_our_keys() => self.refused(id, broken),
            Stored::Foreign(broken) => {
                FoundTrace { version: broken.version, fault: Some(Fault::Foreign), ..self.nothing(id) }
            }
            Stored::Refused(broken) => self.refused(id, broken),
        }))
    }

    fn refused(&self, id: TraceId, broken: Broken) -> FoundTrace {
        let Broken { version, outbox, mut refused, record } = broken;
        let (unsent, unread) = read_outboxes(id, &outbox);
        refused.extend(unread);
        let whole = record.and_then(|(record, seal)| {
            Some((Trace::from_stored(id, version, &record.fields, &record.values).ok()?, seal))
        });
        let fault = whole.map_or(Fault::Forged, |whole| Fault::Outbox(Box::new(whole)));
        FoundTrace { version, unsent, refused, fault: Some(fault), ..self.nothing(id) }
    }
}

/// The outboxes of a stored trace, and the keys of those that can't be read.
fn read_outboxes(id: TraceId, stored: &BTreeMap<OutboxKey, String>) -> (Vec<Arc<Outbox>>, Vec<OutboxKey>) {
    let (mut unsent, mut unread) = (Vec::new(), Vec::new());
    for (key, text) in stored {
        match serde_json::from_str::<Outbox>(text) {
            Ok(outbox) if outbox.key() == *key => unsent.push(Arc::new(outbox)),
            // It could not be cleared under its own name.
            Ok(_) => {
                tracing::error!(trace_id = %id, "an outbox of a stored trace has the name of another; trying its event log");
                unread.push(*key);
            }
            Err(error) => {
                tracing::error!(trace_id = %id, %error, "an outbox of a stored trace can't be read; trying its event log");
                unread.push(*key);
            }
        }
    }
    (unsent, unread)
}
