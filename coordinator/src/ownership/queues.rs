//! How much work waits in the queues of the pools, for metrics. Of all coordinators the owner of the first partition asks, every few seconds, and
//! only if somebody reads its metrics.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bus::Consumer;
use domain::{
    PoolName,
    subject::{Filter, Partition, Subject},
};
use telemetry::metrics::{self, Queue};

use crate::loops::Handles;

const EVERY: Duration = Duration::from_secs(5);
/// Metrics name no more pools than this.
const MOST_POOLS: usize = 33;

pub(crate) async fn run(handles: Arc<Handles>) {
    let first = Partition::new(0).expect("there is a first partition");
    let told = metrics::tell_queues();
    let mut pools: BTreeSet<PoolName> = handles.config.topology.pools.iter().cloned().collect();
    pools.insert(PoolName::default_pool());
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if !metrics::is_on() || handles.epoch.since(first).is_none() {
            told.tell(Vec::new());
            continue;
        }
        match measured(&handles, &mut pools).await {
            Ok(queues) => told.tell(queues),
            // The last numbers would look as if all were well.
            Err(error) => {
                tracing::debug!(%error, "the queues of the pools can't be measured");
                told.tell(Vec::new());
            }
        }
    }
}

/// A pool that was seen once is told of from then on, also if nothing waits in it.
async fn measured(handles: &Handles, pools: &mut BTreeSet<PoolName>) -> Result<Vec<Queue>, bus::Error> {
    for subject in handles.bus.subjects(&Filter::Executes).await? {
        if let Subject::Execute(pool) = subject
            && pools.len() < MOST_POOLS
        {
            pools.insert(pool);
        }
    }
    let mut queues = Vec::with_capacity(pools.len());
    for pool in pools.iter() {
        let backlog = handles.bus.backlog(&Consumer::Execute(pool.clone())).await?;
        let oldest = backlog.oldest.map_or(0, |oldest| handles.clock.now().millis_since(oldest));
        queues.push(Queue {
            pool: pool.to_string(),
            pending: backlog.pending,
            ack_pending: backlog.unacknowledged,
            oldest: Duration::from_millis(oldest),
        });
    }
    Ok(queues)
}
