//! Which parts of a trace have changed since it was last stored: recorded by whoever changes them, read by
//! `stored`.

use std::collections::BTreeSet;

use domain::{AgentId, ChildId, ContextKey};

use super::ContextIndex;

/// The parts that changed since the trace was last stored. Not part of the state: two traces that differ
/// only in this are equal.
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
    /// Contexts of which anything may have changed.
    pub(super) contexts: BTreeSet<ContextIndex>,
    /// Contexts whose identity, terms, limits or plan changed.
    pub(super) definitions: BTreeSet<ContextIndex>,
    pub(super) orders: BTreeSet<ContextIndex>,
    pub(super) values: BTreeSet<ContextKey>,
    /// What was last saved of each context. It outlasts the changes.
    pub(super) saved: Vec<SavedHashes>,
    /// A hash of who spent its money, as last saved; 0 if it never was. It outlasts the changes.
    pub(super) saved_spent_by: u64,
    /// The bytes of all that was read and written. It outlasts the changes.
    pub(super) stored_bytes: usize,
    /// Where the index of runs has it (`found_by`), as last saved. It outlasts the changes.
    pub(super) index: String,
}

/// Hashes of the fields of a context as they were last saved; 0 for one that never was.
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
