//! A trace held against its event log. The log has every event with the version it produced; a trace
//! that is stored behind it was lost in part, and is made again from the log before anything is
//! decided on it (t9).

use shared::{
    ChildId,
    bus::{self, Bus},
    subject::{Filter, Subject},
};

use crate::trace::{Logged, Trace};

#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) trace: Trace,
    /// Whose outcome is in the log already.
    pub(crate) told: Vec<ChildId>,
}

/// The trace as its log has it, if that is ahead of what is stored.
pub(crate) async fn check(bus: &Bus, stored: &Trace) -> Result<Option<Rebuilt>, bus::Error> {
    let id = stored.id();
    let Some(last) = bus.last(&Filter::EventsOf(id)).await? else { return Ok(None) };
    if read(&last.payload).is_none_or(|logged| logged.last_version() <= stored.version()) {
        return Ok(None);
    }
    let mut messages: Vec<Logged> =
        bus.read(&Filter::EventsOf(id)).await?.iter().filter_map(|stored| read(&stored.payload)).collect();
    // A message sent again may stand after later ones; of two with one version the first stands.
    messages.sort_by_key(|logged| logged.version);
    let mut trace = stored.clone();
    for logged in &messages {
        if !trace.replay(logged) {
            tracing::error!(trace_id = %id, version = logged.version, "the event log has a gap");
            break;
        }
    }
    trace.mark_all_changed();
    tracing::warn!(trace_id = %id, from = stored.version(), to = trace.version(), "rebuilt from the event log");
    let told = bus.subjects(&Filter::OutcomesOf(id)).await?;
    let told = told.into_iter().filter_map(|subject| {
        if let Subject::Outcome(_, child_id) = subject { Some(child_id) } else { None }
    });
    Ok(Some(Rebuilt { trace, told: told.collect() }))
}

fn read(payload: &[u8]) -> Option<Logged> {
    match serde_json::from_slice::<Logged>(payload) {
        Ok(logged) if !logged.events.is_empty() => Some(logged),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(%error, "an event in the log can't be read");
            None
        }
    }
}
