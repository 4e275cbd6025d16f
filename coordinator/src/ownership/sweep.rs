//! Finds traces whose stored state lacks commits of the event log. A coordinator sweeps a partition
//! when it begins to own it. It sweeps again when the store has lost writes, or when another
//! coordinator ended that may have seen a loss. No other check would notice the loss of a trace
//! that only waits for a human or a timer. The log up to the partition's mark is in the store, and
//! is not read (docs/decisions/005-mark.md).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bus::Head;
use domain::{
    Timestamp, TraceId,
    subject::{Filter, Partition, Subject},
};
use tokio::{sync::mpsc, time::Instant};
use trace::Trace;

use crate::{
    epoch::SweepRequest,
    error_log,
    loops::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, LeaseGrace, Origin, SweepProgress, Work},
        outbox::Outbox,
    },
    store::{self, LogMark},
};

/// Interval at which the sweep checks for unswept partitions.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Traces whose fields are read in one request.
const LOOKUP_BATCH: usize = 500;
/// The most sweeps for traces that can't be rebuilt, each after a longer pause. A gap in a log may
/// still be filled; some traces can never be rebuilt.
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
            Err(error) => error_log::tell(&error, None, "the sweep failed; trying again"),
        }
    }
}

/// Wakes the traces that have messages after their partition's mark, if the store may lack commits
/// of them. That is so if the trace is missing in the store or older there, or if its log has two
/// commits in one place. After an observed loss every such trace is woken. Returns how many traces
/// could not be loaded, and the state of the partitions before the log was read. An expired run is
/// not missing.
async fn sweep(
    handles: &Handles,
    dispatch: &Dispatch,
    of: &SweepRequest,
) -> Result<(usize, HashMap<Partition, LogMark>), Error> {
    let marks = handles.store.log_marks(&of.partitions).await?;
    let marks: HashMap<Partition, LogMark> = of.partitions.iter().copied().zip(marks).collect();
    let traces: Vec<(TraceId, LoggedTrace)> = behind(handles, &marks).await?.into_iter().collect();
    let (waiting, mut done) = mpsc::channel(1);
    let swept = SweepProgress { _waiting: waiting, whole: false, failed: Arc::default() };
    for some in traces.chunks(LOOKUP_BATCH) {
        let ids: Vec<TraceId> = some.iter().map(|(id, _)| *id).collect();
        let stored = handles.store.fields(&ids, &[Trace::MADE_FIELD]).await?;
        for ((trace_id, logged), stored) in some.iter().zip(stored) {
            let stored = stored.get(Trace::MADE_FIELD);
            let stored: Option<Timestamp> = stored.and_then(|text| serde_json::from_str(text).ok());
            if of.number > 0 || logged.branched || stored.is_none_or(|stored| stored < logged.made) {
                let origin = Origin::Sweep(SweepProgress { whole: logged.branched, ..swept.clone() });
                // A trace from the log had no coordinator for a while, so its leases are extended.
                dispatch.give(Job::new(*trace_id, Work::Wake(LeaseGrace::Anew), origin)).await;
            }
        }
    }
    let failed = swept.failed.clone();
    drop(swept);
    done.recv().await;
    Ok((failed.load(Ordering::Relaxed), marks))
}

/// The messages of a trace after a mark, by their ids, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LoggedTrace {
    /// The highest version.
    version: u64,
    /// When the last commit was made.
    made: Timestamp,
    /// Two commits may have the same place: the store lost one, and the other was made without it.
    branched: bool,
}

impl LoggedTrace {
    /// Without messages.
    const NOTHING: LoggedTrace = LoggedTrace { version: 0, made: Timestamp::from_millis(0), branched: false };

    /// Adds a message: its version, and when its commit was made. Along one chain both grow, except
    /// within one commit. A message that goes back may be of a lost commit, or was stored late or
    /// again: only the log itself distinguishes these. A message without a valid id is treated as
    /// branched.
    fn add(&mut self, event: Option<(u64, Timestamp)>) {
        let Some((version, made)) = event else {
            self.branched = true;
            return;
        };
        self.branched |= made < self.made || made > self.made && version <= self.version;
        (self.version, self.made) = (self.version.max(version), self.made.max(made));
    }
}

/// The traces of these partitions that have messages after the mark of their partition. Without a
/// mark, or with a mark of another log, all traces.
async fn behind(
    handles: &Handles,
    marks: &HashMap<Partition, LogMark>,
) -> Result<BTreeMap<TraceId, LoggedTrace>, bus::Error> {
    let end = handles.bus.end(&Filter::Events).await?;
    let after = |mark: &LogMark| {
        let valid = mark.position.filter(|position| position.is_in(end));
        valid.map_or(0, |position| position.sequence)
    };
    let mut traces: BTreeMap<TraceId, LoggedTrace> = BTreeMap::new();
    let mut add = |Head { subject, sequence, id }: Head| {
        let Subject::Event(trace_id, _) = subject else { return };
        if marks.get(&handles.partition(trace_id)).is_some_and(|mark| sequence > after(mark)) {
            traces
                .entry(trace_id)
                .or_insert(LoggedTrace::NOTHING)
                .add(id.as_deref().and_then(Outbox::event_by_id));
        }
    };
    let lowest = marks.values().map(after).min().unwrap_or_default();
    handles.bus.each_since(&Filter::Events, lowest, &mut add).await?;
    Ok(traces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f19_ids_show_which_traces_have_two_commits_in_one_place() {
        let logged = |ids: &[&str]| {
            let mut logged = LoggedTrace::NOTHING;
            ids.iter().for_each(|id| logged.add(Outbox::event_by_id(&format!("trace.{id}.event"))));
            logged
        };
        let is_well = |ids: &[&str], version, millis| {
            let made = Timestamp::from_millis(millis);
            assert_eq!(logged(ids), LoggedTrace { version, made, branched: false }, "{ids:?}");
        };
        is_well(&["1-10", "4-12", "5-12", "7-15"], 7, 15);
        is_well(&["1-10", "5-12", "4-12", "7-15"], 7, 15);
        for branched in [
            // A lost commit is stored late, after its replacement; or only a message is stored
            // again.
            &["1-10", "4-15", "4-12"][..],
            &["1-10", "4-12", "1-10", "4-12"],
            &["1-10", "4-12", "4-15"],
            &["1-10", "4-12", "7-14", "4-15"],
            &["1-10", "4-12", "4-15", "7-14"],
            &["1-10", "4-15", "7-14"],
            &["1-10", "not a number"],
        ] {
            assert!(logged(branched).branched, "{branched:?}");
        }
    }
}
