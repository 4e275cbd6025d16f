//! Removes the data of runs on the bus: journals, the objects with outputs and results, and the
//! content of deleted contexts in the event log. A second removal removes the rest. The work
//! depends on the size of the run, not on other runs.

use bus::{Bus, Outgoing, PublishError, StoredMessage};
use domain::{
    ChildId, TraceId,
    subject::{Filter, Subject},
    wire::{ObjectReference, Outcome},
};
use serde::{Serialize, de::DeserializeOwned};

use trace::LoggedEvents;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Bus(#[from] bus::Error),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// Removes the journal and the objects of a deleted context, its questions, and the content of its
/// outcome.
pub(crate) async fn context(bus: &Bus, trace_id: TraceId, child_id: &ChildId) -> Result<(), Error> {
    let journal = Filter::JournalOf(trace_id, child_id.clone());
    remove(bus, &journal, &ObjectReference::prefix(trace_id, child_id)).await?;
    bus.purge(&Filter::One(Subject::Question(trace_id, child_id.clone()))).await?;
    let outcomes = Filter::One(Subject::Outcome(trace_id, child_id.clone()));
    rewrite(bus, &outcomes, |outcome: Outcome| outcome.without_content()).await
}

/// Removes the content from the event log of a deleted trace.
pub(crate) async fn log(bus: &Bus, trace_id: TraceId) -> Result<(), Error> {
    rewrite(bus, &Filter::EventsOf(trace_id), LoggedEvents::without_content).await
}

/// Stores the messages of a log again without their content, then removes each original. So the log
/// never has a gap, and its readers only see some messages twice.
async fn rewrite<T>(bus: &Bus, log: &Filter, without_content: impl Fn(T) -> T) -> Result<(), Error>
where
    T: Serialize + DeserializeOwned + PartialEq + Clone,
{
    // Messages that are not authentic have content too, and are deleted.
    for StoredMessage { subject, sequence, .. } in bus.read_refused(log).await? {
        bus.delete_message(&subject, sequence).await?;
    }
    for StoredMessage { subject, headers, payload, sequence, .. } in bus.read(log).await? {
        let Ok(message) = serde_json::from_slice::<T>(&payload) else { continue };
        let bare = without_content(message.clone());
        if bare == message {
            continue;
        }
        let payload = serde_json::to_vec(&bare).expect("messages have string keys only").into();
        let id = Some(format!("{subject}.{sequence}.bare"));
        bus.publish(Outgoing { subject: subject.clone(), id, headers, payload, expect_last: None }).await?;
        bus.delete_message(&subject, sequence).await?;
    }
    Ok(())
}

/// Removes the journals and the objects of all contexts of a trace.
pub(crate) async fn trace(bus: &Bus, trace_id: TraceId) -> Result<(), bus::Error> {
    remove(bus, &Filter::HistoriesOf(trace_id), &ObjectReference::prefix_of_trace(trace_id)).await
}

async fn remove(bus: &Bus, journals: &Filter, prefix: &str) -> Result<(), bus::Error> {
    bus.purge(journals).await?;
    for object in bus.objects(prefix).await? {
        bus.delete_object(&object).await?;
    }
    Ok(())
}
