//! Measures the work that waits in the queues of the pools, for metrics. Only the owner of the
//! first partition measures, every few seconds, and only while metrics are on.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bus::Consumer;
use domain::{
    PoolName,
    subject::{Filter, Partition, Subject},
};
use telemetry::metrics::{self, Queue};

use crate::loops::Handles;

const EVERY: Duration = Duration::from_secs(5);
/// The most pools in metrics.
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
            // The last numbers would look like a healthy system.
            Err(error) => {
                tracing::debug!(%error, "the queues of the pools can't be measured");
                told.tell(Vec::new());
            }
        }
    }
}

/// A pool that was seen once is reported from then on, even if its queue is empty.
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
