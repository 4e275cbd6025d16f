//! Membership: each partition is owned by one live coordinator, by rendezvous hashing. Ownership is
//! only an optimisation, so that most decisions on a trace are made in one place. Two owners, or
//! none, do no harm for a while. For longer, each of two owners would get only some ticks, and
//! treat running attempts as lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bus::Consumer;
use domain::{
    WorkerId,
    subject::{Filter, Partition},
};
use host::clock::Mark;
use telemetry::{Outage, metrics::GaugeHandle};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::owner::owner;
use crate::{
    error_log,
    inbound::{ask::Asks, report::Reports},
    loops::Handles,
    shard::dispatch::Dispatch,
    store::{Member, Members},
};

/// Renews this coordinator's membership, and serves the partitions that it owns.
pub(crate) struct Membership {
    pub(crate) handles: Arc<Handles>,
    pub(crate) dispatch: Dispatch,
    pub(crate) owned: watch::Sender<Arc<Vec<Partition>>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) serving: BTreeMap<Partition, CancellationToken>,
    /// When the membership began, and when the last heartbeat was written.
    pub(crate) began: Mark,
    pub(crate) beaten: Mark,
    /// Coordinators that ended without leaving, or whose heartbeats do not arrive.
    pub(crate) silent: BTreeSet<WorkerId>,
    /// Logs that partitions can't be served.
    pub(crate) outage: Outage,
    /// For metrics: the number of served partitions, and of all.
    pub(crate) counted: GaugeHandle<(u64, u64)>,
}

