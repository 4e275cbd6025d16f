//! Removes what runs have stored on the bus: journals, and the objects with outputs and results. Doing it again
//! removes what is left. The work depends on what the run has, not on what others have.

use shared::{
    ChildId, TraceId,
    bus::{Bus, Error},
    subject::{Filter, Subject},
    wire::ObjectReference,
};

/// Removes the journal and the objects of one context.
pub(crate) async fn context(bus: &Bus, trace_id: TraceId, child_id: &ChildId) -> Result<(), Error> {
    let journal = Filter::One(Subject::History(trace_id, child_id.clone()));
    remove(bus, &journal, &ObjectReference::prefix(trace_id, child_id)).await
}

/// Removes the journals and the objects of all contexts of a trace.
pub(crate) async fn trace(bus: &Bus, trace_id: TraceId) -> Result<(), Error> {
    remove(bus, &Filter::HistoriesOf(trace_id), &ObjectReference::prefix_of_trace(trace_id)).await
}

async fn remove(bus: &Bus, journals: &Filter, prefix: &str) -> Result<(), Error> {
    bus.purge(journals).await?;
    for object in bus.objects(prefix).await? {
        bus.delete_object(&object).await?;
    }
    Ok(())
}
