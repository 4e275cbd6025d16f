//! The store of the embedded mode without a directory: its contents end with the process. It
//! behaves like the store in Redis, including the expiry of silent coordinators and the order of
//! entries with equal times.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bus::Position;
use domain::{Timestamp, TraceId, subject::Partition};
use host::{
    clock::Clock,
    simulated_network::{Crossing, Link, round_trip},
};

use super::{
    AgentVersion, Agents, CommitOutcome, Correction, Error, Find, LoadedRecord, LogMark, MarkOutcome, Member,
    Members, NewMark, Record, Replaces, SentOutboxes, StoreTime, Write, keys,
    record::{IndexEntry, RUNS_KEPT, SILENT_MS, timer_after},
};

/// Time limit of an answer over a simulated network: that of the store in Redis.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub struct Memory {
    partitions: u16,
    clock: Clock,
    kept: Arc<Mutex<Contents>>,
    /// The counterpart of a Redis server's run id. [`Memory::restore`] changes it, as a restart
    /// changes that of a server.
    run: Arc<AtomicU64>,
    /// The simulated network between this handle and the store.
    link: Option<Arc<dyn Link>>,
}

/// The contents of the store at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot(Contents);

#[derive(Debug, Clone, Default)]
struct Contents {
    traces: HashMap<TraceId, Record>,
    /// The branches of each trace.
    branches: HashMap<TraceId, BTreeSet<TraceId>>,
    /// The contents of each partition.
    homes: HashMap<Partition, Home>,
    coordinators: BTreeMap<Member, Timestamp>,
    revision: u64,
    agents: BTreeMap<String, String>,
    agent_versions: BTreeMap<String, u64>,
    partitions: Option<u16>,
    correction: Correction,
}

#[derive(Debug, Clone, Default)]
struct Home {
    counter: u64,
    mark: Option<Position>,
    timers: Scores,
    runs: Scores,
    /// The index of runs, by term.
    terms: HashMap<String, Scores>,
    costs: HashMap<TraceId, u64>,
    ids: BTreeSet<TraceId>,
    ended: Scores,
}

/// A sorted set, as in Redis.
#[derive(Debug, Clone, Default)]
struct Scores {
    of: HashMap<TraceId, Timestamp>,
    sorted: BTreeSet<(Timestamp, TraceId)>,
}

impl Scores {
    fn set(&mut self, trace: TraceId, at: Option<Timestamp>) {
        if let Some(old) = self.of.remove(&trace) {
            self.sorted.remove(&(old, trace));
        }
        if let Some(at) = at {
            self.of.insert(trace, at);
            self.sorted.insert((at, trace));
        }
    }

    fn set_timer(&mut self, trace: TraceId, timer: Option<Timestamp>, keeps_earlier: bool) {
        self.set(trace, timer_after(self.of.get(&trace).copied(), timer, keeps_earlier));
    }

    fn keep_newest(&mut self, count: usize) {
        while self.sorted.len() > count {
            let Some((_, oldest)) = self.sorted.first().copied() else { return };
            self.set(oldest, None);
        }
    }
}

impl Home {
    /// Replaces the index entries of a run: removes those of its old text, and adds those of its
    /// new text.
    fn index(&mut self, trace: TraceId, before: Option<&str>, after: Option<&str>) {
        if let Some(before) = before.and_then(IndexEntry::read) {
            for term in before.terms {
                let Some(listed) = self.terms.get_mut(term) else { continue };
                listed.set(trace, None);
                if listed.of.is_empty() {
                    self.terms.remove(term);
                }
            }
            self.costs.remove(&trace);
            self.ids.remove(&trace);
        }
        if let Some(after) = after.and_then(IndexEntry::read) {
            for term in after.terms {
                self.terms.entry(term.to_owned()).or_default().set(trace, Some(after.at));
            }
            self.costs.extend(after.cost.map(|cost| (trace, cost)));
            self.ids.insert(trace);
        }
    }
}

impl Memory {
    pub fn new(partitions: u16) -> Memory {
        Self::with_clock(partitions, Clock::Machine)
    }

    /// A store with the given clock, for simulations.
    pub fn with_clock(partitions: u16, clock: Clock) -> Memory {
        Memory { partitions, clock, kept: Arc::default(), run: Arc::default(), link: None }
    }

    /// The same store behind a link, for simulations.
    pub fn behind(&self, link: Arc<dyn Link>) -> Memory {
        Memory { link: Some(link), ..self.clone() }
    }

