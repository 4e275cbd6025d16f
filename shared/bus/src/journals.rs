//! Reads the journals of a trace without knowing the pools of its contexts.
//!
//! The pool of a context is in the subject of its journal, and a server permits a pool's workers to
//! write only under their own pool (S6). A worker of another pool that forges entries for the
//! context writes them under another subject. A reader that does not know the pool takes the
//! journal that began first.

use std::collections::HashMap;

use domain::{ChildId, PoolName, subject::Subject};

use super::message::StoredMessage;

/// The pool that writes the journal of each context of a trace: the pool of its first entry.
#[derive(Debug, Default)]
pub struct FirstWriters(HashMap<ChildId, PoolName>);

impl FirstWriters {
    /// Returns true if an entry belongs to the journal of its context. Call it with the entries in
    /// their stored order.
    pub fn takes(&mut self, subject: &Subject) -> bool {
        let Subject::History(pool, _, child_id) = subject else { return false };
        self.0.entry(child_id.clone()).or_insert_with(|| pool.clone()) == pool
    }
}

/// The entries that belong to the journals of a trace.
pub fn of_first_writers(mut stored: Vec<StoredMessage>) -> Vec<StoredMessage> {
    let mut writers = FirstWriters::default();
    stored.retain(|stored| writers.takes(&stored.subject));
    stored
}
