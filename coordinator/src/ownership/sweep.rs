//! Looks for traces that the store does not have as the event log has them. A coordinator sweeps a partition once
//! when it begins to own it, and again when the store has lost writes, or another coordinator ended that may have seen
//! it lose some: nobody else would notice the loss of a trace that only waits for a human or a timer. What the log has up
//! to the partition's mark is in the store, and is not looked at (docs/decisions/005-mark.md).

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt};
use shared::{
    Timestamp, TraceId,
    bus::{self, Bus},
    subject::{Filter, Partition, Subject},
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    epoch::Unswept,
    handles::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Spare, Swept, Work},
    },
    store::{self, LogMark},
    trace::Logged,
};

/// Interval at which unswept partitions are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Logs read at once.
const LOGS_AT_ONCE: usize = 32;
/// Traces looked up at once.
const LOOKUP_BATCH: usize = 500;
/// If a coordinator ended that may have seen the store lose writes, they were made in its last minutes.
const LATELY_MS: u64 = 120_000;
/// How often a sweep is repeated for traces that can't be rebuilt, each time after a longer pause. A gap in a log is
/// waited for; some traces never can be rebuilt.
const MAX_TRIES: u32 = 8;

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
    let mut paused = ((0, 0), Instant::now());
    loop {
        interval.tick().await;
        let unswept = handles.epoch.unswept();
        let reasons = (unswept.number, unswept.doubts);
        if unswept.partitions.is_empty() {
            tries = 0;
            continue;
        }
        if paused.0 == reasons && Instant::now() < paused.1 {
            continue;
        }
        match sweep(&handles, &dispatch, &unswept).await {
            Ok((0, marks)) => handles.epoch.swept(&unswept, &marks),
            Ok((missing, _)) => {
                tries += 1;
                paused = (reasons, Instant::now() + SWEEP_EVERY * (1 << tries.min(MAX_TRIES)));
                tracing::warn!(missing, tries, "traces of the event log could not be rebuilt");
                if tries >= MAX_TRIES {
                    handles.epoch.swept(&unswept, &HashMap::new());
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the sweep failed; trying again")
            }
        }
    }
}

/// Of the traces behind the marks, wakes every one that is not in the store, or is there in an older version than in its log:
/// the store may have lost writes while nobody watched. If we saw it lose writes, wakes all of them; if somebody else may
/// have, those that something happened to lately. Returns how many could not be loaded, and what the partitions had before
/// the log was looked at. A run that has expired is not missing.
async fn sweep(
    handles: &Handles,
    dispatch: &Dispatch,
    of: &Unswept,
) -> Result<(usize, HashMap<Partition, LogMark>), Error> {
    let marks = handles.store.log_marks(&of.partitions).await?;
    let marks: HashMap<Partition, LogMark> = of.partitions.iter().copied().zip(marks).collect();
    let traces: Vec<TraceId> = behind(handles, &marks).await?.into_iter().collect();
    let lately = (of.doubts > 0).then(|| handles.clock.now().minus_millis(LATELY_MS));
    let (waiting, mut done) = mpsc::channel(1);
    let swept = Swept { _waiting: waiting, failed: Arc::default() };
    for some in traces.chunks(LOOKUP_BATCH) {
        let versions = handles.store.versions(some).await?;
        let looked = some.iter().copied().zip(versions).map(|(trace_id, version)| async move {
            let wake = of.number > 0 || version == 0 || {
                let (logged, at) = last_logged(&handles.bus, trace_id).await?;
                logged > version || lately.is_some_and(|lately| at > lately)
            };
            Ok::<_, bus::Error>((trace_id, wake))
        });
        let looked: Vec<_> = futures_util::stream::iter(looked).buffered(LOGS_AT_ONCE).try_collect().await?;
        for (trace_id, wake) in looked {
            if wake {
                let origin = Origin::Sweep(swept.clone());
                // What comes from the log has been without a coordinator for a while.
                dispatch.give(Job::new(trace_id, Work::Wake(Spare::Anew), origin)).await;
            }
        }
    }
    let failed = swept.failed.clone();
    drop(swept);
    done.recv().await;
    Ok((failed.load(Ordering::Relaxed), marks))
}

/// The traces of these partitions of which the log has something behind the mark of their partition. Where there is no mark,
/// or one of another log, all of them.
async fn behind(
    handles: &Handles,
    marks: &HashMap<Partition, LogMark>,
) -> Result<BTreeSet<TraceId>, bus::Error> {
    let end = handles.bus.end(&Filter::Events).await?;
    let valid = |mark: &LogMark| mark.position.filter(|position| position.is_in(end));
    let after = |id: TraceId| marks.get(&handles.partition(id)).map(|mark| valid(mark).map(|at| at.sequence));
    let trace = |subject| if let Subject::Event(trace_id, _) = subject { Some(trace_id) } else { None };
    let mut traces = BTreeSet::new();
    if let Some(lowest) = marks.values().filter_map(valid).min() {
        let subjects = handles.bus.subjects_since(&Filter::Events, lowest.sequence).await?;
        for (subject, sequence) in subjects {
            let is_behind = |id: &TraceId| after(*id).flatten().is_some_and(|after| sequence > after);
            traces.extend(trace(subject).filter(is_behind));
        }
    }
    if marks.values().any(|mark| valid(mark).is_none()) {
        let subjects = handles.bus.subjects(&Filter::Events).await?;
        traces.extend(subjects.into_iter().filter_map(trace).filter(|id| after(*id) == Some(None)));
    }
    Ok(traces)
}

/// The version and the time of the last message in a trace's log. Mostly it is the newest; a message that was sent again
/// is stored behind later ones, and then the trace looks older than it is.
async fn last_logged(bus: &Bus, id: TraceId) -> Result<(u64, Timestamp), bus::Error> {
    let last = bus.last(&Filter::EventsOf(id)).await?;
    // What can't be read is found when the trace is loaded.
    let logged = last.and_then(|last| serde_json::from_slice::<Logged>(&last.payload).ok());
    Ok(logged.map_or_else(Default::default, |logged| (logged.last_version(), logged.at)))
}
