//! One stream: messages by sequence, found by subject, limited in bytes and age, stored once by id.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    ops::Bound,
};

use domain::time::{Timestamp, millis};

use super::{entry::Entry, pattern::Pattern, queue::Messages};
use crate::{
    error::PublishError,
    message::{Head, Outgoing, PublishReceipt, StoredMessage},
    topology::{Stream, Topology},
};

#[derive(Debug, Default)]
pub(super) struct Log {
    messages: BTreeMap<u64, Entry>,
    by_subject: BTreeMap<String, BTreeSet<u64>>,
    last: u64,
    bytes: usize,
    /// The remembered ids, and the order in which they expire.
    ids: BTreeMap<String, u64>,
    ids_by_age: VecDeque<(Timestamp, String)>,
}

/// The limits of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_bytes: Option<usize>,
    pub(crate) drops_the_oldest: bool,
    pub(crate) max_age_ms: Option<u64>,
    pub(crate) max_per_subject: Option<usize>,
    pub(crate) duplicate_window_ms: u64,
}

impl Bounds {
    pub(crate) fn of(stream: Stream, topology: &Topology) -> Self {
        Bounds {
            max_bytes: usize::try_from(topology.max_bytes(stream)).ok().filter(|max| *max > 0),
            drops_the_oldest: stream.drops_the_oldest(),
            max_age_ms: Some(millis(topology.max_age(stream))).filter(|age| *age > 0),
            max_per_subject: stream.max_per_subject().and_then(|max| usize::try_from(max).ok()),
            duplicate_window_ms: millis(topology.duplicate_window),
        }
    }
}

impl Log {
    /// A duplicate is recognised before the expected sequence is checked. A server checks in the
    /// other order. Both lead to the same result: a sender that uses an id and an expected sequence
    /// looks for its own entry after a `WrongSequence`.
    pub(super) fn append(
        &mut self,
        subject: String,
        message: Outgoing,
        at: Timestamp,
        bounds: &Bounds,
    ) -> Result<PublishReceipt, PublishError> {
        self.forget(at, bounds);
        if let Some(sequence) = message.id.as_ref().and_then(|id| self.ids.get(id)) {
            return Ok(PublishReceipt { sequence: *sequence, duplicate: true });
        }
        let last = self.by_subject.get(&subject).and_then(BTreeSet::last).copied().unwrap_or(0);
        if message.expect_last.is_some_and(|expected| expected != last) {
            return Err(PublishError::WrongSequence);
        }
        let sequence = self.last + 1;
        let Outgoing { subject: parsed, id, headers, payload, .. } = message;
        let stored = StoredMessage { subject: parsed, id: id.clone(), headers, payload, sequence, at };
        let entry = Entry { subject, stored };
        let full = |log: &Log| bounds.max_bytes.is_some_and(|max| log.bytes + entry.size() > max);
        while bounds.drops_the_oldest
            && full(self)
            && let Some((oldest, _)) = self.messages.first_key_value()
        {
            let oldest = *oldest;
            self.remove(oldest);
        }
        if full(self) {
            return Err(PublishError::Full("maximum bytes exceeded".into()));
        }
        let of_subject = self.by_subject.get(&entry.subject).map_or(0, BTreeSet::len);
        if bounds.max_per_subject.is_some_and(|max| of_subject >= max) {
            return Err(PublishError::Full("maximum messages per subject exceeded".into()));
        }
        self.last = sequence;
        self.bytes += entry.size();
        self.by_subject.entry(entry.subject.clone()).or_default().insert(sequence);
        self.messages.insert(sequence, entry);
        if let Some(id) = id {
            self.ids.insert(id.clone(), sequence);
            self.ids_by_age.push_back((at, id));
        }
        Ok(PublishReceipt { sequence, duplicate: false })
    }

    /// Drops everything expired: ids and, in a log, messages.
    pub(super) fn forget(&mut self, now: Timestamp, bounds: &Bounds) {
        while let Some((at, _)) = self.ids_by_age.front()
            && now.millis_since(*at) >= bounds.duplicate_window_ms
        {
            if let Some((_, id)) = self.ids_by_age.pop_front() {
                self.ids.remove(&id);
            }
        }
        let Some(max_age_ms) = bounds.max_age_ms else { return };
        while let Some((sequence, entry)) = self.messages.first_key_value()
            && now.millis_since(entry.stored.at) >= max_age_ms
        {
            let sequence = *sequence;
            self.remove(sequence);
        }
    }

