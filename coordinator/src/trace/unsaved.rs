//! Which parts of a trace have changed since it was last stored: recorded by whoever changes them, read by
//! `stored`.

use std::collections::BTreeSet;

use shared::ContextKey;

use super::ContextIndex;

/// The parts that changed since the trace was last stored. Not part of the state: two traces that differ
/// only in this are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct Unsaved {
    pub(super) head: bool,
    pub(super) agents: bool,
    pub(super) plans: bool,
    pub(super) outputs: bool,
    pub(super) contexts: BTreeSet<ContextIndex>,
    pub(super) orders: BTreeSet<ContextIndex>,
    pub(super) values: BTreeSet<ContextKey>,
}

impl PartialEq for Unsaved {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
