//! Contexts that wait for a worker although no worker of their pool exists. Coordinators don't know
//! the workers, so this module asks the workers themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use client::Client;
use domain::{PoolName, wire::WorkerState};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;
use trace::{Status, Trace};

/// The time that a context waits before its workers are looked up, and the interval of the lookups.
const LOOKED: Duration = Duration::from_secs(2);

/// For each pool without workers, a sentence about the contexts that wait for one.
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
        let said = format!("{} {wait} for a worker of the pool `{pool}`: none answers", nodes.join(", "));
        (pool, said)
    };
    pools.into_iter().map(said).collect()
}

/// Looks up workers while a watched run waits for one. Each pool is reported once.
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

    /// Waits for the next lookup and returns the workers that answered. Cancel-safe.
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
                    // A client without permission to list workers gets no report.
                    if let Ok(Ok(there)) = answered {
                        return there;
                    }
                }
            }
        }
    }

    /// The pools without workers that were not reported before.
    pub(crate) fn news(&mut self, trace: &Trace, there: &[WorkerState]) -> Vec<String> {
        let waits = waits(trace, there);
        let news = waits.into_iter().filter(|(pool, _)| self.told.insert(pool.clone()));
        news.map(|(_, said)| said).collect()
    }
}
