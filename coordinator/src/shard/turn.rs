//! The loop of a shard. One turn: drain jobs → load missing traces (one pipeline) → decide all →
//! commit all (one pipeline) → send (pipelined) → reply and acknowledge. Between coordinators, the
//! compare-and-set keeps a trace consistent.
//!
//! Crash windows: before the commit nothing has happened, and the message is delivered again.
//! Between commit and send, the outbox is in the store, and any coordinator that finds it due sends
//! it. Between send and acknowledgement, the message is delivered again and answered from the
//! state.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use domain::{Timestamp, TraceId};
use futures_util::StreamExt;
use telemetry::metrics;
use trace::{Command, Event, Order, Refusal, Trace};

use super::{
    Shard,
    batch::Open,
    job::{Job, LeaseGrace, SPARED_MS, Work},
    lines,
    profiles::takes_later_profiles,
    reply::Reply,
    turn_metrics::{Before, TurnMetrics},
};
use crate::{crash::Point, error_log};

/// Jobs decided in one turn. More would only delay the first of them.
const MAX_JOBS: usize = 512;
/// Batches being sent at once; beyond that, jobs wait in their channel.
const MAX_SENDING: usize = 8;
/// Interval at which sent outboxes are cleared together.
const CLEAR_EVERY: Duration = Duration::from_millis(1_000);

impl Shard {
    /// Runs until all senders of jobs are gone and all its jobs are done.
    pub(crate) async fn run(mut self) {
        let mut clear = tokio::time::interval(CLEAR_EVERY);
        clear.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut open = true;
        while open || !self.sending.is_empty() || !self.uploads.is_empty() || !self.again.is_empty() {
            if !self.again.is_empty() {
                let jobs = std::mem::take(&mut self.again);
                self.turn(jobs).await;
                continue;
            }
            // Clearing is due a second after the last, and the batches in flight are few: neither
            // can starve the jobs.
            tokio::select! {
                biased;
                _ = clear.tick() => {
                    self.clear_outboxes().await;
                    self.cache.forget_leases(self.handles.clock.now());
                    self.tally.count(&self.handles, &self.cache);
                    for reply in self.waiting.overdue() {
                        reply.finish(&self.handles.bus).await;
                    }
                    clear.reset();
                }
                Some(batch) = self.sending.next(), if !self.sending.is_empty() => self.stored(batch).await,
                Some(batch) = self.uploads.next(), if !self.uploads.is_empty() => self.stored(batch).await,
                job = self.jobs.recv(), if open && self.sending.len() < MAX_SENDING => match job {
                    None => open = false,
                    Some(first) => {
                        let jobs = self.drain(first);
                        self.turn(jobs).await;
                    }
                },
            }
        }
        for reply in self.waiting.all() {
            reply.finish(&self.handles.bus).await;
        }
        self.clear_outboxes().await;
    }

    fn drain(&mut self, first: Job) -> Vec<Job> {
        let mut jobs = vec![first];
        while jobs.len() < MAX_JOBS
            && let Ok(job) = self.jobs.try_recv()
        {
            jobs.push(job);
        }
        jobs
    }

    async fn turn(&mut self, jobs: Vec<Job>) {
        self.handles.config.crash.pass(Point::Received);
        metrics::batch(jobs.len());
        if self.handles.epoch.number() != self.epoch {
            self.begin_epoch().await;
        }
        let now = self.handles.clock.now();
        let (jobs, fresh) = self.load(jobs, now).await;
        let mut order = Vec::new();
        let mut opened: HashMap<TraceId, Open> = HashMap::new();
        let epoch = self.handles.epoch.clone();
        let copy_ms = self.handles.delays().copy_ms;
        let mut broken = BTreeSet::new();
        for job in jobs {
            let trace_id = job.trace_id;
            if broken.contains(&trace_id) {
                self.again.push(job);
                continue;
            }
            let home = self.handles.home(trace_id);
            let entry = self.cache.get(trace_id).expect("jobs whose trace could not be loaded are gone");
            let open = opened.entry(trace_id).or_insert_with(|| {
                order.push(trace_id);
                // An entry may be older than our ownership: another coordinator may have renewed
                // its leases in memory.
                entry.trace.renewed_by(epoch.since(home.partition).unwrap_or(now));
                let had_root = entry.trace.root().is_some();
                let (events, replies, lines) = (Vec::new(), Vec::new(), Vec::new());
                let (expected, stamp) = (entry.trace.version(), entry.trace.stamp());
                let (frees_room, profiles) = (false, None);
                let counted = TurnMetrics::default();
                Open { expected, stamp, had_root, events, frees_room, replies, lines, profiles, counted }
            });
            let before = Before::of(&entry.trace, &job.work);
            let decide = AssertUnwindSafe(|| decide(&mut entry.trace, &job.work, copy_ms, now));
            let Ok((events, decided)) = catch_unwind(decide) else {
                broken.insert(trace_id);
                order.retain(|id| *id != trace_id);
                let open = opened.remove(&trace_id).expect("the trace was opened for this job");
                self.decide_again(trace_id, open.replies).await;
                self.broken(job, open.expected, now).await;
                continue;
            };
            // The store may have lost the trace or context that the message refers to.
            if decided.is_err() && events.is_empty() && job.origin.is_sent_once() && !job.refused {
                self.again.push(Job { refused: true, ..job });
                continue;
            }
            let mut job = job;
            if decided.is_err()
                && events.is_empty()
                && takes_later_profiles(&self.handles.directory, &mut job).await
            {
                self.again.push(job);
                continue;
            }
            open.profiles = job.profiles().into_iter().chain(open.profiles).min();
            let news = entry.denials.news(&job.work, decided.as_ref().copied());
            open.counted.note(before, &job.work, &entry.trace, (&events, news), now);
            open.frees_room |= events.iter().any(|event| event.facts().frees_room);
            open.lines.extend(lines::of(&job.work, &entry.trace, &events, news));
            open.events.extend(events);
            open.replies.push(Reply::new(job, &entry.trace, decided, &home, now));
        }
        self.handles.config.crash.pass(Point::Decided);
        self.confirm(&mut order, &mut opened, &fresh).await;
        let committed = self.commit(&order, opened, now).await;
        self.handles.config.crash.pass(Point::Committed);
        self.send(committed, now).await;
        self.cache.trim();
    }

