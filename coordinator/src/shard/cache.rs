//! Traces in memory; the least recently used are evicted first. An entry may be outdated: the
//! version in the store decides. An evicted trace costs one load and nothing else: leases that were
//! renewed only in memory are remembered and restored at the load.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use domain::{Timestamp, TraceId};
use trace::{Renewal, Trace};

use super::{outbox::Outbox, turn_metrics::Denials};
use crate::{config::Delays, sealed::Seal, store::SentOutboxes};

/// The memory of a trace beyond its stored text: a run of one agent was measured at 4.6 KB, with
/// 1.1 KB of text.
const EMPTY_BYTES: usize = 4_000;

#[derive(Debug)]
pub(crate) struct Cache {
    entries: HashMap<TraceId, Entry>,
    /// Traces by their last use, ascending.
    order: BTreeMap<u64, TraceId>,
    tick: u64,
    bytes: usize,
    most_bytes: usize,
    /// The renewed leases of traces that are not in the cache.
    renewals: HashMap<TraceId, Vec<Renewal>>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) trace: Trace,
    /// Outboxes that are not known to be sent: the shard's own that are being sent, and those that
    /// were loaded with the trace.
    pub(crate) unsent: Vec<UnsentOutbox>,
    /// The seal of the stored trace.
    pub(crate) seal: Seal,
    /// The trace is to be compared with the log as soon as it has no send in progress.
    pub(crate) doubted: bool,
    /// Number of sends in progress. An entry with sends in progress is not evicted.
    pub(crate) in_flight: u32,
    /// Unsent outboxes are not sent again before this time.
    pub(crate) resend_not_before: Timestamp,
    /// Holds whose denial was already counted.
    pub(crate) denials: Denials,
    used: u64,
    counted: usize,
}

/// An outbox that is not known to be sent.
#[derive(Debug)]
pub(crate) struct UnsentOutbox {
    pub(crate) outbox: Arc<Outbox>,
    /// Its events are in the log; its other messages are not.
    pub(crate) logged: bool,
    /// It is being sent.
    pub(crate) sending: bool,
}

impl From<Arc<Outbox>> for UnsentOutbox {
    fn from(outbox: Arc<Outbox>) -> Self {
        UnsentOutbox { outbox, logged: false, sending: false }
    }
}

impl Cache {
    pub(crate) fn new(most_bytes: usize) -> Self {
        let renewals = HashMap::new();
        Cache { entries: HashMap::new(), order: BTreeMap::new(), tick: 0, bytes: 0, most_bytes, renewals }
    }

    pub(crate) fn has(&self, id: TraceId) -> bool {
        self.entries.contains_key(&id)
    }

    pub(crate) fn put(&mut self, mut trace: Trace, unsent: Vec<Arc<Outbox>>, seal: Seal) {
        let id = trace.id();
        self.remove(id);
        if trace.version() > 0 {
            trace.renew_again(&self.renewals.remove(&id).unwrap_or_default());
        }
        self.entries.insert(
            id,
            Entry {
                trace,
                unsent: unsent.into_iter().map(UnsentOutbox::from).collect(),
                seal,
                doubted: false,
                in_flight: 0,
                resend_not_before: Timestamp::default(),
                denials: Denials::default(),
                used: 0,
                counted: 0,
            },
        );
        self.touch(id);
    }

    /// Returns the entry, and marks it as used.
    pub(crate) fn get(&mut self, id: TraceId) -> Option<&mut Entry> {
        self.touch(id);
        self.entries.get_mut(&id)
    }

