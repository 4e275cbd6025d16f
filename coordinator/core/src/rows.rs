//! Collections whose entries are stored one by one. They record the entries that changed since they
//! were last stored, so that the size of a commit does not grow with the collection.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    hash::Hash,
    ops::Deref,
};

use serde::Serialize;

/// A list, read as a slice.
#[derive(Clone)]
pub struct Rows<T> {
    rows: Vec<T>,
    changed: BTreeSet<u32>,
}

impl<T> Rows<T> {
    /// Rows that are already stored, or need not be.
    pub(super) fn stored(rows: Vec<T>) -> Self {
        Rows { rows, changed: BTreeSet::new() }
    }

    pub(super) fn push(&mut self, row: T) {
        self.changed.insert(number(self.rows.len()));
        self.rows.push(row);
    }

    /// A row that is about to change.
    pub(super) fn row_mut(&mut self, number: u32) -> &mut T {
        self.changed.insert(number);
        &mut self.rows[number as usize]
    }

    /// Access to the parts of a row that are not stored with it.
    pub(super) fn unstored_mut(&mut self, number: u32) -> &mut T {
        &mut self.rows[number as usize]
    }

    /// Replaces all rows.
    pub(super) fn replace(&mut self, rows: Vec<T>) {
        self.mark_all();
        self.rows = rows;
        self.mark_all();
    }

    pub(super) fn clear(&mut self) {
        self.mark_all();
        self.rows.clear();
    }

    pub(super) fn mark_all(&mut self) {
        self.changed.extend(0..number(self.rows.len()));
    }

    /// The rows that changed since the last call; `None` for a row that was removed.
    pub(super) fn take_changed(&mut self) -> impl Iterator<Item = (u32, Option<&T>)> {
        let rows = &self.rows;
        std::mem::take(&mut self.changed).into_iter().map(|number| (number, rows.get(number as usize)))
    }
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Rows::stored(Vec::new())
    }
}

impl<T> Deref for Rows<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.rows
    }
}

impl<T: fmt::Debug> fmt::Debug for Rows<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.fmt(out)
    }
}

impl<T: PartialEq> PartialEq for Rows<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

/// Entries by key, read as a map.
#[derive(Clone)]
pub struct KeyedRows<K, V> {
    entries: HashMap<K, V>,
    /// The changed keys, with the bytes that each took in the store before.
    changed: BTreeMap<K, Option<usize>>,
}

/// An entry that changed.
pub(super) struct Change<'a, K, V> {
    pub(super) key: K,
    /// The bytes of the stored entry under the key; `None` if none is stored.
    pub(super) stored_bytes: Option<usize>,
    /// `None` if the entry was removed.
    pub(super) entry: Option<&'a V>,
}

impl<K: Clone + Ord + Hash, V: Serialize> KeyedRows<K, V> {
    /// Entries that are already stored.
    pub(super) fn stored(entries: HashMap<K, V>) -> Self {
        KeyedRows { entries, changed: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.changes(&key);
        self.entries.insert(key, value);
    }

    /// The entry of a key, which is about to change; created if it is missing.
    pub(super) fn entry_mut(&mut self, key: &K, or: impl FnOnce() -> V) -> &mut V {
        self.changes(key);
        self.entries.entry(key.clone()).or_insert_with(or)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.changes(key);
        if self.changed.get(key) == Some(&None) {
            // The entry was added and removed since the last store, so nothing has to be written.
            self.changed.remove(key);
        }
        self.entries.remove(key)
    }

    /// Records the stored size of an entry that is about to change.
    fn changes(&mut self, key: &K) {
        if !self.changed.contains_key(key) {
            let bytes = |entry: &V| serde_json::to_string(entry).map_or(0, |text| text.len());
            self.changed.insert(key.clone(), self.entries.get(key).map(bytes));
        }
    }

    /// Marks all entries as changed, as if none were stored.
    pub(super) fn mark_all(&mut self) {
        self.changed = self.entries.keys().map(|key| (key.clone(), None)).collect();
    }

    /// The changes since the last call.
    pub(super) fn take_changed(&mut self) -> impl Iterator<Item = Change<'_, K, V>> {
        let entries = &self.entries;
        std::mem::take(&mut self.changed).into_iter().map(|(key, stored_bytes)| {
            let entry = entries.get(&key);
            Change { key, stored_bytes, entry }
        })
    }
}

impl<K, V> Default for KeyedRows<K, V> {
    fn default() -> Self {
        KeyedRows { entries: HashMap::new(), changed: BTreeMap::new() }
    }
}

impl<K, V> Deref for KeyedRows<K, V> {
    type Target = HashMap<K, V>;
    fn deref(&self) -> &HashMap<K, V> {
        &self.entries
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for KeyedRows<K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.fmt(out)
    }
}

impl<K: Eq + Hash, V: PartialEq> PartialEq for KeyedRows<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("a context has fewer than 2^32 of anything")
}
