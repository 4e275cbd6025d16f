//! Finds the runs that still need data of another run (W6). A branch (W5) needs its origin while it
//! is live and has not copied the entries with which it begins. A rerun (G15) needs the objects of
//! results that it took over, for as long as it is kept itself. The store has a record of every
//! branch and rerun, written before its admission. The record of a run that was refused, has ended
//! or has its copies is ignored.
//!
//! A branch that is submitted during the removal of its origin may be too late. It then fails
//! before it pays for anything, like one that is submitted a moment later.

use std::collections::BTreeSet;

use bus::{StoredMessage, of_first_writers};
use domain::{
    ChildId, TraceId,
    subject::Filter,
    wire::{Branch, HistoryEntry, has_all_copies},
};
use trace::{Corrupt, Rerun, Trace};

use crate::{loops::Handles, store};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the store can't be read")]
    Store(#[from] store::Error),
    #[error("a journal can't be read")]
    Bus(#[from] bus::Error),
    #[error("a branch can't be read")]
    Corrupt(#[from] Corrupt),
}

/// Records that a run is submitted as a branch or a rerun, under one of these ids. A source that is
/// missing in the store is not removed by retention, so it needs no record.
pub(crate) async fn note(handles: &Handles, from: TraceId, by: &[TraceId]) -> Result<(), store::Error> {
    let there = handles.store.versions(&[from]).await?.first().is_some_and(|version| *version > 0);
    if there { handles.store.add_branches(from, by).await } else { Ok(()) }
}

/// The runs whose objects a rerun refers to.
pub(crate) fn needed_by(rerun: &Rerun) -> BTreeSet<TraceId> {
    rerun.needs.iter().map(|needed| needed.trace_id).collect()
}

/// The runs that still need journals or objects of this one.
pub(crate) async fn of(handles: &Handles, origin: TraceId) -> Result<Vec<Branch>, Error> {
    let noted = handles.store.branches(origin).await?;
    let [a, b, c, d, e, f] = Trace::SUMMARY_FIELDS;
    let roots = handles.store.fields(&noted, &[a, b, c, d, e, f, Trace::RERUN_FIELD]).await?;
    let mut branches = Vec::new();
    for (trace_id, root) in noted.into_iter().zip(roots) {
        let needs = Trace::stored_needs(&root)?.into_iter().filter(|needed| needed.trace_id == origin);
        branches.extend(needs.map(|needed| Branch { trace_id, from: needed.child_id, taken: true }));
        let Some((child_id, from)) = Trace::stored_branch(&root)? else { continue };
        if from.trace_id == origin && !has_copied(handles, trace_id, child_id).await? {
            branches.push(Branch { trace_id, from: from.child_id, taken: false });
        }
    }
    Ok(branches)
}

async fn has_copied(handles: &Handles, trace_id: TraceId, child_id: ChildId) -> Result<bool, bus::Error> {
    let journal = of_first_writers(handles.bus.read(&Filter::JournalOf(trace_id, child_id)).await?);
    // Workers refuse to continue with a journal that they can't read.
    let step =
        |stored: &StoredMessage| serde_json::from_slice::<HistoryEntry>(&stored.payload).map(|e| e.step).ok();
    let steps: Vec<_> = journal.iter().filter_map(step).collect();
    Ok(has_all_copies(&steps))
}
