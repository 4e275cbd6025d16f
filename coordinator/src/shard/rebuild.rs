//! Compares a trace with its event log. The log has every event with the version it made. A stored trace
//! that is behind its log has lost writes, and is rebuilt from the log before anything is decided on it
//! (t9). A log with gaps rebuilds nothing: the result would be an older state.

use std::collections::HashSet;

use shared::{
    ChildId,
    bus::{self, Bus},
    subject::{Filter, Subject},
};

use crate::trace::{Logged, Trace};

#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) trace: Trace,
    /// The contexts whose outcome is already published.
    pub(crate) told: HashSet<ChildId>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Bus(#[from] bus::Error),
    #[error("an event in its log can't be read: {0}")]
    Unreadable(serde_json::Error),
    #[error("its log has a gap before version {0}")]
    Gap(u64),
}

/// The trace as its log has it, if the log is ahead of the stored trace. `thoroughly` reads the whole log:
/// its last message is not always the newest event, because messages that are sent again are stored behind
/// later ones.
pub(crate) async fn check(bus: &Bus, stored: &Trace, thoroughly: bool) -> Result<Option<Rebuilt>, Error> {
    let id = stored.id();
    let Some(last) = bus.last(&Filter::EventsOf(id)).await? else { return Ok(None) };
    if !thoroughly && read(&last.payload)?.last_version() <= stored.version() {
        return Ok(None);
    }
    let log = bus.read(&Filter::EventsOf(id)).await?;
    let mut messages = log.iter().map(|stored| read(&stored.payload)).collect::<Result<Vec<_>, _>>()?;
    // Of two messages with the same version the first counts.
    messages.sort_by_key(|logged| logged.version);
    if stored.version() == 0 && messages.first().is_some_and(|first| first.version > 1) {
        // Its first events have expired: the trace has ended long ago, or can't be rebuilt.
        return Ok(None);
    }
    let mut trace = stored.clone();
    for logged in &messages {
        if !trace.replay(logged) {
            return Err(Error::Gap(logged.version));
        }
    }
    if trace.version() <= stored.version() {
        return Ok(None);
    }
    trace.mark_all_changed();
    tracing::warn!(trace_id = %id, from = stored.version(), to = trace.version(), "a trace was rebuilt from the event log");
    let told = bus.subjects(&Filter::OutcomesOf(id)).await?;
    let child = |subject| if let Subject::Outcome(_, child_id) = subject { Some(child_id) } else { None };
    Ok(Some(Rebuilt { trace, told: told.into_iter().filter_map(child).collect() }))
}

fn read(payload: &[u8]) -> Result<Logged, Error> {
    serde_json::from_slice(payload).map_err(Error::Unreadable)
}
