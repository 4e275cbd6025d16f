//! Looks after the schedules of owned partitions: decides due ticks and submits their runs. If two
//! coordinators do so at once, one decides.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{ScheduleName, subject::Partition};
use futures_util::StreamExt;
use host::clock::Mark;
use tokio::sync::watch;

use crate::{error_log, loops::Handles, schedule_runner};

/// Schedules that are examined at the same time.
const AT_ONCE: usize = 32;
/// The time after which a schedule that has to wait is examined again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) async fn run(handles: Arc<Handles>, owned: watch::Receiver<Arc<Vec<Partition>>>) {
    let mut interval = tokio::time::interval(handles.config.timer_interval);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let clock = handles.config.clock;
    let mut waits: HashMap<ScheduleName, Mark> = HashMap::new();
    loop {
        interval.tick().await;
        waits.retain(|_, since| clock.since(*since) < LOOK_AGAIN_AFTER);
        let partitions = owned.borrow().clone();
        let count = handles.config.topology.partitions;
        let due = handles.schedules.due(&partitions, count, handles.clock.now());
        let due = due.into_iter().filter(|name| !waits.contains_key(name)).collect::<Vec<_>>();
        let looked = due.into_iter().map(|name| {
            let handles = &handles;
            async move {
                let waits = schedule_runner::look_after(handles, &name).await.unwrap_or_else(|error| {
                    error_log::tell(&error, None, "a schedule can't be processed now; trying again");
                    tracing::debug!(%name, "which");
                    true
                });
                waits.then_some(name)
            }
        });
        let left: Vec<Option<ScheduleName>> =
            futures_util::stream::iter(looked).buffer_unordered(AT_ONCE).collect().await;
        waits.extend(left.into_iter().flatten().map(|name| (name, clock.mark())));
    }
}
