//! Sees to it that the event log keeps a beginning of every live trace when it has no room left: a full log drops its
//! oldest messages. Live traces that begin in its older half are copied into it again. (Those that only grow old are
//! copied by their timer.)

use std::{sync::Arc, time::Duration};

use shared::{
    Timestamp, TraceId,
    bus::{self, Bus, Fill, From, Storage, Stream},
    subject::{Filter, Partition},
};
use tokio::sync::watch;

use crate::{
    handles::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin},
    },
    store,
    trace::{Command, Logged, Trace},
};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// From here on the log is about to drop messages.
const NEARLY_FULL_PERCENT: u64 = 75;
/// Live traces are looked through again when so much of the log is new: a part of it.
const NEW_PART: u64 = 8;
/// Traces looked up at once.
const LOOKUP_BATCH: usize = 500;
/// More than a partition has.
const ALL: usize = 10_000_000;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the event log can't be read")]
    Bus(#[from] bus::Error),
    #[error("the store can't be read")]
    Store(#[from] store::Error),
}

pub(crate) async fn run(
    handles: Arc<Handles>,
    dispatch: Dispatch,
    owned: watch::Receiver<Arc<Vec<Partition>>>,
) {
    let mut interval = tokio::time::interval(LOOK_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The newest message when live traces were last looked through.
    let mut looked_at = 0;
    loop {
        interval.tick().await;
        let event_log = |fill: &&Fill| fill.storage == Storage::Stream(Stream::Event);
        let fill = handles.room.fills().iter().find(event_log).copied();
        let Some(fill) = fill.filter(|fill| fill.percent() >= NEARLY_FULL_PERCENT) else { continue };
        let span = fill.last.saturating_sub(fill.first);
        if fill.last < looked_at + span / NEW_PART {
            continue;
        }
        let partitions = owned.borrow().clone();
        match copy(&handles, &dispatch, &partitions, fill.first + span / 2).await {
            Ok(()) => looked_at = fill.last,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "live traces could not be copied; trying again"
                );
            }
        }
    }
}

/// Copies the live traces whose last copy, or beginning, is before this message of the log.
async fn copy(
    handles: &Handles,
    dispatch: &Dispatch,
    partitions: &[Partition],
    middle: u64,
) -> Result<(), Error> {
    let Some(before) = logged_at(&handles.bus, middle).await? else { return Ok(()) };
    let (end, mut copied) = (Timestamp::from_millis(u64::MAX), 0);
    for partition in partitions {
        let live = handles.store.due(std::slice::from_ref(partition), end, ALL).await?;
        for some in live.chunks(LOOKUP_BATCH) {
            let fields = [Trace::COPIED_FIELD, Trace::SUMMARY_FIELDS[0]];
            let stored = handles.store.fields(some, &fields).await?;
            let is_old = |fields| Trace::begins_at(fields).is_ok_and(|at| at.is_some_and(|at| at < before));
            let old = some.iter().zip(&stored).filter(|(_, fields)| is_old(fields));
            for trace_id in old.map(|(id, _)| *id).collect::<Vec<TraceId>>() {
                copied += 1;
                dispatch.give(Job::command(trace_id, Command::Copy { before }, Origin::Timer)).await;
            }
        }
    }
    tracing::info!(copied, "the event log is nearly full: live traces were copied into it again");
    Ok(())
}

/// When the event at this place of the log, or the next, was logged.
async fn logged_at(bus: &Bus, sequence: u64) -> Result<Option<Timestamp>, bus::Error> {
    let next = bus.follow(&[Filter::Events], From::Sequence(sequence)).await?.next().await?;
    Ok(serde_json::from_slice::<Logged>(&next.payload).ok().map(|logged| logged.at))
}