    /// A copy of its current contents.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.kept().clone())
    }

    /// Restores earlier contents, like a server that lost its last writes.
    pub fn restore(&self, snapshot: Snapshot) {
        let mut kept = self.kept();
        *kept = snapshot.0;
        self.run.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `act` on this store. With a link, the call and its answer cross the link.
    pub(super) async fn ask<A: ToOwned + ?Sized, T: Send + 'static>(
        &self,
        doing: &'static str,
        about: &A,
        act: impl Fn(&Memory, &A) -> T + Send + Sync + 'static,
    ) -> Result<T, Error>
    where
        A::Owned: Send + Sync + 'static,
    {
        let Some(link) = &self.link else { return Ok(act(self, about)) };
        let (memory, about) = (self.clone(), about.to_owned());
        let way = (Crossing::ToStore(doing), Crossing::FromStore(doing));
        let answer = round_trip(link, way, ANSWER_TIMEOUT, move || act(&memory, about.borrow())).await;
        answer.ok_or_else(|| Error::Unavailable { doing, source: "no answer in time".into() })
    }

    /// The contents. A poisoned lock is harmless: no code panics between two changes, so the
    /// contents are never half changed.
    fn kept(&self) -> MutexGuard<'_, Contents> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn home(&self, trace: TraceId) -> Partition {
        Partition::of(trace, self.partitions)
    }

    pub(super) fn load(&self, traces: &[TraceId]) -> Vec<LoadedRecord> {
        let kept = self.kept();
        let load = |trace: &TraceId| LoadedRecord {
            record: kept.traces.get(trace).cloned(),
            damaged: None,
            counter: kept.homes.get(&self.home(*trace)).map_or(0, |home| home.counter),
        };
        traces.iter().map(load).collect()
    }

    pub(super) fn commit(&self, writes: &[Write]) -> Vec<CommitOutcome> {
        let mut kept = self.kept();
        writes.iter().map(|write| kept.commit(write, self.home(write.trace_id))).collect()
    }

    pub(super) fn sent(&self, sent: &[SentOutboxes]) {
        let kept = &mut *self.kept();
        for SentOutboxes { trace_id, outboxes, version, stamp, timer, keeps_earlier_timer, all } in sent {
            let mut trace = kept.traces.get_mut(trace_id);
            if let Some(trace) = &mut trace {
                trace.outbox.retain(|key, _| !outboxes.contains(key));
            }
            let found = trace.as_ref().and_then(|trace| trace.fields.get(keys::STAMP));
            let same = stamp.is_none() || stamp.as_ref() == found;
            if *version == Some(trace.as_ref().map_or(0, |trace| trace.version)) && same {
                trace.filter(|_| *all).into_iter().for_each(|trace| trace.outbox.clear());
                let timers = &mut kept.homes.entry(self.home(*trace_id)).or_default().timers;
                timers.set_timer(*trace_id, *timer, *keeps_earlier_timer);
            }
        }
    }

    pub(super) fn due(&self, partitions: &[Partition], now: Timestamp, limit: usize) -> Vec<TraceId> {
        let kept = self.kept();
        let homes = partitions.iter().filter_map(|partition| kept.homes.get(partition));
        homes
            .flat_map(|home| home.timers.sorted.iter().take_while(|(at, _)| *at <= now).take(limit))
            .map(|(_, trace)| *trace)
            .collect()
    }

    pub(super) fn ended(&self, partitions: &[Partition], until: Timestamp, limit: usize) -> Vec<TraceId> {
        let kept = self.kept();
        let homes = partitions.iter().filter_map(|partition| kept.homes.get(partition));
        homes
            .flat_map(|home| home.ended.sorted.iter().take_while(|(at, _)| *at <= until).take(limit))
            .map(|(_, trace)| *trace)
            .collect()
    }

    pub(super) fn delay(&self, trace: TraceId, until: Timestamp) {
        let mut kept = self.kept();
        let timers = &mut kept.homes.entry(self.home(trace)).or_default().timers;
        if timers.of.contains_key(&trace) {
            timers.set(trace, Some(until));
        }
    }

    pub(super) fn put_off(&self, trace: TraceId, until: Timestamp) {
        let mut kept = self.kept();
        let ended = &mut kept.homes.entry(self.home(trace)).or_default().ended;
        if ended.of.contains_key(&trace) {
            ended.set(trace, Some(until));
        }
    }

    pub(super) fn remove(&self, trace: TraceId, version: u64) -> bool {
        let kept = &mut *self.kept();
        let home = kept.homes.entry(self.home(trace)).or_default();
        let found = kept.traces.get(&trace).map_or(0, |trace| trace.version);
        if found != version || (found > 0 && home.timers.of.contains_key(&trace)) {
            return false;
        }
        let had = kept.traces.remove(&trace).and_then(|mut had| had.fields.remove(keys::INDEX));
        home.index(trace, had.as_deref(), None);
        kept.branches.remove(&trace);
        for list in [&mut home.timers, &mut home.runs, &mut home.ended] {
            list.set(trace, None);
        }
        true
    }

    pub(super) fn add_branches(&self, of: TraceId, by: &[TraceId]) {
        self.kept().branches.entry(of).or_default().extend(by);
    }

    pub(super) fn branches(&self, of: TraceId) -> Vec<TraceId> {
        self.kept().branches.get(&of).into_iter().flatten().copied().collect()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn time(&self) -> StoreTime {
        StoreTime { read: self.now(), correction: self.kept().correction }
    }

    pub(super) fn correct_time(&self, correction: Correction) {
        let stored = &mut self.kept().correction;
        if correction.number > stored.number {
            *stored = correction;
        }
    }

    pub(super) fn heartbeat(&self, coordinator: &Member, ttl_ms: u64) -> Members {
        let mut kept = self.kept();
        let now = self.now();
        kept.coordinators.insert(coordinator.clone(), now);
        let away = |seen: &Timestamp| now.millis_since(*seen).max(seen.millis_since(now));
        kept.coordinators.retain(|_, seen| away(seen) <= SILENT_MS);
        let (alive, silent) =
            kept.coordinators.iter().partition::<Vec<_>, _>(|(_, seen)| away(seen) <= ttl_ms);
        let members =
            |some: Vec<(&Member, &Timestamp)>| some.into_iter().map(|(member, _)| member.clone()).collect();
        Members { alive: members(alive), silent: members(silent) }
    }

    pub(super) fn leave(&self, coordinator: &Member) {
        self.kept().coordinators.remove(coordinator);
    }

    pub(super) fn agents(&self) -> Agents {
        let kept = self.kept();
        Agents {
            revision: kept.revision,
            profiles: kept.agents.clone(),
            versions: kept.agent_versions.clone(),
        }
    }

    pub(super) fn agents_revision(&self) -> u64 {
        self.kept().revision
    }

    pub(super) fn apply_agents(&self, versions: &[AgentVersion], at_least: u64) -> u64 {
        let kept = &mut *self.kept();
        let mut changed = false;
        for AgentVersion { agent_id, version, profile, again } in versions {
            let found = kept.agent_versions.entry(agent_id.clone()).or_default();
            if *found > *version || (*found == *version && !again) {
                continue;
            }
            (*found, changed) = (*version, true);
            match profile {
                Some(profile) => drop(kept.agents.insert(agent_id.clone(), profile.clone())),
                None => drop(kept.agents.remove(agent_id)),
            }
        }
        kept.revision = (kept.revision + u64::from(changed)).max(at_least);
        kept.revision
    }

    pub(super) fn find(&self, find: &Find) -> Vec<(TraceId, Timestamp)> {
        let kept = self.kept();
        let fits = |home: &Home, at: Timestamp, trace: &TraceId| {
            let has =
                |term: &String| home.terms.get(term).is_some_and(|listed| listed.of.contains_key(trace));
            let costs = |(least, most): (u64, u64)| {
                home.costs.get(trace).is_none_or(|cost| (least..=most).contains(cost))
            };
            at >= find.since
                && find.until.is_none_or(|until| at < until)
                && find.after.is_none_or(|after| (at, *trace) < after)
                && find.terms.iter().all(|any| any.iter().any(has))
                && find.cost.is_none_or(costs)
        };
        let listed = |home: &Home| -> Vec<(Timestamp, TraceId)> {
            let fits = |(at, trace): &&(Timestamp, TraceId)| fits(home, *at, trace);
            if let Some(any) = find.terms.first().filter(|_| find.any_age) {
                let lists = any.iter().filter_map(|term| home.terms.get(term));
                let all: BTreeSet<&(Timestamp, TraceId)> = lists.flat_map(|listed| &listed.sorted).collect();
                return all.into_iter().rev().filter(fits).take(find.limit).copied().collect();
            }
            home.runs.sorted.iter().rev().filter(fits).take(find.limit).copied().collect()
        };
        let mut runs: Vec<_> = kept.homes.values().flat_map(listed).collect();
        runs.sort_unstable_by(|a, b| b.cmp(a));
        runs.into_iter().take(find.limit).map(|(at, trace)| (trace, at)).collect()
    }

    pub(super) fn with_prefix(&self, prefix: &str, limit: usize) -> Vec<TraceId> {
        let kept = self.kept();
        let ids = kept.homes.values().flat_map(|home| &home.ids).copied();
        let mut ids: Vec<TraceId> = ids.filter(|id| id.to_string().starts_with(prefix)).collect();
        ids.sort_unstable();
        ids.truncate(limit);
        ids
    }

    pub(super) fn run_count(&self) -> u64 {
        self.kept().homes.values().map(|home| home.runs.of.len() as u64).sum()
    }

    pub(super) fn versions(&self, traces: &[TraceId]) -> Vec<u64> {
        let kept = self.kept();
        traces.iter().map(|trace| kept.traces.get(trace).map_or(0, |trace| trace.version)).collect()
    }

    pub(super) fn counters(&self, partitions: &[Partition]) -> Vec<u64> {
        let kept = self.kept();
        let counter = |partition| kept.homes.get(partition).map_or(0, |home| home.counter);
        partitions.iter().map(counter).collect()
    }

    pub(super) fn log_marks(&self, partitions: &[Partition]) -> Vec<LogMark> {
        let kept = self.kept();
        partitions.iter().map(|partition| self.log_mark(kept.homes.get(partition))).collect()
    }

    pub(super) fn set_log_marks(&self, marks: &[NewMark]) -> Vec<MarkOutcome> {
        let mut kept = self.kept();
        let set = |NewMark { partition, seen, position }: &NewMark| {
            let home = kept.homes.entry(*partition).or_default();
            let found = self.log_mark(Some(home));
            if found.counter < seen.counter || found.position != seen.position || found.run != seen.run {
                return MarkOutcome::Differs(found);
            }
            home.mark = Some(*position);
            MarkOutcome::Done
        };
        marks.iter().map(set).collect()
    }

    fn log_mark(&self, home: Option<&Home>) -> LogMark {
        LogMark {
            counter: home.map_or(0, |home| home.counter),
            position: home.and_then(|home| home.mark),
            run: self.run.load(Ordering::Relaxed).to_string(),
        }
    }

    pub(super) fn fields(&self, traces: &[TraceId], fields: &[String]) -> Vec<HashMap<String, String>> {
        let kept = self.kept();
        let of = |trace: &TraceId| {
            let had = kept.traces.get(trace).map(|trace| &trace.fields);
            let had = |field: &String| Some((field.clone(), had?.get(field)?.clone()));
            fields.iter().filter_map(had).collect()
        };
        traces.iter().map(of).collect()
    }

    /// Stores the first partition count that a coordinator sends. Returns the stored count.
    pub(super) fn settle_partitions(&self, count: u16) -> u16 {
        *self.kept().partitions.get_or_insert(count)
    }
}

