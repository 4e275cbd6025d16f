//! The seal of a stored trace: one code over all its fields and values, its version and its id,
//! stored as a field. The seal breaks if a field was changed, added, removed, put back to an
//! earlier text, or copied from another trace.
//!
//! A commit computes the seal from its changes alone. Each field has a tag, made with the key, and
//! the code signs the sum (by exclusive or) of all tags. The tags are never stored or sent, so an
//! attacker without the key can't find other fields with the same sum: the sums of two sets of
//! fields differ in the tags of the fields that differ.

use std::collections::HashMap;

use bus::keys::{Key, Keys, Why};
use domain::TraceId;

use super::outbox;
use crate::store::{INDEX_FIELD, Record, Replaces, Write};

/// The field that holds the seal.
pub(super) const FIELD: &str = "seal";
/// The kind of data that the code signs.
const TRACE: &str = "trace";
/// Approximate size of a tag in memory, with its name.
const TAG_BYTES: usize = 64;

/// The tags of a trace in memory.
#[derive(Debug)]
pub(crate) struct Seal(Option<Box<Tags>>, Stale);

/// The stored trace may have a seal, which a coordinator without keys has to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stale {
    No,
    Yes,
}

#[derive(Debug)]
struct Tags {
    keys: Keys,
    namespace: String,
    id: TraceId,
    /// Tags by kind and name.
    of: HashMap<(Kind, String), u128>,
    sum: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Field,
    Value,
}

impl Kind {
    /// The kind of data that the tags sign.
    fn name(self) -> &'static str {
        match self {
            Kind::Field => "field",
            Kind::Value => "value",
        }
    }
}

impl Seal {
    pub(super) fn new(keys: &Keys, namespace: &str, id: TraceId) -> Self {
        let tags =
            Tags { keys: keys.clone(), namespace: namespace.to_owned(), id, of: HashMap::new(), sum: 0 };
        Seal(Some(Box::new(tags)), Stale::No)
    }

    /// The seal of a coordinator without keys.
    pub(crate) fn none() -> Self {
        Seal(None, Stale::No)
    }

    /// The seal of a coordinator without keys, for a stored trace that may have a seal.
    pub(super) fn unsealed(is_sealed: bool) -> Self {
        Seal(None, if is_sealed { Stale::Yes } else { Stale::No })
    }

    /// Checks the code of a record, if it has one, and returns the seal.
    pub(super) fn check(
        keys: &Keys,
        namespace: &str,
        id: TraceId,
        record: &Record,
        code: Option<&str>,
    ) -> Result<Self, Why> {
        let mut seal = Seal::new(keys, namespace, id);
        let Some(tags) = &mut seal.0 else { return Ok(seal) };
        tags.add_all(keys.signing(), record);
        let signed_by = code.and_then(|code| code.split_once(':')).map(|(key, _)| key);
        match signed_by.and_then(|key| keys.find(key)) {
            // An earlier key signed it; the next commit signs with the first key.
            Some(key) if key.id() != keys.signing().id() => {
                let mut earlier = Tags {
                    keys: keys.clone(),
                    namespace: namespace.to_owned(),
                    id,
                    of: HashMap::new(),
                    sum: 0,
                };
                earlier.add_all(key, record);
                earlier.check(code, record.version)?;
            }
            Some(_) | None => tags.check(code, record.version)?,
        }
        Ok(seal)
    }

    /// Seals a write, and its outbox.
    pub(crate) fn close(&mut self, write: &mut Write) {
        let Some(tags) = &mut self.0 else {
            if std::mem::replace(&mut self.1, Stale::No) == Stale::Yes {
                write.fields.push((FIELD.into(), None));
            }
            return;
        };
        if write.replaces != Replaces::Nothing {
            (tags.of, tags.sum) = (HashMap::new(), 0);
        }
        let key = tags.keys.signing().clone();
        for (name, text) in &write.fields {
            tags.set(&key, Kind::Field, name, text.as_deref());
        }
        if let Some(index) = &write.index {
            tags.set(&key, Kind::Field, INDEX_FIELD, Some(index));
        }
        for (name, text) in &write.values {
            tags.set(&key, Kind::Value, name, text.as_deref());
        }
        let code = tags.over(write.version, |parts| key.sign(TRACE, parts));
        write.fields.push((FIELD.into(), Some(code)));
        if let Some((of, text)) = &mut write.outbox {
            outbox::seal(&tags.keys, &tags.namespace, tags.id, *of, text);
        }
    }

    /// Approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |tags| tags.of.len() * TAG_BYTES)
    }
}

impl Tags {
    fn add_all(&mut self, key: &Key, record: &Record) {
        record.fields.iter().for_each(|(name, text)| self.set(key, Kind::Field, name, Some(text)));
        record.values.iter().for_each(|(name, text)| self.set(key, Kind::Value, name, Some(text)));
    }

    fn set(&mut self, key: &Key, kind: Kind, name: &str, text: Option<&str>) {
        let id = self.id.as_u128().to_be_bytes();
        let tag = text.map(|text| key.tag(kind.name(), &[&id, name.as_bytes(), text.as_bytes()]));
        let place = (kind, name.to_owned());
        let before = match tag {
            Some(tag) => self.of.insert(place, tag),
            None => self.of.remove(&place),
        };
        self.sum ^= before.unwrap_or_default() ^ tag.unwrap_or_default();
    }

    fn check(&self, code: Option<&str>, version: u64) -> Result<(), Why> {
        self.over(version, |parts| self.keys.check(code, TRACE, parts))
    }

    fn over<T>(&self, version: u64, then: impl FnOnce(&[&[u8]]) -> T) -> T {
        let (id, sum) = (self.id.as_u128().to_be_bytes(), self.sum.to_be_bytes());
        let count = self.of.len() as u64;
        then(&[self.namespace.as_bytes(), &id, &version.to_be_bytes(), &count.to_be_bytes(), &sum])
    }
}
