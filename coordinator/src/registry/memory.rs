//! The copies of records in memory, up to a limit of their bytes.

use std::{collections::BTreeMap, sync::Arc};

use bus::StoredMessage;

use super::{Known, Record, Records};

/// The limit of the bytes of all copies: beyond it all are dropped, and read again when they are
/// used.
pub(super) const MAX_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Memory<R: Record> {
    records: Records<R>,
    bytes: usize,
}

impl<R: Record> Default for Memory<R> {
    fn default() -> Self {
        Memory { records: BTreeMap::new(), bytes: 0 }
    }
}

impl<R: Record> Memory<R> {
    pub(super) fn records(&self) -> &Records<R> {
        &self.records
    }

    pub(super) fn get(&self, key: &R::Key) -> Option<Arc<Known<R>>> {
        self.records.get(key).cloned()
    }

    /// Adds a message to its copy, unless the copy has it. If messages between the two may be
    /// missing, the copy is dropped, and a record of the message alone is returned.
    pub(super) fn take(&mut self, key: &R::Key, stored: &StoredMessage) -> Arc<Known<R>> {
        let copy = self.get(key).unwrap_or_default();
        if stored.sequence <= copy.last(&stored.subject) {
            return copy;
        }
        if copy.is_next(stored) {
            let mut known = Known::clone(&copy);
            known.add(stored);
            let known = Arc::new(known);
            self.put(key, &known);
            return known;
        }
        self.drop_copy(key);
        let mut known = Known::<R>::default();
        known.add(stored);
        Arc::new(known)
    }

    /// Adds the last message of its subject. A copy with a later message is of another log, which
    /// this log replaced.
    pub(super) fn take_last(&mut self, key: &R::Key, last: &StoredMessage) -> Arc<Known<R>> {
        if self.get(key).is_some_and(|copy| copy.last(&last.subject) > last.sequence) {
            self.drop_copy(key);
        }
        self.take(key, last)
    }

    /// Replaces a copy, unless it has changed since it was read: the changed copy is as recent.
    pub(super) fn replace(&mut self, key: &R::Key, read: Option<&Arc<Known<R>>>, known: &Arc<Known<R>>) {
        let is_same = match (read, self.records.get(key)) {
            (Some(read), Some(found)) => Arc::ptr_eq(read, found),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_same {
            self.put(key, known);
        }
    }

    fn put(&mut self, key: &R::Key, known: &Arc<Known<R>>) {
        self.drop_copy(key);
        self.bytes += known.bytes();
        if self.bytes > MAX_BYTES {
            self.records.clear();
            self.bytes = known.bytes();
        }
        self.records.insert(key.clone(), known.clone());
    }

    fn drop_copy(&mut self, key: &R::Key) {
        let copy = self.records.remove(key);
        self.bytes -= copy.map_or(0, |copy| copy.bytes());
    }
}
