//! Brings the traces of a turn into memory: from the store, or from the event log where the store
//! can't be believed.

use std::collections::HashSet;

use shared::{Timestamp, TraceId};

use super::Shard;
use crate::{
    job::{Job, Origin, Work},
    parcel::Parcel,
    rebuild::{self, Rebuilt},
    store::{self, Committed, Loaded, Write},
    trace::Trace,
};

impl Shard {
    /// Returns the jobs that can be decided, and the traces that were loaded just now.
    pub(super) async fn load(&mut self, jobs: Vec<Job>, now: Timestamp) -> (Vec<Job>, HashSet<TraceId>) {
        let mut missing = HashSet::new();
        let mut known_new = HashSet::new();
        for job in &jobs {
            // Only the store knows whether what we believe unsent still is.
            let unsure = matches!(job.work, Work::Wake)
                && self.cache.peek(job.trace_id).is_some_and(|e| e.in_flight == 0 && !e.unsent.is_empty());
            if unsure {
                self.cache.remove(job.trace_id);
            }
            if !self.cache.has(job.trace_id) {
                missing.insert(job.trace_id);
            }
            if matches!(&job.origin, Origin::Submission(submission) if submission.fresh) {
                known_new.insert(job.trace_id);
            }
        }
        if missing.is_empty() {
            return (jobs, missing);
        }
        let ids: Vec<TraceId> = missing.iter().copied().collect();
        let failed = match self.fetch(&ids, &known_new, now).await {
            Ok(failed) => failed,
            Err(error) => {
                tracing::warn!(%error, "traces can't be loaded: nothing is decided");
                missing.clone()
            }
        };
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

    /// Returns those that could not be had.
    async fn fetch(
        &mut self,
        ids: &[TraceId],
        known_new: &HashSet<TraceId>,
        now: Timestamp,
    ) -> Result<HashSet<TraceId>, store::Error> {
        let ground = self.ground.clone();
        let floors: Vec<u64> = ids.iter().map(|id| ground.epoch.floor(ground.partition(*id))).collect();
        let loaded = ground.store.load(ids).await?;
        let mut lost = false;
        for ((id, floor), loaded) in ids.iter().zip(floors).zip(&loaded) {
            lost |= ground.epoch.observe(ground.partition(*id), floor, loaded.counter, now);
        }
        let mut failed = HashSet::new();
        for (id, loaded) in ids.iter().zip(loaded) {
            let believed = !lost && known_new.contains(id) && loaded.record.is_none();
            if let Err(reason) = self.take(*id, loaded, believed, now).await {
                tracing::warn!(trace_id = %id, reason, "a trace can't be had: nothing is decided on it");
                failed.insert(*id);
            }
        }
        Ok(failed)
    }

    /// Puts what was loaded into the cache; what can't be believed, only as its log has it.
    async fn take(
        &mut self,
        id: TraceId,
        loaded: Loaded,
        believed: bool,
        now: Timestamp,
    ) -> Result<(), String> {
        let Loaded { record, .. } = loaded;
        let version = record.as_ref().map_or(0, |record| record.version);
        let stored = match &record {
            None => Ok(Trace::new(id)),
            Some(record) => Trace::from_stored(id, record.version, &record.fields, &record.values),
        };
        let corrupt = stored.is_err();
        let trace = stored.unwrap_or_else(|error| {
            tracing::error!(trace_id = %id, %error, "what is stored of a trace can't be read");
            Trace::new(id)
        });
        let since = self.ground.epoch.since();
        let young = trace.root().is_some_and(|root| root.started_at >= since);
        let rebuilt = if believed || (young && !corrupt) {
            None
        } else {
            rebuild::check(&self.ground.bus, &trace).await.map_err(|error| error.to_string())?
        };
        match rebuilt {
            Some(rebuilt) => self.keep_rebuilt(rebuilt, version, now).await,
            None if corrupt => Err("it is corrupt, and its log is no better".into()),
            None => {
                let unsent = record.iter().flat_map(|record| record.outbox.values());
                let unsent = unsent.filter_map(|text| serde_json::from_str::<Parcel>(text).ok()).collect();
                self.cache.put(trace, unsent);
                Ok(())
            }
        }
    }

    /// Stores a trace that was rebuilt, with all it may never have sent as its outbox, due at once.
    async fn keep_rebuilt(&mut self, rebuilt: Rebuilt, expected: u64, now: Timestamp) -> Result<(), String> {
        let Rebuilt { mut trace, told } = rebuilt;
        let due = Timestamp::from_millis(now.millis().saturating_sub(self.ground.resend_ms()));
        let parcel = Parcel::of_rebuilt(&trace, &told, due);
        let changes = trace.take_changes();
        let write = Write {
            trace_id: trace.id(),
            expected,
            version: trace.version(),
            fields: changes.fields,
            values: changes.values,
            outbox: Some(super::commit::text(&parcel)),
            cleared: Vec::new(),
            timer: Some(now),
            expire_ms: self.expire_ms(&trace),
            opened_at: trace.root().map(|root| root.started_at),
        };
        let committed = self.ground.store.commit(&[write]).await.map_err(|error| error.to_string())?;
        match committed.first() {
            Some(Committed::Done { counter }) => {
                self.ground.epoch.committed(self.ground.partition(trace.id()), *counter);
                self.cache.put(trace, vec![parcel]);
                Ok(())
            }
            Some(Committed::Conflict { .. }) | None => Err("somebody else rebuilt it first".into()),
        }
    }
}
