//! Looks for traces that the event log knows and the store does not. Whoever begins to own a partition
//! does this once, and again when the store is seen to have lost writes: a trace that only waits (for a
//! human, for its timer) would otherwise be missed by nobody.

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

/// How often is looked whether there is something to sweep.
const EVERY: Duration = Duration::from_millis(500);
/// Traces looked up at once.
const AT_ONCE: usize = 500;
/// How often traces are looked for that can't be had. Some never can: their beginning has aged out.
const MOST_TRIES: u32 = 5;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the event log can't be listed")]
    Bus(#[from] bus::Error),
    #[error("the store can't be asked")]
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
                tracing::warn!(missing, tries, "traces of the event log could not be had");
                if tries >= MOST_TRIES {
                    handles.epoch.swept(&partitions, number);
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the sweep is tried again")
            }
        }
    }
}

/// Has every trace looked at that is not in the store; all of them, if the store has lost writes, for
/// then what is there may be old. How many are still not there afterwards, though their log is whole.
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
