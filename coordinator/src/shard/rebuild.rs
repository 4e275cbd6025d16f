//! Compares a trace with its event log. The log has every commit. A stored trace that lacks some that count has
//! lost writes, and is rebuilt from the log before anything is decided on it (t9). A commit that the log has only in
//! part is left out. So is everything behind a gap, once nobody can be about to fill it: what was lost with the store
//! is lost, and the run goes on from before the gap. Costs of calls that are forgotten so still arrive, and are booked
//! as far as something is left (B18). Costs in commits that do not count, because others took their place, are booked
//! on those that do. A run that has ended and expired is left alone: its log is kept for longer.

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

/// How long a gap is waited for: a coordinator may still be about to send what is missing.
const GAP_PATIENCE_MS: u64 = 30_000;

#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) trace: Trace,
    /// What the log does not have yet: the commit that says so.
    pub(crate) messages: Vec<LoggedEvents>,
    /// The contexts whose outcome is already published.
    pub(crate) published: HashSet<ChildId>,
    /// What of the log is left out.
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

/// The trace as its log has it, if the log has commits that the store does not have, and that count (`trace::chain`).
///
/// `version` is the one in the store, also of a trace that can't be read. After a loss the whole log is read: its last
/// message is not always the newest commit, because messages that are sent again are stored behind later ones.
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
        // Nothing that can be believed is not nothing.
        let (_, foreign) = bus.read_judged(&Filter::EventsOf(id)).await?;
        return if foreign.is_empty() || stored.version() > 0 { Ok(None) } else { Err(Error::Foreign) };
    };
    if lost_at.is_none() && stored.version() > 0 && read(&last.payload)?.commit().made <= stored.made() {
        return Ok(None);
    }
    let (log, foreign) = bus.read_judged(&Filter::EventsOf(id)).await?;
    let places: Vec<u64> = log.iter().map(|stored| stored.sequence).collect();
    let log = log.iter().map(|stored| read(&stored.payload)).collect::<Result<Vec<_>, _>>()?;
    // What is before the last beginning is not needed any more.
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
        tracing::warn!(trace_id = %id, %last_at, "the log of a trace has only messages that it can't have kept for so long: they were stored again, and nothing is made of them");
        return Ok(None);
    }
    match rest {
        // Its first events have expired: the trace has ended long ago, or can't be rebuilt.
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
    // The log has dropped their outcomes with all that is as old.
    let dropped =
        trace.contexts().iter().skip(1).filter(|node| node.end().is_some_and(|end| end.at < first_at));
    published.extend(dropped.map(|node| node.id.clone()));
    let told = trace.root().is_none_or(|root| published.contains(&root.id));
    let expired = last_at.plus_millis(handles.retention_ms()) <= now;
    if stored.version() == 0 && trace.is_over() && told && expired {
        return Ok(None);
    }
    // Made after everything in the log: its chain counts from now on.
    let now = now.max(last_made.plus_millis(1));
    let mut events = trace.begin_generation(version, now);
    for cost in lost {
        // A refusal leaves it out: another cost is booked under its id, or the books are full.
        events.extend(trace.handle(Command::BookLost(cost), now).into_iter().flatten());
    }
    let messages = logged(&mut trace, events, now);
    trace.mark_all_changed();
    Ok(Some(Rebuilt { trace, messages, published, rest }))
}

/// When the last commit in the log of a trace was made; none if that can't be said.
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
