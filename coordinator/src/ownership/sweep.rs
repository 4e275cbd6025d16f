//! Looks for traces that the store does not have as the event log has them. A coordinator sweeps a partition once
//! when it begins to own it, and again when the store has lost writes, or another coordinator ended that may have seen
//! it lose some: nobody else would notice the loss of a trace that only waits for a human or a timer. What the log has up
//! to the partition's mark is in the store, and is not looked at (docs/decisions/005-mark.md).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::StreamExt;
use shared::{
    Timestamp, TraceId,
    bus::{self, Head},
    subject::{Filter, Partition, Subject},
    time::millis,
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    epoch::Unswept,
    handles::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Spare, Swept, Work},
        outbox::Outbox,
        rebuild,
    },
    store::{self, LogMark},
    trace::Trace,
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
/// the store may have lost writes while nobody watched; or of which the log has two commits in one place. If we saw the
/// store lose writes, wakes all of them. Where no mark says where to look, and somebody else may have seen it lose some, also
/// those that something happened to lately. Returns how many could not be loaded, and what the partitions had before
/// the log was looked at. A run that has expired is not missing.
async fn sweep(
    handles: &Handles,
    dispatch: &Dispatch,
    of: &Unswept,
) -> Result<(usize, HashMap<Partition, LogMark>), Error> {
    let marks = handles.store.log_marks(&of.partitions).await?;
    let marks: HashMap<Partition, LogMark> = of.partitions.iter().copied().zip(marks).collect();
    let traces: Vec<(TraceId, Logged)> = behind(handles, &marks).await?.into_iter().collect();
    let lately = (of.doubts > 0).then(|| lately(handles));
    let (waiting, mut done) = mpsc::channel(1);
    let swept = Swept { _waiting: waiting, whole: false, failed: Arc::default() };
    for some in traces.chunks(LOOKUP_BATCH) {
        let ids: Vec<TraceId> = some.iter().map(|(id, _)| *id).collect();
        let stored = handles.store.fields(&ids, &[Trace::MADE_FIELD]).await?;
        let looked = some.iter().copied().zip(stored).map(|((trace_id, logged), stored)| async move {
            let stored = stored.get(Trace::MADE_FIELD).and_then(|text| serde_json::from_str(text).ok());
            let wake = of.number > 0
                || stored.is_none()
                || match logged {
                    Logged::Commits { last, branched } => branched || Some(last) > stored,
                    Logged::Unknown => {
                        let last = rebuild::last_made(&handles.bus, trace_id).await;
                        // What can't be read is found when the trace is loaded.
                        last.is_none() || last > stored || lately.is_some_and(|lately| last > Some(lately))
                    }
                };
            (trace_id, logged, wake)
        });
        let looked: Vec<_> = futures_util::stream::iter(looked).buffered(LOGS_AT_ONCE).collect().await;
        for (trace_id, logged, _) in looked.into_iter().filter(|(.., wake)| *wake) {
            let whole = matches!(logged, Logged::Commits { branched: true, .. });
            let origin = Origin::Sweep(Swept { whole, ..swept.clone() });
            // What comes from the log has been without a coordinator for a while.
            dispatch.give(Job::new(trace_id, Work::Wake(Spare::Anew), origin)).await;
        }
    }
    let failed = swept.failed.clone();
    drop(swept);
    done.recv().await;
    Ok((failed.load(Ordering::Relaxed), marks))
}

/// Since when a coordinator that ended may have seen the store lose writes. A sweep that is repeated looks as far back.
fn lately(handles: &Handles) -> Timestamp {
    let now = handles.clock.now();
    let longest = now.minus_millis(millis(handles.config.mark_lag));
    handles.epoch.lost_at().unwrap_or(now).max(longest).minus_millis(LATELY_MS)
}

/// What the log has of a trace behind a mark, by the ids of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logged {
    Commits {
        /// When the last of them was made.
        last: Timestamp,
        /// Two of them are in the same place: the store lost one, and the other was made without it.
        branched: bool,
    },
    /// It has to be asked for.
    Unknown,
}

/// The traces of these partitions of which the log has something behind the mark of their partition. Where there is no mark,
/// or one of another log, all of them.
async fn behind(
    handles: &Handles,
    marks: &HashMap<Partition, LogMark>,
) -> Result<BTreeMap<TraceId, Logged>, bus::Error> {
    let end = handles.bus.end(&Filter::Events).await?;
    let valid = |mark: &LogMark| mark.position.filter(|position| position.is_in(end));
    let after = |id: TraceId| marks.get(&handles.partition(id)).map(|mark| valid(mark).map(|at| at.sequence));
    let trace = |subject| if let Subject::Event(trace_id, _) = subject { Some(trace_id) } else { None };
    let mut traces = BTreeMap::new();
    if let Some(lowest) = marks.values().filter_map(valid).min() {
        let mut events = Vec::new();
        let mut add = |Head { subject, sequence, id }: Head| {
            let is_behind = |id: &TraceId| after(*id).flatten().is_some_and(|after| sequence > after);
            if let Some(trace) = trace(subject).filter(is_behind) {
                events.push((trace, id.as_deref().and_then(Outbox::event_by_id)));
            }
        };
        handles.bus.each_since(&Filter::Events, lowest.sequence, &mut add).await?;
        traces = commits(events);
    }
    if marks.values().any(|mark| valid(mark).is_none()) {
        let subjects = handles.bus.subjects(&Filter::Events).await?;
        let all = subjects.into_iter().filter_map(trace).filter(|id| after(*id) == Some(None));
        traces.extend(all.map(|id| (id, Logged::Unknown)));
    }
    Ok(traces)
}

/// What messages say of their traces; of each message its version, and when its commit was made.
fn commits(mut events: Vec<(TraceId, Option<(u64, Timestamp)>)>) -> BTreeMap<TraceId, Logged> {
    events.sort_unstable();
    events.dedup();
    let mut traces = BTreeMap::new();
    for of_one in events.chunk_by(|(one, _), (other, _)| one == other) {
        let known: Option<Vec<(u64, Timestamp)>> = of_one.iter().map(|(_, event)| *event).collect();
        let logged = known.map_or(Logged::Unknown, |events| Logged::Commits {
            last: events.iter().map(|(_, made)| *made).max().unwrap_or_default(),
            branched: events.windows(2).any(|pair| pair[0].0 == pair[1].0),
        });
        traces.insert(of_one[0].0, logged);
    }
    traces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f19_ids_tell_which_traces_have_two_commits_in_one_place() {
        let [one, two, three] = [1, 2, 3].map(|n| TraceId::from_u128(n).unwrap());
        let event = |trace: TraceId, version: u64, made: u64| {
            let id = format!("{trace}.{version}-{made}.event");
            (trace, Outbox::event_by_id(&id))
        };
        let found = commits(vec![
            event(one, 1, 10),
            event(two, 1, 11),
            event(one, 4, 12),
            event(one, 4, 12),
            event(two, 2, 15),
            event(two, 2, 13),
            event(three, 1, 9),
            (three, Outbox::event_by_id("agent.event.x.y.12.bare")),
        ]);
        let known = |millis, branched| Logged::Commits { last: Timestamp::from_millis(millis), branched };
        assert_eq!(found[&one], known(12, false), "a message that was sent again is no branch");
        assert_eq!(found[&two], known(15, true));
        assert_eq!(found[&three], Logged::Unknown);
    }
}