    /// Handles a panic of a decision. The trace in memory may be half changed, so the trace and
    /// this turn's decisions on it are dropped. The job is decided once more on the stored state.
    /// If that panics too, the job is given up, so that one message or one trace can't end one
    /// coordinator after another.
    pub(super) async fn broken(&mut self, job: Job, version: u64, now: Timestamp) {
        let trace_id = job.trace_id;
        self.cache.remove(trace_id);
        if job.refused {
            tracing::error!(%trace_id, "a decision panicked again; its message is given up");
            if matches!(job.work, Work::Wake(_)) {
                let reason = "the decision on its due timer panics".to_owned();
                self.postpone(&BTreeMap::from([(trace_id, (reason, version))]), now).await;
            }
            Reply::given_up(job).finish_alone(&self.handles.bus).await;
        } else {
            tracing::error!(%trace_id, "a decision panicked; trying it again on the stored state");
            self.again.push(Job { refused: true, ..job });
        }
    }

    /// The store has lost writes: drops the cached state. Sends in progress are completed first,
    /// because a log without their messages would rebuild an older state.
    async fn begin_epoch(&mut self) {
        while let Some(batch) = self.sending.next().await {
            self.stored(batch).await;
        }
        while let Some(batch) = self.uploads.next().await {
            self.stored(batch).await;
        }
        self.epoch = self.handles.epoch.number();
        self.cache.clear();
        self.sent.clear();
        self.retimed.clear();
    }

    /// Checks that decisions without events were made on the stored version, by the same commit.
    /// Such decisions are not committed. Traces loaded in this turn are current; for the others the
    /// commit makes this check.
    async fn confirm(
        &mut self,
        order: &mut Vec<TraceId>,
        opened: &mut HashMap<TraceId, Open>,
        fresh: &BTreeSet<TraceId>,
    ) {
        let remembered = |id: &&TraceId| opened[*id].events.is_empty() && !fresh.contains(*id);
        let remembered: Vec<TraceId> = order.iter().filter(remembered).copied().collect();
        if remembered.is_empty() {
            return;
        }
        match self.handles.store.fields(&remembered, &[Trace::MADE_FIELD]).await {
            Ok(stored) => {
                for (id, stored) in remembered.iter().zip(stored) {
                    if stored.get(Trace::MADE_FIELD) != opened[id].stamp.as_ref()
                        && let Some(open) = opened.remove(id)
                    {
                        self.decide_again(*id, open.replies).await;
                    }
                }
            }
            Err(error) => {
                error_log::tell(
                    &error,
                    None,
                    "the store can't be read; the jobs are answered as unavailable",
                );
                for id in &remembered {
                    for reply in opened.remove(id).into_iter().flat_map(|open| open.replies) {
                        self.unavailable(reply.into_job()).await;
                    }
                }
            }
        }
        order.retain(|id| opened.contains_key(id));
    }
}

