//! Journals that are read without knowing whose they are. The pool of a context is in the subject of its journal, and a server lets
//! the workers of a pool write there only (S6); what another pool writes under the name of the context is in another subject. Who
//! does not know the pool takes that which began first.

use std::collections::HashMap;

use domain::{ChildId, PoolName, subject::Subject};

use super::message::StoredMessage;

/// Which pool writes the journal of each context of a trace, told by the entries in their order.
#[derive(Debug, Default)]
pub struct FirstWriters(HashMap<ChildId, PoolName>);

impl FirstWriters {
    /// Whether an entry is of the journal of its context.
    pub fn takes(&mut self, subject: &Subject) -> bool {
        let Subject::History(pool, _, child_id) = subject else { return false };
        self.0.entry(child_id.clone()).or_insert_with(|| pool.clone()) == pool
    }
}

/// The entries of the journals of a trace.
pub fn of_first_writers(mut stored: Vec<StoredMessage>) -> Vec<StoredMessage> {
    let mut writers = FirstWriters::default();
    stored.retain(|stored| writers.takes(&stored.subject));
    stored
}