impl Contents {
    fn commit(&mut self, write: &Write, home: Partition) -> CommitOutcome {
        let home = self.homes.entry(home).or_default();
        let trace_id = write.trace_id;
        let version = self.traces.get(&trace_id).map_or(0, |trace| trace.version);
        let stamp = self.traces.get(&trace_id).and_then(|trace| trace.fields.get(keys::STAMP));
        if version != write.expected || write.stamp.is_some() && write.stamp.as_ref() != stamp {
            return CommitOutcome::Conflict { version, counter: home.counter };
        }
        if write.profiles.is_some_and(|known| known < self.revision) {
            return CommitOutcome::Outdated { revision: self.revision, counter: home.counter };
        }
        let trace = self.traces.entry(trace_id).or_insert_with(|| Record {
            version: 0,
            fields: HashMap::new(),
            values: HashMap::new(),
            outbox: BTreeMap::new(),
        });
        trace.version = write.version;
        if write.index.is_some() || write.replaces != Replaces::Nothing {
            let before = trace.fields.get(keys::INDEX).map(String::as_str);
            home.index(trace_id, before, write.index.as_deref());
        }
        if write.replaces != Replaces::Nothing {
            trace.fields.clear();
            trace.values.clear();
        }
        if write.replaces == Replaces::Everything {
            trace.outbox.clear();
        }
        put(&mut trace.fields, &write.fields);
        trace.fields.extend(write.index.clone().map(|index| (keys::INDEX.to_owned(), index)));
        put(&mut trace.values, &write.values);
        trace.outbox.retain(|key, _| !write.cleared.contains(key));
        trace.outbox.extend(write.outbox.clone());
        home.timers.set_timer(trace_id, write.timer, write.keeps_earlier_timer);
        home.ended.set(trace_id, write.ended_at);
        if let Some(at) = write.opened_at {
            home.runs.set(trace_id, Some(at));
            home.runs.keep_newest(RUNS_KEPT);
        }
        home.counter += 1;
        CommitOutcome::Done { counter: home.counter }
    }
}

/// Sets keys with a value, and removes keys without one.
fn put(fields: &mut HashMap<String, String>, changes: &[(String, Option<String>)]) {
    for (key, value) in changes {
        match value {
            Some(value) => fields.insert(key.clone(), value.clone()),
            None => fields.remove(key),
        };
    }
}
