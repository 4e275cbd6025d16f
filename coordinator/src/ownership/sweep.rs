//! Looks for traces that are in the event log and not in the store. A coordinator sweeps a partition once
//! when it begins to own it, and again when the store has lost writes: nobody else would notice the loss of
//! a trace that only waits for a human or a timer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use shared::{
    TraceId, bus,
    subject::{Filter, Partition, Subject},
};
use tokio::sync::mpsc;

use crate::{
    handles::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Work},
    },
    store,
};

/// Interval at which unswept partitions are looked for.
const EVERY: Duration = Duration::from_millis(500);
/// Traces looked up at once.
const AT_ONCE: usize = 500;
/// How often a sweep is repeated for traces that can't be rebuilt. Some never can: their first events have
/// expired.
const MOST_TRIES: u32 = 5;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the event log can't be listed")]
    Bus(#[from] bus::Error),
    #[error("the store can't be read")]
    Store(#[from] store::Error),
}

pub(crate) async fn run(handles: Arc<Handles>, dispatch: Dispatch) {
    let mut interval = tokio::time::interval(EVERY);
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
                if tries >= MOST_TRIES {
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
/// are there may be old. Returns how many are still missing afterwards.
async fn sweep(handles: &Handles, dispatch: &Dispatch, of: &[Partition], all: bool) -> Result<usize, Error> {
    let subjects = handles.bus.subjects(&Filter::Events).await?;
    let trace = |subject| if let Subject::Event(trace_id, _) = subject { Some(trace_id) } else { None };
    let traces: BTreeSet<TraceId> = subjects.into_iter().filter_map(trace).collect();
    let traces: Vec<TraceId> = traces.into_iter().filter(|id| of.contains(&handles.partition(*id))).collect();
    let mut lost = Vec::new();
    let (waiting, mut done) = mpsc::channel(1);
    for some in traces.chunks(AT_ONCE) {
        let versions = handles.store.versions(some).await?;
        for (trace_id, version) in some.iter().zip(versions) {
            if all || version == 0 {
                let origin = Origin::Sweep { _waiting: waiting.clone() };
                dispatch.give(Job::new(*trace_id, Work::Wake, origin)).await;
            }
            if version == 0 {
                lost.push(*trace_id);
            }
        }
    }
    drop(waiting);
    done.recv().await;
    let mut missing = 0;
    for some in lost.chunks(AT_ONCE) {
        missing += handles.store.versions(some).await?.into_iter().filter(|version| *version == 0).count();
    }
    Ok(missing)
}
