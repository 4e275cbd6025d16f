//! Keeps a beginning of every live trace in an event log that is nearly full, because a full log
//! drops its oldest messages. Live traces that begin in the older half of the log are copied into
//! it again. (Traces that only grow old are copied by their timer.)
//!
//! Copies fill the log too. So a trace is copied again only after minutes: a log that is too small
//! for its live traces loses some beginnings, instead of filling itself for ever.

use std::{sync::Arc, time::Duration};

use bus::{Bus, Fill, From, Storage, Stream};
use domain::{
    Timestamp, TraceId,
    subject::{Filter, Partition},
    time::millis,
};
use tokio::sync::watch;
use trace::{Command, LoggedEvents, Trace};

use crate::{
    error_log,
    loops::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin},
    },
    store,
};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// From this level on the log is about to drop messages.
const NEARLY_FULL_PERCENT: u64 = 75;
/// Live traces are examined again when one such part of the log is new, or was dropped.
const NEW_PART: u64 = 8;
/// The least time between two copies of a trace.
const LEAST: Duration = Duration::from_secs(300);
/// Traces whose fields are read in one request.
const LOOKUP_BATCH: usize = 500;
/// Traces copied at once, and the pause after them: other traces have to be served too.
const COPIED_AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(100);
/// More traces than a partition has.
const ALL: usize = 10_000_000;
/// Time limit for reading an event of the log.
const READ_WITHIN: Duration = Duration::from_secs(5);

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
    // The oldest and the newest message when live traces were last examined.
    let mut looked_at = (0, 0);
    loop {
        interval.tick().await;
        let event_log = |fill: &&Fill| fill.storage == Storage::Stream(Stream::Event);
        let fill = handles.room.fills().iter().find(event_log).copied();
        let Some(fill) = fill.filter(|fill| fill.percent() >= NEARLY_FULL_PERCENT) else { continue };
        if fill.last < looked_at.1 {
            // The log was made anew.
            looked_at = (0, 0);
        }
        let span = fill.last.saturating_sub(fill.first);
        let partitions = owned.borrow().clone();
        let moved = (fill.last - looked_at.1).max(fill.first.saturating_sub(looked_at.0));
        if moved < span / NEW_PART || partitions.is_empty() {
            continue;
        }
        match copy(&handles, &dispatch, &partitions, fill.first + span / 2).await {
            Ok(copied) => {
                looked_at = (fill.first, fill.last);
                if copied > 0 {
                    tracing::debug!(
                        copied,
                        "the event log is nearly full: live traces were copied into it again"
                    );
                }
            }
            Err(error) => {
                error_log::tell(&error, None, "live traces could not be copied; trying again");
            }
        }
    }
}

/// Copies the live traces whose last copy, or beginning, is before this message of the log. Returns
/// their number.
async fn copy(
    handles: &Handles,
    dispatch: &Dispatch,
    partitions: &[Partition],
    middle: u64,
) -> Result<usize, Error> {
    let Some(before) = logged_at(&handles.bus, middle).await? else { return Ok(0) };
    let (end, mut copied) = (Timestamp::from_millis(u64::MAX), 0);
    for partition in partitions {
        let live = handles.store.due(std::slice::from_ref(partition), end, ALL).await?;
        for some in live.chunks(LOOKUP_BATCH) {
            let fields = [Trace::COPIED_FIELD, Trace::SUMMARY_FIELDS[0]];
            let stored = handles.store.fields(some, &fields).await?;
            let now = handles.clock.now();
            let lately = now.minus_millis(millis(LEAST));
            let is_old = |fields| match Trace::begins_at(fields) {
                Ok(Some((at, is_copy))) => at < before && (!is_copy || at < lately),
                Ok(None) | Err(_) => false,
            };
            let old = some.iter().zip(&stored).filter(|(_, fields)| is_old(fields));
            let command = Command::Copy { after_ms: now.millis_since(before) };
            for old in old.map(|(id, _)| *id).collect::<Vec<TraceId>>().chunks(COPIED_AT_ONCE) {
                for id in old {
                    dispatch.give(Job::order(*id, command.clone(), Origin::Timer)).await;
                }
                copied += old.len();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(copied)
}

/// When the event at this place of the log, or the next event, was logged; none without such an
/// event.
async fn logged_at(bus: &Bus, sequence: u64) -> Result<Option<Timestamp>, bus::Error> {
    let mut follow = bus.follow(&[Filter::Events], From::Sequence(sequence)).await?;
    let Ok(next) = tokio::time::timeout(READ_WITHIN, follow.next()).await else { return Ok(None) };
    Ok(serde_json::from_slice::<LoggedEvents>(&next?.payload).ok().map(|logged| logged.at))
}