impl Membership {
    /// Runs until `stop`; afterwards this coordinator owns no partition.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut interval = tokio::time::interval(self.handles.config.heartbeat);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = interval.tick() => self.beat().await,
            }
        }
        std::mem::take(&mut self.serving).into_values().for_each(|token| token.cancel());
        self.owned.send_replace(Arc::default());
        if let Err(error) = self.handles.store.leave(&self.handles.member()).await {
            tracing::debug!(%error, "could not deregister; the heartbeat will expire");
        }
    }

    async fn beat(&mut self) {
        let handles = self.handles.clone();
        let members = handles.heartbeat().await;
        let is_late = handles.config.clock.since(self.beaten) > handles.config.heartbeat_ttl;
        let members = match members {
            Ok(members) => members,
            Err(error) => {
                error_log::tell(&error, None, "the heartbeat could not be written");
                // Other coordinators take over. For a longer time two owners would each get only
                // some ticks.
                if is_late {
                    self.serve(&[]).await;
                }
                return;
            }
        };
        self.beaten = handles.config.clock.mark();
        if is_late {
            // Other coordinators may have taken over for a while.
            handles.epoch.watch_anew(handles.clock.now());
        }
        self.look_for_twins(&members).await;
        let ids = |members: Vec<Member>| members.into_iter().map(|member| member.id);
        let alive: Vec<WorkerId> = ids(members.alive).collect();
        // A coordinator that was started again under its id is not missing.
        let silent: BTreeSet<WorkerId> = ids(members.silent).filter(|id| !alive.contains(id)).collect();
        if !silent.is_subset(&self.silent) {
            handles.epoch.doubt(handles.clock.now());
        }
        self.silent = silent;
        if let Ok(time) = handles.store.time().await
            && let Some(correction) = handles.clock.set(time)
            && let Err(error) = handles.store.correct_time(correction).await
        {
            error_log::tell(&error, None, "the store's clock could not be corrected yet");
        }
        if let Err(error) = handles.directory.refresh().await {
            error_log::tell(&error, None, "the agent profiles can't be read; using those already known");
        }
        let all = Partition::all(handles.config.topology.partitions);
        let mine: Vec<Partition> =
            all.filter(|partition| owner(*partition, &alive) == Some(&handles.config.id)).collect();
        self.serve(&mine).await;
        self.watch_store().await;
    }

    /// Ends this coordinator if another process has used its id for longer. The heartbeat of a
    /// killed process stays valid for a moment, so the check waits for twice that time. An earlier
    /// process that this one replaces is removed from the list.
    async fn look_for_twins(&self, members: &Members) {
        let Handles { config, policies, store, .. } = &*self.handles;
        let up_for = config.clock.since(self.began);
        if up_for > 2 * config.heartbeat_ttl
            && members.alive.iter().any(|member| policies.is_before_us(member, &config.id))
        {
            self.handles.twin.cancel();
        }
        for earlier in members.silent.iter().filter(|member| policies.is_replaced_by_us(member, &config.id)) {
            if let Err(error) = store.leave(earlier).await {
                tracing::debug!(%error, "the process that this one replaces is remembered for an hour");
            }
        }
    }

    /// Checks that the store still has its acknowledged writes. Without messages no other check
    /// would notice a loss: leases, deadlines and retries are only in the store.
    async fn watch_store(&self) {
        let handles = &self.handles;
        let known = handles.epoch.partitions();
        let floors: Vec<u64> = known.iter().map(|partition| handles.epoch.floor(*partition)).collect();
        match handles.store.counters(&known).await {
            Ok(counters) => {
                for ((partition, floor), counter) in known.iter().zip(floors).zip(counters) {
                    handles.epoch.observe(*partition, floor, counter, handles.clock.now());
                }
            }
            Err(error) => error_log::tell(&error, None, "the counters of partitions can't be read"),
        }
    }

    /// Starts to serve new partitions, and stops serving partitions that another coordinator owns
    /// now.
    async fn serve(&mut self, mine: &[Partition]) {
        let epoch = &self.handles.epoch;
        let (mut gained, mut lost) = (Vec::new(), Vec::new());
        self.serving.retain(|partition, token| {
            let keep = mine.contains(partition);
            if !keep {
                lost.push(partition.to_string());
                epoch.disown(*partition);
                token.cancel();
            }
            keep
        });
        let mut failed = None;
        for partition in mine {
            if self.serving.contains_key(partition) {
                continue;
            }
            match self.begin(*partition).await {
                Ok(token) => {
                    gained.push(partition.to_string());
                    self.serving.insert(*partition, token);
                }
                Err(error) => {
                    tracing::debug!(%partition, %error, "the partition can't be served yet; trying again");
                    failed = Some(error);
                }
            }
        }
        if !lost.is_empty() {
            tracing::info!(partitions = lost.join(" "), "this coordinator owns partitions no longer");
        }
        if !gained.is_empty() {
            tracing::info!(partitions = gained.join(" "), "this coordinator owns partitions now");
        }
        match failed {
            Some(error) => self.handles.bus.tell(&mut self.outage, &error),
            None => self.outage.ended(),
        }
        let serving: Vec<Partition> = mine.iter().filter(|p| self.serving.contains_key(p)).copied().collect();
        let all = u64::from(self.handles.config.topology.partitions);
        self.counted.tell((serving.len() as u64, all));
        self.owned.send_if_modified(|owned| {
            let changed = **owned != serving;
            *owned = Arc::new(serving);
            changed
        });
    }

    async fn begin(&self, partition: Partition) -> Result<CancellationToken, bus::Error> {
        let bus = &self.handles.bus;
        self.handles.epoch.own(partition, self.handles.clock.now());
        let requests = bus.serve(&Filter::AsksOf(partition)).await?;
        let reports = bus.consume(&Consumer::Report(partition)).await?;
        let token = CancellationToken::new();
        let (handles, dispatch) = (self.handles.clone(), self.dispatch.clone());
        let asks = Asks { handles: handles.clone(), dispatch: dispatch.clone(), partition };
        let stopped = token.clone();
        self.handles.spawn(&self.tasks, async move {
            stopped.run_until_cancelled(asks.serve(requests)).await;
        });
        let consumer = Reports { handles, dispatch };
        let stopped = token.clone();
        self.handles.spawn(&self.tasks, async move {
            stopped.run_until_cancelled(consumer.consume(reports)).await;
        });
        Ok(token)
    }
}
