//! Removes runs that have been over for the retention: first their journals and objects on the bus,
//! then their state. If a coordinator dies in between, the state still exists, and another
//! coordinator starts again. So no journal stays behind without a state that leads to it. A run is
//! kept while a branch or a rerun still needs its data.

use std::{sync::Arc, time::Duration};

use domain::{TraceId, subject::Partition, time::millis};
use futures_util::StreamExt;
use tokio::sync::watch;
use trace::Trace;

use crate::{
    dependents, error_log,
    loops::Handles,
    removal,
    sealed::OpenResult as Stored,
    store::{self, Record},
};

/// Runs of one partition that are removed in one round.
const MAX_REMOVED: usize = 200;
/// Runs that are removed at the same time.
const AT_ONCE: usize = 8;
/// After how many rounds a run that could not be removed is tried again.
const LOOK_AGAIN_ROUNDS: u32 = 5;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("its journals and objects can't be removed")]
    Bus(#[from] bus::Error),
    #[error("the store can't be used")]
    Store(#[from] store::Error),
    #[error("it is unknown whether a branch needs it")]
    Branches(#[from] dependents::Error),
}

/// The result of removing a run.
enum RemovalOutcome {
    Removed,
    /// The run has changed meanwhile, still has something to send, or is needed by a branch.
    Kept,
}

pub(crate) async fn run(handles: Arc<Handles>, owned: watch::Receiver<Arc<Vec<Partition>>>) {
    let mut interval = tokio::time::interval(round(handles.config.retention));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let partitions = owned.borrow().clone();
        if partitions.is_empty() {
            continue;
        }
        let until = handles.clock.now().minus_millis(handles.retention_ms());
        match handles.store.ended(&partitions, until, MAX_REMOVED).await {
            Ok(ended) => {
                let removals = ended.into_iter().map(|trace_id| remove_or_put_off(&handles, trace_id));
                futures_util::stream::iter(removals).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
            }
            Err(error) => error_log::tell(&error, None, "ended runs can't be listed"),
        }
    }
}

/// The time between two rounds: a small part of the retention.
fn round(retention: Duration) -> Duration {
    (retention / 20).clamp(Duration::from_millis(200), Duration::from_secs(10))
}

async fn remove_or_put_off(handles: &Handles, trace_id: TraceId) {
    match remove(handles, trace_id).await {
        Ok(RemovalOutcome::Removed) => return,
        Ok(RemovalOutcome::Kept) => {}
        Err(error) => {
            error_log::tell(&error, Some(trace_id), "an ended run could not be removed; trying again later");
        }
    }
    // A run that can't be removed must not block the list for ever.
    let pause = millis(round(handles.config.retention) * LOOK_AGAIN_ROUNDS);
    let later = handles.clock.now().minus_millis(handles.retention_ms()).plus_millis(pause);
    if let Err(error) = handles.store.put_off(trace_id, later).await {
        tracing::debug!(%trace_id, %error, "the removal of a run could not be put off");
    }
}

/// Returns true if the stored trace has been over for the retention.
fn has_ended(handles: &Handles, id: TraceId, record: &Record) -> bool {
    let until = handles.clock.now().minus_millis(handles.retention_ms());
    let trace = Trace::from_stored(id, record.version, &record.fields, &record.values);
    trace.is_ok_and(|trace| {
        let ended = trace.root().and_then(|root| root.end()).is_none_or(|end| end.at <= until);
        trace.is_over() && ended
    })
}

async fn remove(handles: &Handles, trace_id: TraceId) -> Result<RemovalOutcome, Error> {
    let version = match handles.store.load(&[trace_id]).await?.pop().map(|loaded| loaded.found) {
        // Only the entry in the list is left. The messages on the bus stay: the trace may be
        // rebuilt from them.
        Some(Stored::Nothing) | None => {
            let removed = handles.store.remove(trace_id, 0).await?;
            return Ok(if removed { RemovalOutcome::Removed } else { RemovalOutcome::Kept });
        }
        Some(Stored::Whole(record, _)) if has_ended(handles, trace_id, &record) => record.version,
        // The list says that the run has ended, but the list is not signed.
        Some(Stored::Whole(..) | Stored::Refused(_) | Stored::Foreign(_) | Stored::Damaged(_)) => {
            tracing::warn!(%trace_id, "a run listed for removal is kept: its retention has not passed, or its state is not authentic");
            return Ok(RemovalOutcome::Kept);
        }
    };
    if !dependents::of(handles, trace_id).await?.is_empty() {
        return Ok(RemovalOutcome::Kept);
    }
    removal::trace(&handles.bus, trace_id).await?;
    let removed = handles.store.remove(trace_id, version).await?;
    Ok(if removed { RemovalOutcome::Removed } else { RemovalOutcome::Kept })
}
