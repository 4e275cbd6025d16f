//! Who waits for workers that are not there. The coordinators do not know the workers: they are asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use client::Client;
use domain::{PoolName, wire::WorkerState};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;
use trace::{Status, Trace};

/// How long a context may wait before it is looked whether a worker is there, and how often that is done.
const LOOKED: Duration = Duration::from_secs(2);

/// The contexts that wait for a worker while none of their pool is there, by pool, in words.
pub(crate) fn waits(trace: &Trace, there: &[WorkerState]) -> BTreeMap<PoolName, String> {
    let mut pools: BTreeMap<PoolName, Vec<String>> = BTreeMap::new();
    let waiting = trace.contexts().iter().filter(|node| matches!(node.status, Status::Submitted { .. }));
    for node in waiting {
        let pool = trace.pool_of(node);
        if !there.iter().any(|worker| worker.pool == pool) {
            pools.entry(pool).or_default().push(format!("`{}`", node.id));
        }
    }
    let said = |(pool, nodes): (PoolName, Vec<String>)| {
        let wait = if nodes.len() == 1 { "waits" } else { "wait" };
        let said = format!("{} {wait} for a worker of the pool `{pool}`: none is there", nodes.join(", "));
        (pool, said)
    };
    pools.into_iter().map(said).collect()
}

/// Looks for workers while a run is watched, as long as something waits for one. A pool is told of once.
pub(crate) struct Lookout {
    client: Client,
    every: Interval,
    asked: Option<AbortOnDropHandle<Result<Vec<WorkerState>, client::Error>>>,
    told: BTreeSet<PoolName>,
}

impl Lookout {
    pub(crate) fn new(client: &Client) -> Self {
        let mut every = interval_at(Instant::now() + LOOKED, LOOKED);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Lookout { client: client.clone(), every, asked: None, told: BTreeSet::new() }
    }

    /// The workers that are there, each time that they have been looked for. Cancel-safe.
    pub(crate) async fn seen(&mut self) -> Vec<WorkerState> {
        loop {
            match &mut self.asked {
                None => {
                    self.every.tick().await;
                    let client = self.client.clone();
                    let asked = tokio::spawn(async move { client.workers().await });
                    self.asked = Some(AbortOnDropHandle::new(asked));
                }
                Some(asked) => {
                    let answered = asked.await;
                    self.asked = None;
                    // Whoever may not ask workers is told nothing.
                    if let Ok(Ok(there)) = answered {
                        return there;
                    }
                }
            }
        }
    }

    /// What is new about those who wait.
    pub(crate) fn news(&mut self, trace: &Trace, there: &[WorkerState]) -> Vec<String> {
        let waits = waits(trace, there);
        let news = waits.into_iter().filter(|(pool, _)| self.told.insert(pool.clone()));
        news.map(|(_, said)| said).collect()
    }
}
