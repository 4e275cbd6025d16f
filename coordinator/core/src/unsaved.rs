//! Records which parts of a trace have changed since it was last stored. The code that changes a
//! part records it here, and `stored` reads the record.

use std::collections::BTreeSet;

use domain::{AgentId, ChildId, ContextKey};

use super::ContextIndex;

/// The parts that changed since the trace was last stored. They are not part of the state: two
/// traces that differ only in them are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct UnsavedParts {
    pub(super) head: bool,
    pub(super) made: bool,
    pub(super) copied: bool,
    pub(super) outputs: bool,
    pub(super) rerun: bool,
    pub(super) spent_by: bool,
    pub(super) agents: BTreeSet<AgentId>,
    pub(super) plans: BTreeSet<u32>,
    pub(super) tombstones: BTreeSet<ChildId>,
    /// Contexts in which any part may have changed.
    pub(super) contexts: BTreeSet<ContextIndex>,
    /// Contexts whose identity, terms, limits or plan changed.
    pub(super) definitions: BTreeSet<ContextIndex>,
    pub(super) orders: BTreeSet<ContextIndex>,
    pub(super) values: BTreeSet<ContextKey>,
    /// Hashes of the last saved fields of each context. They are kept after a save.
    pub(super) saved: Vec<SavedHashes>,
    /// The hash of the spending by agent and model when it was last saved; 0 if it never was. It is
    /// kept after a save.
    pub(super) saved_spent_by: u64,
    /// The bytes of everything read and written. The number is kept after a save.
    pub(super) stored_bytes: usize,
    /// Its entries in the index of runs (`found_by`) when they were last saved. They are kept after
    /// a save.
    pub(super) index: String,
}

/// Hashes of a context's fields when they were last saved; 0 for a field that never was.
#[derive(Debug, Clone, Default)]
pub(super) struct SavedHashes {
    pub(super) lifecycle: u64,
    pub(super) waits_for: u64,
    pub(super) end: u64,
    pub(super) ceilings: u64,
    pub(super) sums: u64,
    pub(super) undo: u64,
    pub(super) graph: u64,
    pub(super) ending: u64,
}

impl PartialEq for UnsavedParts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