    pub(super) fn remove(&mut self, sequence: u64) {
        let Some(entry) = self.messages.remove(&sequence) else { return };
        self.bytes -= entry.size();
        if let Some(sequences) = self.by_subject.get_mut(&entry.subject) {
            sequences.remove(&sequence);
            if sequences.is_empty() {
                self.by_subject.remove(&entry.subject);
            }
        }
    }

    pub(super) fn purge(&mut self, pattern: &Pattern) {
        self.sequences(pattern).into_iter().for_each(|sequence| self.remove(sequence));
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The sequences of the oldest and the newest message.
    pub(super) fn places(&self) -> (u64, u64) {
        (self.messages.keys().next().copied().unwrap_or(self.last + 1), self.last)
    }

    pub(super) fn last_sequence(&self) -> u64 {
        self.last
    }

    /// The first matching message at or after `from`. Moves `from` past it.
    fn next_entry(&self, patterns: &[Pattern], from: &mut u64) -> Option<&Entry> {
        for (sequence, entry) in self.messages.range(*from..) {
            *from = sequence + 1;
            if patterns.iter().any(|pattern| pattern.matches(&entry.subject)) {
                return Some(entry);
            }
        }
        None
    }

    pub(super) fn next_stored(&self, patterns: &[Pattern], from: &mut u64) -> Option<StoredMessage> {
        self.next_entry(patterns, from).map(|entry| entry.stored.clone())
    }

    pub(super) fn read(&self, pattern: &Pattern) -> Vec<StoredMessage> {
        let entries = self.sequences(pattern).into_iter().filter_map(|sequence| self.messages.get(&sequence));
        entries.map(|entry| entry.stored.clone()).collect()
    }

    pub(super) fn last(&self, pattern: &Pattern) -> Option<StoredMessage> {
        let last = self.matching(pattern).filter_map(|(_, sequences)| sequences.last()).max()?;
        self.messages.get(last).map(|entry| entry.stored.clone())
    }

    pub(super) fn subjects(&self, pattern: &Pattern) -> Vec<String> {
        self.matching(pattern).map(|(subject, _)| subject.clone()).collect()
    }

    /// Every matching message after a sequence, without its payload.
    pub(super) fn heads_since(&self, pattern: &Pattern, sequence: u64) -> Vec<Head> {
        let behind = self.messages.range((Bound::Excluded(sequence), Bound::Unbounded));
        let matching = behind.filter(|(_, entry)| pattern.matches(&entry.subject));
        let head = |(sequence, entry): (&u64, &Entry)| {
            let StoredMessage { subject, id, .. } = &entry.stored;
            Head { subject: subject.clone(), sequence: *sequence, id: id.clone() }
        };
        matching.map(head).collect()
    }

    fn sequences(&self, pattern: &Pattern) -> BTreeSet<u64> {
        self.matching(pattern).flat_map(|(_, sequences)| sequences).copied().collect()
    }

    fn matching<'a>(&'a self, pattern: &'a Pattern) -> impl Iterator<Item = (&'a String, &'a BTreeSet<u64>)> {
        let from = (Bound::Included(pattern.prefix()), Bound::Unbounded);
        let candidates = self.by_subject.range::<str, _>(from);
        candidates
            .take_while(|(subject, _)| subject.starts_with(pattern.prefix()))
            .filter(|(subject, _)| pattern.matches(subject))
    }
}

impl Messages for Log {
    type Error = Infallible;

    fn get(&self, sequence: u64) -> Result<Option<Entry>, Infallible> {
        Ok(self.messages.get(&sequence).cloned())
    }

    fn next(&self, patterns: &[Pattern], from: &mut u64) -> Result<Option<Entry>, Infallible> {
        Ok(self.next_entry(patterns, from).cloned())
    }

    fn waiting(&self, patterns: &[Pattern], mut from: u64) -> Result<(u64, Option<Timestamp>), Infallible> {
        let (mut pending, mut oldest) = (0, None);
        while let Some(entry) = self.next_entry(patterns, &mut from) {
            pending += 1;
            oldest.get_or_insert(entry.stored.at);
        }
        Ok((pending, oldest))
    }
}
