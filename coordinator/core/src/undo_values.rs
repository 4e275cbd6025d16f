//! The values that runs which may be undone have read from the shared store (G14). A long value is
//! stored once, by its content, for all runs that read it, and only while one of them may still be
//! undone.

use std::collections::HashMap;

use domain::{Json, digest};

use super::KeyedRows;

/// A shorter value is stored with its run, because its digest would be as long.
pub(super) const SHORT_BYTES: u64 = 200;

/// Long values, by the digests of their content.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct UndoValues {
    pub(super) values: KeyedRows<String, Json>,
    /// How many inputs of runs use each value; not stored.
    uses: HashMap<String, u32>,
    bytes: u64,
}

impl UndoValues {
    /// The values as they were stored; `count` then adds their users.
    pub(super) fn stored(values: HashMap<String, Json>) -> Self {
        let bytes = values.values().map(Json::size_bytes).sum();
        UndoValues { values: KeyedRows::stored(values), uses: HashMap::new(), bytes }
    }

    /// The bytes of all values.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn add(&mut self, value: &Json) -> String {
        let digest = digest::sha256(value.value().to_string());
        if !self.values.contains_key(&digest) {
            self.bytes += value.size_bytes();
            self.values.insert(digest.clone(), value.clone());
        }
        self.count(&digest);
        digest
    }

    pub(super) fn count(&mut self, digest: &str) {
        *self.uses.entry(digest.to_owned()).or_default() += 1;
    }

    pub(super) fn release(&mut self, digest: &String) {
        let Some(uses) = self.uses.get_mut(digest) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(digest);
            let value = self.values.remove(digest);
            self.bytes -= value.map_or(0, |value| value.size_bytes());
        }
    }
}
