//! Compares a trace with its event log, which has every commit. A stored trace that lacks valid
//! commits has lost writes, and is rebuilt from the log before any decision on it (t9). A commit
//! that the log has only in part is left out.
//!
//! Commits after a gap are left out too, once no coordinator can still be about to fill the gap:
//! those writes are lost, and the run continues from before the gap. The costs of calls in left-out
//! commits still arrive, and are booked as far as budget is left (B18). Costs in commits of a
//! replaced chain are booked on the valid chain. A run that has ended and expired is not rebuilt:
//! its log is kept for longer than its state.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bus::Bus;
use domain::{
    ChildId, Timestamp, TraceId,
    subject::{Filter, Subject},
    time::millis,
};
use trace::{Command, LoggedEvents, LostCost, Replay, Rest, Trace, decide, logged, outlived};

use super::outbox::Outbox;
use crate::loops::Handles;

/// A gap stays open for this time: a coordinator may still be about to send the missing messages.
const GAP_PATIENCE_MS: u64 = 30_000;

#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) trace: Trace,
    /// The messages that the log does not have yet: the commit that records the rebuild.
    pub(crate) messages: Vec<LoggedEvents>,
    /// The contexts whose outcome is already published.
    pub(crate) published: HashSet<ChildId>,
    /// The part of the log that is left out.
    pub(crate) rest: Rest,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Bus(#[from] bus::Error),
    #[error("an event in its log can't be read: {0}")]
    Unreadable(serde_json::Error),
    #[error("its log contradicts itself")]
    Contradicts,
    #[error(
        "its log has messages without a code, or of a key that is not known here, which may be the commits of a coordinator \
         with other keys"
    )]
    Foreign,
    #[error("its log has a gap before version {0}, which may still be filled")]
    Gap(u64),
}

/// Returns the trace as its log has it, if the log has valid commits that the store lacks
/// (`trace::chain`).
///
/// `version` is the one in the store, also of a trace that can't be read. After a loss the whole
/// log is read. Its last message is not always the newest commit, because messages that are sent
/// again are stored after later ones.
pub(crate) async fn check(
    handles: &Handles,
    stored: &Trace,
    version: u64,
    unsent: &[Arc<Outbox>],
    lost_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Rebuilt>, Error> {
    let (bus, id) = (&handles.bus, stored.id());
    let Some(last) = bus.last(&Filter::EventsOf(id)).await? else {
        // A log without authentic messages is not the same as an empty log.
        let (_, foreign) = bus.read_judged(&Filter::EventsOf(id)).await?;
        return if foreign.is_empty() || stored.version() > 0 { Ok(None) } else { Err(Error::Foreign) };
    };
    if lost_at.is_none() && stored.version() > 0 && read(&last.payload)?.commit().made <= stored.made() {
        return Ok(None);
    }
    let (log, foreign) = bus.read_judged(&Filter::EventsOf(id)).await?;
    let places: Vec<u64> = log.iter().map(|stored| stored.sequence).collect();
    let log = log.iter().map(|stored| read(&stored.payload)).collect::<Result<Vec<_>, _>>()?;
    // Messages before the last beginning are not needed any more.
    let begins = places.iter().zip(&log).filter(|(_, logged)| logged.begins()).map(|(place, _)| *place).max();
    let lacks = foreign.last().copied() > begins;
    let has_beginning = log.iter().any(LoggedEvents::begins);
    let last_at = log.iter().map(|logged| logged.at).max().unwrap_or_default();
    let first_at = log.iter().map(|logged| logged.at).min().unwrap_or_default();
    let unsent = unsent.iter().map(|outbox| outbox.logged()).collect::<Result<Vec<_>, _>>();
    let log = [log, unsent.map_err(Error::Unreadable)?.concat()].concat();
    let last_made = log.iter().map(|logged| logged.commit().made).max().unwrap_or_default();
    // A log that contradicts itself must not end the coordinator.
    let replayed = catch_unwind(AssertUnwindSafe(|| Replay::with_lost(stored.clone(), log)));
    let (mut trace, rest, lost) = replayed.map_err(|_| Error::Contradicts)?;
    if lacks && stored.version() == 0 {
        return Err(Error::Foreign);
    }
    if stored.version() == 0 && outlived(last_at, millis(handles.config.topology.keep_logs), now) {
        tracing::warn!(trace_id = %id, %last_at, "the log of a trace has only messages older than its retention: they were stored again, and are ignored");
        return Ok(None);
    }
    match rest {
        // Its first events have expired: the trace ended long ago, or can't be rebuilt.
        Rest::Gap(_) if trace.version() == 0 && !has_beginning => return Ok(None),
        Rest::Gap(_) if lacks => {}
        Rest::Gap(before) if last_at.plus_millis(GAP_PATIENCE_MS) > now => return Err(Error::Gap(before)),
        Rest::Nothing | Rest::Unfinished | Rest::Gap(_) => {}
    }
    let is_stored = (trace.version(), trace.made()) == (stored.version(), stored.made());
    if is_stored && lost.iter().all(|cost| is_booked(&trace, cost, now)) {
        return Ok(None);
    }
    if lacks {
        return Err(Error::Foreign);
    }
    let mut published = published(bus, id).await?;
    // The log has already dropped the outcomes of contexts that ended before its first message.
    let dropped =
        trace.contexts().iter().skip(1).filter(|node| node.end().is_some_and(|end| end.at < first_at));
    published.extend(dropped.map(|node| node.id.clone()));
    let told = trace.root().is_none_or(|root| published.contains(&root.id));
    let expired = last_at.plus_millis(handles.retention_ms()) <= now;
    if stored.version() == 0 && trace.is_over() && told && expired {
        return Ok(None);
    }
    // The new generation is later than every commit in the log, so its chain is the valid one from
    // now on.
    let now = now.max(last_made.plus_millis(1));
    let mut events = trace.begin_generation(version, now);
    for cost in lost {
        // A refused cost is left out: another cost is booked under its id, or the books are full.
        events.extend(trace.handle(Command::BookLost(cost), now).into_iter().flatten());
    }
    let messages = logged(&mut trace, events, now);
    trace.mark_all_changed();
    Ok(Some(Rebuilt { trace, messages, published, rest }))
}

/// When the last commit in the log of a trace was made; none if its message is missing or can't be
/// read.
pub(crate) async fn last_made(bus: &Bus, id: TraceId) -> Option<Timestamp> {
    let last = bus.last(&Filter::EventsOf(id)).await.ok()??;
    read(&last.payload).ok().map(|logged| logged.commit().made)
}

fn is_booked(trace: &Trace, cost: &LostCost, now: Timestamp) -> bool {
    decide(trace, Command::BookLost(cost.clone()), now).map_or(true, |events| events.is_empty())
}

/// The contexts whose outcome is published.
async fn published(bus: &Bus, id: TraceId) -> Result<HashSet<ChildId>, Error> {
    let subjects = bus.authentic_subjects(&Filter::OutcomesOf(id)).await?;
    let child = |subject| if let Subject::Outcome(_, child_id) = subject { Some(child_id) } else { None };
    Ok(subjects.into_iter().filter_map(child).collect())
}

fn read(payload: &[u8]) -> Result<LoggedEvents, Error> {
    serde_json::from_slice(payload).map_err(Error::Unreadable)
}
