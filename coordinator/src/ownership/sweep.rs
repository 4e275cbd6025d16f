//! Looks for traces that are in the event log and not in the store. A coordinator sweeps a partition once
//! when it begins to own it, and again when the store has lost writes: nobody else would notice the loss of
//! a trace that only waits for a human or a timer.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use shared::{
    TraceId, bus,
    subject::{Filter, Partition, Subject},
};
use tokio::sync::mpsc;

use super::timer::SPARED_MS;
use crate::{
    handles::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Swept, Work},
    },
    store,
};

/// Interval at which unswept partitions are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Traces looked up at once.
const LOOKUP_BATCH: usize = 500;
/// How often a sweep is repeated for traces that can't be rebuilt. Some never can: their log has a gap.
const MAX_TRIES: u32 = 5;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the event log can't be listed")]
    Bus(#[from] bus::Error),
    #[error("the store can't be read")]
    Store(#[from] store::Error),
}

pub(crate) async fn run(handles: Arc<Handles>, dispatch: Dispatch) {
    let mut interval = tokio::time::interval(SWEEP_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut tries = 0;
    loop {
        interval.tick().await;
        let (number, partitions) = (handles.epoch.number(), handles.epoch.unswept());
        if partitions.is_empty() {
            tries = 0;
            continue;
        }
        match sweep(&handles, &dispatch, &partitions, number > 0).await {
            Ok(0) => handles.epoch.swept(&partitions, number),
            Ok(missing) => {
                tries += 1;
                tracing::warn!(missing, tries, "traces of the event log could not be rebuilt");
                if tries >= MAX_TRIES {
                    handles.epoch.swept(&partitions, number);
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the sweep failed; trying again")
            }
        }
    }
}

/// Wakes every trace that is not in the store; all traces, if the store has lost writes, because those that
/// are there may be old. Returns how many could not be loaded. A run that has expired is not one of them.
async fn sweep(handles: &Handles, dispatch: &Dispatch, of: &[Partition], all: bool) -> Result<usize, Error> {
    let subjects = handles.bus.subjects(&Filter::Events).await?;
    let trace = |subject| if let Subject::Event(trace_id, _) = subject { Some(trace_id) } else { None };
    let traces: BTreeSet<TraceId> = subjects.into_iter().filter_map(trace).collect();
    let traces: Vec<TraceId> = traces.into_iter().filter(|id| of.contains(&handles.partition(*id))).collect();
    // What comes from the log has been without a coordinator for a while.
    let spare_until = Some(handles.clock.now().plus_millis(SPARED_MS));
    let (waiting, mut done) = mpsc::channel(1);
    let swept = Swept { _waiting: waiting, failed: Arc::default() };
    for some in traces.chunks(LOOKUP_BATCH) {
        let versions = handles.store.versions(some).await?;
        for (trace_id, version) in some.iter().zip(versions) {
            if all || version == 0 {
                let origin = Origin::Sweep(swept.clone());
                dispatch.give(Job::new(*trace_id, Work::Wake { spare_until }, origin)).await;
            }
        }
    }
    let failed = swept.failed.clone();
    drop(swept);
    done.recv().await;
    Ok(failed.load(Ordering::Relaxed))
}
