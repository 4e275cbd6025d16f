//! Wakes the traces whose timer is due. If two coordinators wake a trace at once, one commit wins.
//! A wake for which nothing is due corrects the timer.
//!
//! While no coordinator watches a partition, or the store can't be read, no lease can be renewed.
//! So leases that have expired by the time the watch begins again are extended for a moment. A
//! worker that waited with a call asks again in that time (B13); the loss of a worker is noticed a
//! little later.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{Timestamp, subject::Partition};
use host::clock::Mark;
use tokio::sync::watch;

use crate::{
    error_log,
    loops::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, LeaseGrace, Origin, SPARED_MS, Work},
    },
};

/// Traces of one partition woken in one round.
const MAX_WOKEN: usize = 500;
/// A longer time between two rounds is a gap in the watch.
const GAP: Duration = Duration::from_secs(2);

pub(crate) async fn run(
    handles: Arc<Handles>,
    dispatch: Dispatch,
    owned: watch::Receiver<Arc<Vec<Partition>>>,
) {
    let mut interval = tokio::time::interval(handles.config.timer_interval);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut watched = WatchedSince { since: HashMap::new(), last: handles.config.clock.mark() };
    loop {
        interval.tick().await;
        let partitions = owned.borrow().clone();
        if partitions.is_empty() {
            continue;
        }
        match handles.store.due(&partitions, handles.clock.now(), MAX_WOKEN).await {
            Ok(due) => {
                let now = handles.clock.now();
                watched.round(&handles, &partitions, now);
                for trace_id in due {
                    let spare = watched.spare(handles.partition(trace_id), now);
                    dispatch.give(Job::new(trace_id, Work::Wake(spare), Origin::Timer)).await;
                }
            }
            Err(error) => {
                error_log::tell(&error, None, "timers can't be read");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Since when each partition has been watched without a gap.
struct WatchedSince {
    since: HashMap<Partition, Timestamp>,
    last: Mark,
}

impl WatchedSince {
    fn round(&mut self, handles: &Handles, partitions: &[Partition], now: Timestamp) {
        let clock = handles.config.clock;
        if clock.since(self.last) > GAP {
            self.since.clear();
        }
        self.last = clock.mark();
        self.since.retain(|partition, _| partitions.contains(partition));
        for partition in partitions {
            self.since.entry(*partition).or_insert(now);
        }
    }

    /// Leases of a partition are extended for a moment after its watch begins.
    fn spare(&self, partition: Partition, now: Timestamp) -> LeaseGrace {
        let until = self.since.get(&partition).map(|since| since.plus_millis(SPARED_MS));
        until.filter(|until| now < *until).map_or(LeaseGrace::No, LeaseGrace::Until)
    }
}