/// Decides a job's work on a trace. The refusal of one of several orders does not undo the others.
fn decide(trace: &mut Trace, work: &Work, copy_ms: u64, now: Timestamp) -> (Vec<Event>, Result<(), Refusal>) {
    let mut one = |order: Order| match trace.handle(order, now) {
        Ok(events) => (events, Ok(())),
        Err(refusal) => (Vec::new(), Err(refusal)),
    };
    match work {
        Work::Orders(orders) => {
            let mut all = (Vec::new(), Ok(()));
            for (events, decided) in orders.iter().cloned().map(one) {
                all.0.extend(events);
                all.1 = all.1.and(decided);
            }
            all
        }
        Work::Wake(spare) => {
            let until = match spare {
                LeaseGrace::No => None,
                LeaseGrace::Until(until) => Some(*until),
                LeaseGrace::Anew => Some(now.plus_millis(SPARED_MS)),
            };
            if let Some(until) = until {
                // This makes no event: leases are extended in memory only.
                drop(one(Command::Spare { until }.into()));
            }
            let (mut events, woken) = one(Command::Wake.into());
            // The copy comes last, so that it includes all decisions of the wake.
            events.extend(one(Command::Copy { after_ms: copy_ms }.into()).0);
            (events, woken)
        }
        // A read changes nothing; `Reply` answers it.
        Work::Read { .. } => (Vec::new(), Ok(())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bus::{Bus, Memory};
    use futures_util::FutureExt;
    use tokio::sync::{mpsc, oneshot};

    use super::{
        super::{
            batch::{Batch, SettledTrace},
            job::Origin,
            outbox::Outbox,
        },
        *,
    };
    use crate::{
        Config, clock::Clock, directory::Directory, epoch::Epoch, kept::Graphs, loops::Handles,
        policy::Policies, schedules::Schedules, sealed::SealedStore, store,
    };

    fn handles() -> Arc<Handles> {
        let config = Config::new("c1".parse().unwrap());
        let store = store::Store::Memory(store::Memory::new(config.topology.partitions));
        let bus = Bus::Memory(Memory::new(Default::default()));
        let store = SealedStore::new(store, None, bus.namespace());
        let now = Timestamp::from_millis(1_000);
        let time = store::StoreTime { read: now, correction: Default::default() };
        let clock = Clock::new(config.clock, time);
        Arc::new(Handles {
            policies: Policies::new(&config, now),
            worker_policies: Default::default(),
            directory: Directory::new(store.clone(), bus.clone(), config.crash.clone()),
            schedules: Schedules::new(bus.clone()),
            graphs: Graphs::new(bus.clone()),
            config,
            bus,
            store,
            clock,
            epoch: Epoch::new(),
            room: Default::default(),
            started_at: now,
            twin: Default::default(),
            panicked: Default::default(),
            gone: Default::default(),
            damaged: Default::default(),
            one_large: tokio::sync::Semaphore::new(1),
            queries: tokio::sync::Semaphore::new(4),
            named: tokio::sync::Semaphore::new(1),
            letters: Arc::new(tokio::sync::Semaphore::new(1)),
        })
    }

    #[tokio::test]
    async fn t9_a_shard_waits_for_its_own_sends_before_it_reads_the_log_again() {
        let handles = handles();
        let (_jobs, receiver) = mpsc::channel(1);
        let mut shard = Shard::new(handles.clone(), receiver);
        let (stored, sending) = oneshot::channel::<()>();
        let batch = sending.map(|_| Batch { parts: Vec::new(), results: Vec::new(), removed: Vec::new() });
        shard.sending.push(batch.boxed());
        let id = TraceId::from_u128(1).unwrap();
        shard.cache.put(Trace::new(id), Vec::new(), handles.store.seal(id));
        let (home, now) = (handles.partition(id), handles.clock.now());
        handles.epoch.own(home, now);
        handles.epoch.observe(home, 0, 7, now);
        handles.epoch.observe(home, 7, 6, now);
        {
            let mut turn = std::pin::pin!(shard.turn(Vec::new()));
            assert!((&mut turn).now_or_never().is_none(), "the messages of the turn are not stored yet");
            stored.send(()).unwrap();
            turn.await;
        }
        assert!(!shard.cache.has(id) && shard.sending.is_empty());
    }

    /// A trace that is always sending must not delay a reply whose messages are not being sent.
    #[tokio::test]
    async fn messages_that_a_reply_waits_for_are_sent_while_others_are_in_flight() {
        let handles = handles();
        let (_jobs, receiver) = mpsc::channel(1);
        let mut shard = Shard::new(handles.clone(), receiver);
        let (id, now) = (TraceId::from_u128(1).unwrap(), handles.clock.now());
        let mut trace = Trace::new(id);
        let events =
            trace.handle(Command::Cancel { child_id: None, reason: None, without_undo: false }, now).unwrap();
        let outbox = Arc::new(Outbox::new(&mut trace, events, now));
        let origin = Origin::Ask { reply_to: "somebody".into() };
        let job = Job::new(id, Work::Orders(Vec::new()), origin);
        let reply = Reply::new(job, &trace, Ok(()), &handles.home(id), now);
        shard.cache.put(trace, vec![outbox], handles.store.seal(id));
        shard.cache.peek(id).unwrap().in_flight = 1;
        let replies = vec![reply];
        shard.send(vec![SettledTrace { trace_id: id, outbox: None, frees_room: false, replies }], now).await;
        let batch = shard.sending.next().await.expect("the batch is sent");
        shard.stored(batch).await;
        assert!(shard.untold.is_empty(), "the reply was sent");
        assert!(shard.cache.peek(id).unwrap().unsent.is_empty());
    }
}
