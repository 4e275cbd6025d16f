//! Metrics of the traces in a shard's memory: live contexts, their holds, and unsent outboxes. They
//! are computed every few seconds, and only if metrics are on. A trace of a partition that another
//! coordinator owns is left to that coordinator.

use std::time::Duration;

use domain::Timestamp;
use telemetry::metrics::{self, GaugeHandle, Live};
use tokio::time::Instant;
use trace::Status;

use super::cache::{Cache, Entry};
use crate::loops::Handles;

const EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Tally {
    told: GaugeHandle<Live>,
    next: Instant,
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally { told: metrics::tell_runs(), next: Instant::now() }
    }

    /// Computes the gauges, if the interval has passed.
    pub(super) fn count(&mut self, handles: &Handles, cache: &Cache) {
        let now = Instant::now();
        if !metrics::is_on() || now < self.next {
            return;
        }
        self.next = now + EVERY;
        let owned = |entry: &&Entry| handles.epoch.since(handles.partition(entry.trace.id())).is_some();
        self.told.tell(counted(cache.all().filter(owned), handles.clock.now()));
    }
}

fn counted<'a>(entries: impl Iterator<Item = &'a Entry>, now: Timestamp) -> Live {
    let mut live = Live::default();
    for entry in entries {
        live.unsent += entry.unsent.len() as u64;
        let Some(root) = entry.trace.root().filter(|_| !entry.trace.is_over()) else { continue };
        live.held_nanos = live.held_nanos.saturating_add(root.budget.held.cost_usd.nanos());
        live.oldest = live.oldest.max(Duration::from_millis(now.millis_since(root.identity.started_at)));
        for node in entry.trace.contexts() {
            let place = match &node.status {
                Status::Submitted { .. } => 0,
                Status::Working(_) => 1,
                Status::InputRequired { .. } => 2,
                Status::Paused { .. } => 3,
                Status::Ended(_) => continue,
            };
            live.contexts[place] += 1;
        }
    }
    live
}
