//! Which runs still need the journals of another one (W6): those that were submitted as its branches (W5), are live,
//! and have not copied the entries they begin with. The store notes every branch before it is admitted. A note of one
//! that was refused, has ended or has its copies means nothing.
//!
//! A branch that is submitted while its origin is being removed may come too late; it then fails before it pays for
//! anything, as if it had come a moment later.

use shared::{
    ChildId, TraceId,
    bus::{self, Stored},
    subject::{Filter, Subject},
    wire::{Branch, Checkpoint, HistoryEntry, has_all_copies},
};

use crate::{
    handles::Handles,
    store,
    trace::{Corrupt, Trace},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the store can't be read")]
    Store(#[from] store::Error),
    #[error("a journal can't be read")]
    Bus(#[from] bus::Error),
    #[error("a branch can't be read")]
    Corrupt(#[from] Corrupt),
}

/// Notes that a run is submitted as a branch, under one of these ids. Nobody removes a run that the store does not
/// have, so nothing needs to be noted of it.
pub(crate) async fn note(handles: &Handles, from: &Checkpoint, by: &[TraceId]) -> Result<(), store::Error> {
    let there = handles.store.versions(&[from.trace_id]).await?.first().is_some_and(|version| *version > 0);
    if there { handles.store.add_branches(from.trace_id, by).await } else { Ok(()) }
}

/// The runs that still need journals of this one.
pub(crate) async fn of(handles: &Handles, origin: TraceId) -> Result<Vec<Branch>, Error> {
    let noted = handles.store.branches(origin).await?;
    let roots = handles.store.fields(&noted, &Trace::SUMMARY_FIELDS).await?;
    let mut branches = Vec::new();
    for (trace_id, root) in noted.into_iter().zip(roots) {
        let Some((child_id, from)) = Trace::stored_branch(&root)? else { continue };
        if from.trace_id == origin && !has_copied(handles, trace_id, child_id).await? {
            branches.push(Branch { trace_id, from: from.child_id });
        }
    }
    Ok(branches)
}

async fn has_copied(handles: &Handles, trace_id: TraceId, child_id: ChildId) -> Result<bool, bus::Error> {
    let journal = handles.bus.read(&Filter::One(Subject::History(trace_id, child_id))).await?;
    // Workers refuse to go on with a journal they can't read.
    let step = |stored: &Stored| serde_json::from_slice::<HistoryEntry>(&stored.payload).map(|e| e.step).ok();
    let steps: Vec<_> = journal.iter().filter_map(step).collect();
    Ok(has_all_copies(&steps))
}
