//! The seal of a stored trace: one code over all its fields and values, its version and its id, kept as a field. A field that
//! was changed, added, taken away, put back as it was earlier or brought from another trace breaks it.
//!
//! A commit seals by what it changes: each field has a tag, made with the key, and the code is over the sum (by exclusive
//! or) of all tags. The tags are never stored or sent, so nobody without the key can find other fields with the same sum:
//! two sets of fields that differ have sums that differ in the tags of those that differ.

use std::collections::HashMap;

use bus::keys::{Key, Keys, Why};
use domain::TraceId;

use super::outbox;
use crate::store::{INDEX_FIELD, Record, Replaces, Write};

/// The field that holds it.
pub(super) const FIELD: &str = "seal";
/// What the code is of.
const TRACE: &str = "trace";
/// About what a tag takes in memory, with its name.
const TAG_BYTES: usize = 64;

/// The tags of a trace that is kept in memory.
#[derive(Debug)]
pub(crate) struct Seal(Option<Box<Tags>>, Stale);

/// Whether what is stored has a seal that a coordinator without keys has to take away.
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
    /// By kind and name.
    of: HashMap<(Kind, String), u128>,
    sum: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Field,
    Value,
}

impl Kind {
    /// What the tags are of.
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

    /// Of a coordinator without keys.
    pub(crate) fn none() -> Self {
        Seal(None, Stale::No)
    }

    /// Of a coordinator without keys, for what may have a seal.
    pub(super) fn unsealed(is_sealed: bool) -> Self {
        Seal(None, if is_sealed { Stale::Yes } else { Stale::No })
    }

    /// The seal of what is stored, if its code fits; none: it has no code.
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
            // Signed with an earlier key: from now on with the first.
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

    /// Seals a change, and the outbox that goes with it.
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

    /// About the bytes that it takes in memory.
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
