//! Sees to it that the event log keeps a beginning of every live trace when it has no room left: a full log drops its
//! oldest messages. Live traces that begin in its older half are copied into it again. (Those that only grow old are
//! copied by their timer.)
//!
//! Copies fill the log too. So a trace is copied again only after minutes: a log that is too small for what lives loses some
//! beginnings, and does not fill itself for ever.

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
/// From here on the log is about to drop messages.
const NEARLY_FULL_PERCENT: u64 = 75;
/// Live traces are looked through again when so much of the log is new, or gone: a part of it.
const NEW_PART: u64 = 8;
/// The least time between two copies of a trace.
const LEAST: Duration = Duration::from_secs(300);
/// Traces looked up at once.
const LOOKUP_BATCH: usize = 500;
/// Traces copied at once, and the pause after them: others have to be served too.
const COPIED_AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(100);
/// More than a partition has.
const ALL: usize = 10_000_000;
/// How long a message of the log is waited for that should be there.
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
    // The oldest and the newest message when live traces were last looked through.
    let mut looked_at = (0, 0);
    loop {
        interval.tick().await;
        let event_log = |fill: &&Fill| fill.storage == Storage::Stream(Stream::Event);
        let fill = handles.room.fills().iter().find(event_log).copied();
        let Some(fill) = fill.filter(|fill| fill.percent() >= NEARLY_FULL_PERCENT) else { continue };
        if fill.last < looked_at.1 {
            // It was made anew.
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

/// Copies the live traces whose last copy, or beginning, is before this message of the log; returns how many.
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

/// When the event at this place of the log, or the next, was logged; none if there is none.
async fn logged_at(bus: &Bus, sequence: u64) -> Result<Option<Timestamp>, bus::Error> {
    let mut follow = bus.follow(&[Filter::Events], From::Sequence(sequence)).await?;
    let Ok(next) = tokio::time::timeout(READ_WITHIN, follow.next()).await else { return Ok(None) };
    Ok(serde_json::from_slice::<LoggedEvents>(&next?.payload).ok().map(|logged| logged.at))
}
