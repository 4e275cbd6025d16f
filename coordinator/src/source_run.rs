//! Reads a run from which another one is made (G15): from the store, or if it is missing there,
//! from its event log. The run has ended, so a later reader finds the same, or finds that it is
//! gone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bus::StoredMessage;
use domain::{
    TraceId,
    subject::Filter,
    wire::{ObjectReference, TakenFrom},
};
use trace::{LoggedEvents, Replay, Trace};

use crate::{
    loops::Handles,
    sealed::{OpenResult, OpenedTrace},
    store,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the store can't be read")]
    Store(#[from] store::Error),
    #[error("its event log can't be read")]
    Bus(#[from] bus::Error),
}

/// The run as it is; none if neither store nor log has it.
pub(crate) async fn read(handles: &Handles, id: TraceId) -> Result<Option<Trace>, Error> {
    let loaded = handles.store.load(&[id]).await?.pop();
    // The authentic part of its log may be only its beginning.
    if loaded
        .as_ref()
        .is_some_and(|loaded| matches!(loaded.found, OpenResult::Foreign(_) | OpenResult::Damaged(_)))
    {
        return Ok(None);
    }
    if let Some(record) = loaded.and_then(OpenedTrace::record) {
        match Trace::from_stored(id, record.version, &record.fields, &record.values) {
            Ok(trace) => return Ok(Some(trace)),
            Err(error) => {
                tracing::error!(trace_id = %id, %error, "a stored trace can't be read; trying its event log");
            }
        }
    }
    let log = handles.bus.read(&Filter::EventsOf(id)).await?;
    let logged = |stored: &StoredMessage| serde_json::from_slice::<LoggedEvents>(&stored.payload).ok();
    let Some(log) = log.iter().map(logged).collect::<Option<Vec<LoggedEvents>>>() else { return Ok(None) };
    // A log that contradicts itself must not end the coordinator.
    let replayed = catch_unwind(AssertUnwindSafe(|| Replay::all(Trace::new(id), log)));
    Ok(replayed.ok().map(|(trace, _)| trace).filter(|trace| trace.version() > 0))
}

/// Returns true if the objects of all these contexts exist. They are removed after the retention of
/// their run, whose log is kept for longer.
pub(crate) async fn has_objects(handles: &Handles, of: &[TakenFrom]) -> Result<bool, bus::Error> {
    for TakenFrom { trace_id, child_id } in of {
        if handles.bus.objects(&ObjectReference::prefix(*trace_id, child_id)).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}
