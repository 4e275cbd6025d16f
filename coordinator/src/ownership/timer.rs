//! Wakes the traces whose timer is due. If two coordinators wake a trace at once, one commit wins. A wake
//! that finds nothing to do corrects the timer.

use std::{sync::Arc, time::Duration};

use shared::subject::Partition;
use tokio::sync::watch;

use crate::{
    handles::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Work},
    },
};

/// Traces of one partition woken in one round.
const AT_ONCE: usize = 500;

pub(crate) async fn run(
    handles: Arc<Handles>,
    dispatch: Dispatch,
    owned: watch::Receiver<Arc<Vec<Partition>>>,
) {
    let mut interval = tokio::time::interval(handles.config.timer_interval);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let partitions = owned.borrow().clone();
        if partitions.is_empty() {
            continue;
        }
        match handles.store.due(&partitions, handles.clock.now(), AT_ONCE).await {
            Ok(due) => {
                for trace_id in due {
                    dispatch.give(Job::new(trace_id, Work::Wake, Origin::Timer)).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "timers can't be read");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
