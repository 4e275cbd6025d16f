//! Who owns which partition: rendezvous hashing over the coordinators that are alive. Ownership is
//! only an optimisation, so that a trace is mostly decided in one place; two owners for a while, or
//! none, harm nobody.

use std::{collections::HashMap, sync::Arc};

use shared::{
    WorkerId,
    bus::Consumer,
    subject::{Partition, Subject},
    time::millis,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{ask::Asks, directory::Directory, dispatch::Dispatch, ground::Ground, report::Reports};

/// The owner of a partition among these: the one with the highest weight for it. When one comes or
/// goes, only its own partitions move.
pub(crate) fn owner(partition: Partition, coordinators: &[WorkerId]) -> Option<&WorkerId> {
    coordinators.iter().max_by_key(|id| (weight(partition, id), *id))
}

/// FNV-1a with a final mix: the same on every machine and version.
fn weight(partition: Partition, coordinator: &WorkerId) -> u64 {
    let bytes = coordinator.as_str().bytes().chain(partition.number().to_be_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// Keeps this coordinator's place among the others, and serves what it owns.
pub(crate) struct Membership {
    pub(crate) ground: Arc<Ground>,
    pub(crate) directory: Directory,
    pub(crate) dispatch: Dispatch,
    pub(crate) owned: watch::Sender<Arc<Vec<Partition>>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) serving: HashMap<Partition, CancellationToken>,
}

impl Membership {
    /// Runs until `stop`; then nothing is owned any more.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut interval = tokio::time::interval(self.ground.config.heartbeat);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = interval.tick() => self.beat().await,
            }
        }
        self.serving.drain().for_each(|(_, token)| token.cancel());
        self.owned.send_replace(Arc::default());
        if let Err(error) = self.ground.store.leave(&self.ground.config.id).await {
            tracing::debug!(%error, "could not say goodbye; the others will notice");
        }
    }

    async fn beat(&mut self) {
        let ground = self.ground.clone();
        let alive = ground.store.heartbeat(&ground.config.id, millis(ground.config.heartbeat_ttl)).await;
        let alive = match alive {
            Ok(alive) => alive,
            Err(error) => {
                // Others will take over. Until then it goes on: the compare-and-set keeps it honest.
                tracing::warn!(%error, "no heartbeat");
                return;
            }
        };
        if let Ok(now) = ground.store.now().await {
            ground.clock.set(now);
        }
        if let Err(error) = self.directory.refresh().await {
            tracing::warn!(%error, "the agent directory can't be read");
        }
        let all = Partition::all(ground.config.topology.partitions);
        let mine: Vec<Partition> =
            all.filter(|partition| owner(*partition, &alive) == Some(&ground.config.id)).collect();
        self.serve(&mine).await;
        self.watch_store(&mine).await;
    }

    /// Whether the store still has what it acknowledged, also while nothing comes that would show it:
    /// leases, deadlines and retries wait in the store alone.
    async fn watch_store(&self, mine: &[Partition]) {
        let ground = &self.ground;
        let floors: Vec<u64> = mine.iter().map(|partition| ground.epoch.floor(*partition)).collect();
        match ground.store.counters(mine).await {
            Ok(counters) => {
                for ((partition, floor), counter) in mine.iter().zip(floors).zip(counters) {
                    ground.epoch.observe(*partition, floor, counter, ground.clock.now());
                }
            }
            Err(error) => tracing::warn!(%error, "the counters of partitions can't be read"),
        }
    }

    /// Begins to serve what is new, and ceases to serve what is not ours any more.
    async fn serve(&mut self, mine: &[Partition]) {
        let epoch = &self.ground.epoch;
        self.serving.retain(|partition, token| {
            let keep = mine.contains(partition);
            if !keep {
                tracing::info!(%partition, "another coordinator owns it now");
                epoch.disown(*partition);
                token.cancel();
            }
            keep
        });
        for partition in mine {
            if self.serving.contains_key(partition) {
                continue;
            }
            match self.begin(*partition).await {
                Ok(token) => drop(self.serving.insert(*partition, token)),
                Err(error) => tracing::warn!(%partition, %error, "it can't be served yet"),
            }
        }
        let serving: Vec<Partition> = mine.iter().filter(|p| self.serving.contains_key(p)).copied().collect();
        self.owned.send_if_modified(|owned| {
            let changed = **owned != serving;
            *owned = Arc::new(serving);
            changed
        });
    }

    async fn begin(&self, partition: Partition) -> Result<CancellationToken, shared::bus::Error> {
        let bus = &self.ground.bus;
        self.ground.epoch.own(partition, self.ground.clock.now());
        let questions = bus.serve(&Subject::Ask(partition)).await?;
        let reports = bus.consume(&Consumer::Report(partition)).await?;
        let token = CancellationToken::new();
        let (ground, dispatch) = (self.ground.clone(), self.dispatch.clone());
        let asks = Asks {
            ground: ground.clone(),
            directory: self.directory.clone(),
            dispatch: dispatch.clone(),
            partition,
        };
        let stopped = token.clone();
        let fuse = self.ground.fuse();
        self.tasks.spawn(async move {
            stopped.run_until_cancelled(asks.serve(questions)).await;
            drop(fuse);
        });
        let consumer = Reports { ground, dispatch };
        let stopped = token.clone();
        let fuse = self.ground.fuse();
        self.tasks.spawn(async move {
            stopped.run_until_cancelled(consumer.consume(reports)).await;
            drop(fuse);
        });
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinators(count: usize) -> Vec<WorkerId> {
        (0..count).map(|n| WorkerId::new(&format!("host-{n}-4711")).unwrap()).collect()
    }

    #[test]
    fn partitions_spread_and_only_those_of_who_left_move() {
        let four = coordinators(4);
        let owners = |of: &[WorkerId]| -> Vec<WorkerId> {
            Partition::all(256).map(|partition| owner(partition, of).unwrap().clone()).collect()
        };
        let before = owners(&four);
        for id in &four {
            let owned = before.iter().filter(|owner| *owner == id).count();
            assert!((32..=110).contains(&owned), "{id} owns {owned} of 256");
        }
        let after = owners(&four[..3]);
        for (was, is) in before.iter().zip(&after) {
            assert!(was == is || *was == four[3], "{was} lost one to {is} though it stayed");
        }
        assert_eq!(owner(Partition::all(1).next().unwrap(), &[]), None);
    }
}