    /// Returns the entry, without marking it as used.
    pub(crate) fn peek(&mut self, id: TraceId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(crate) fn remove(&mut self, id: TraceId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.order.remove(&entry.used);
            self.bytes -= entry.counted;
            let renewals = entry.trace.renewals();
            if !renewals.is_empty() {
                self.renewals.insert(id, renewals);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        let ids: Vec<TraceId> = self.entries.keys().copied().collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Drops remembered leases that have expired.
    pub(crate) fn forget_leases(&mut self, now: Timestamp) {
        self.renewals.retain(|_, leases| leases.iter().any(|lease| lease.until > now));
    }

    fn touch(&mut self, id: TraceId) {
        self.tick += 1;
        if let Some(entry) = self.entries.get_mut(&id) {
            self.order.remove(&entry.used);
            entry.used = self.tick;
            self.order.insert(self.tick, id);
            let size = entry.trace.stored_bytes() + entry.seal.bytes() + EMPTY_BYTES;
            self.bytes = self.bytes + size - entry.counted;
            entry.counted = size;
        }
    }

    /// Evicts the least recently used entries until the rest fits. Entries with sends in progress
    /// stay.
    pub(crate) fn trim(&mut self) {
        while self.bytes > self.most_bytes {
            let idle = |id: &TraceId| self.entries.get(id).is_none_or(|entry| entry.in_flight == 0);
            let Some(id) = self.order.values().find(|id| idle(id)).copied() else { return };
            self.remove(id);
        }
    }
}

impl Entry {
    /// When the trace next needs a wake: for its own timers, to send unsent outboxes, or to be
    /// copied into the log.
    pub(crate) fn next_timer(&self, delays: Delays) -> Option<Timestamp> {
        self.first_of(self.trace.next_timer(), delays)
    }

    /// The write that sets the trace's timer in the store. For a trace that is over it also clears
    /// all outboxes. `is_owned`: this coordinator owns the partition (see [`write`]).
    ///
    /// [`write`]: super::Shard::write
    pub(crate) fn timed(&self, trace_id: TraceId, delays: Delays, is_owned: bool) -> SentOutboxes {
        SentOutboxes {
            trace_id,
            outboxes: Vec::new(),
            version: Some(self.trace.version()),
            stamp: self.trace.stamp(),
            timer: self.next_timer(delays),
            keeps_earlier_timer: !is_owned,
            all: self.trace.is_over() && self.unsent.is_empty(),
        }
    }

    /// As `next_timer`, with the timers that the store knows.
    pub(crate) fn stored_timer(&self, delays: Delays) -> Option<Timestamp> {
        self.first_of(self.trace.stored_timer(), delays)
    }

    fn first_of(&self, timer: Option<Timestamp>, delays: Delays) -> Option<Timestamp> {
        let copy = self.trace.copy_due(delays.copy_ms);
        [timer, self.resend_at(delays.resend_ms), copy].into_iter().flatten().min()
    }

    /// When the unsent outboxes are to be sent again.
    pub(crate) fn resend_at(&self, resend_ms: u64) -> Option<Timestamp> {
        let oldest = self.unsent.iter().map(|unsent| unsent.outbox.at.plus_millis(resend_ms)).min()?;
        Some(oldest.max(self.resend_not_before))
    }

    /// Returns true if the log has every event up to this version.
    pub(crate) fn is_logged(&self, version: u64) -> bool {
        self.unsent.iter().all(|unsent| unsent.logged || unsent.outbox.version > version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trace::TokenHash;

    use super::*;

    #[test]
    fn the_least_used_are_dropped_first_and_unsent_ones_stay() {
        let id = |n: u128| TraceId::from_u128(n).unwrap();
        let mut cache = Cache::new(3 * EMPTY_BYTES);
        for n in 1..=3 {
            cache.put(Trace::new(id(n)), Vec::new(), Seal::none());
        }
        cache.get(id(1)).unwrap();
        cache.peek(id(2)).unwrap().in_flight = 1;
        for n in 4..=5 {
            cache.put(Trace::new(id(n)), Vec::new(), Seal::none());
        }
        cache.trim();
        let kept: Vec<u128> = (1..=5).filter(|n| cache.has(id(*n))).collect();
        assert_eq!(kept, [2, 4, 5], "2 was used least, but has messages in flight; then 3 and 1");
    }

    #[test]
    fn b13_leases_that_were_renewed_in_memory_outlive_their_entry() {
        let now = Timestamp::from_millis(1_000);
        let (id, later) = (TraceId::from_u128(1).unwrap(), now.plus_millis(9_000));
        let mut loaded = Trace::new(id);
        let amount = json!({"cost_usd": 1, "tokens": 100});
        let order = json!({"child_id": "root", "agent_id": "default", "goal": "g", "funding": "shared"});
        let token = TokenHash::of(&"token".parse().unwrap());
        for event in [
            json!({"type": "opened", "settings": {}}),
            json!({"type": "admitted", "order": order, "body": "agent", "depth": 0, "ceiling": amount}),
            json!({"type": "claimed", "child_id": "root", "attempt": 1, "token": token, "worker_id": "w", "until": 11_000}),
        ] {
            loaded.apply(&serde_json::from_value(event).unwrap(), now);
        }
        let mut renewed = loaded.clone();
        renewed.renewed_by(later);
        let mut cache = Cache::new(EMPTY_BYTES);
        cache.put(renewed, Vec::new(), Seal::none());
        let timer = cache.peek(id).unwrap().trace.next_timer();
        cache.clear();
        // A submission that is delivered again is first decided on an empty trace.
        cache.put(Trace::new(id), Vec::new(), Seal::none());
        cache.put(loaded.clone(), Vec::new(), Seal::none());
        assert_eq!(cache.peek(id).unwrap().trace.next_timer(), timer);
        assert_ne!(loaded.next_timer(), timer);
        cache.clear();
        cache.forget_leases(later.plus_millis(10_000));
        cache.put(loaded.clone(), Vec::new(), Seal::none());
        assert_eq!(cache.peek(id).unwrap().trace.next_timer(), loaded.next_timer());
    }
}
