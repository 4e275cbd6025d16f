//! Reads one stream on disk.

use disk::{Error, Kind, Reader, Rows};
use domain::time::Timestamp;

use crate::{
    disk::{coded, rows::Log},
    memory::{Bounds, Entry, Messages, Pattern},
    message::{Head, StoredMessage},
};

/// The number of messages that are scanned for the next match before it is searched by subject.
const LOOKED_AT: usize = 256;

/// A stream from one of its sequences on.
pub(super) struct Look<'r, R> {
    rows: &'r R,
    log: &'r Log,
    pub(super) from: u64,
}

impl<'r, R: Rows> Look<'r, R> {
    pub(super) fn all(rows: &'r R, log: &'r Log) -> Self {
        Look { rows, log, from: 0 }
    }

    /// A stream without the expired messages that are still stored.
    pub(super) fn fresh(rows: &'r R, log: &'r Log, now: Timestamp, bounds: &Bounds) -> Result<Self, Error> {
        let mut look = Look::all(rows, log);
        let Some(max_age_ms) = bounds.max_age_ms else { return Ok(look) };
        let messages = log.rows(Kind::Message);
        for row in rows.heads(&messages, messages.end().as_ref(), coded::AT_BYTES)? {
            let (key, value) = row?;
            let sequence = Reader::behind(&key, &messages)?.number()?;
            if now.millis_since(coded::stored_at(&value)?) < max_age_ms {
                look.from = sequence;
                break;
            }
            look.from = sequence + 1;
        }
        Ok(look)
    }

    /// The sequence of the oldest message.
    pub(super) fn first(&self) -> Result<Option<u64>, Error> {
        let messages = self.log.rows(Kind::Message);
        let from = self.log.message(self.from);
        let first = self.rows.heads(&from, messages.end().as_ref(), 0)?.next().transpose()?;
        first.map(|(key, _)| Reader::behind(&key, &messages)?.number()).transpose()
    }

    /// The sequence of a subject's last message.
    pub(super) fn last_of(&self, subject: &str) -> Result<Option<u64>, Error> {
        let of_subject = self.log.of_subject(subject);
        let from = of_subject.clone().number(self.from);
        let last = self.rows.between(&from, of_subject.end().as_ref())?.next_back().transpose()?;
        last.map(|(key, _)| Reader::behind(&key, &of_subject)?.number()).transpose()
    }

    /// The sequence of a subject's first message at or after `from`.
    fn first_of(&self, subject: &str, from: u64) -> Result<Option<u64>, Error> {
        let of_subject = self.log.of_subject(subject);
        let from = of_subject.clone().number(from.max(self.from));
        let first = self.rows.between(&from, of_subject.end().as_ref())?.next().transpose()?;
        first.map(|(key, _)| Reader::behind(&key, &of_subject)?.number()).transpose()
    }

    fn entry(&self, sequence: u64) -> Result<Option<Entry>, Error> {
        let value = self.rows.get(&self.log.message(sequence))?;
        value.map(|value| coded::decode(value, sequence, &self.log.namespace)).transpose()
    }

    /// The matching subjects that have messages. Each is found by one seek.
    pub(super) fn subjects(&self, pattern: &Pattern) -> Result<Vec<String>, Error> {
        let all = self.log.rows(Kind::Subject);
        let mut from = all.clone().rest(pattern.prefix().as_bytes());
        let mut found = Vec::new();
        while let Some((key, _)) = self.rows.between(&from, all.end().as_ref())?.next().transpose()? {
            let subject = Reader::behind(&key, &all)?.name()?.to_owned();
            if !subject.starts_with(pattern.prefix()) {
                break;
            }
            let Some(behind) = self.log.of_subject(&subject).end() else { break };
            from = behind;
            if pattern.matches(&subject) && (self.from == 0 || self.last_of(&subject)?.is_some()) {
                found.push(subject);
            }
        }
        Ok(found)
    }

    /// The sequences of all matching messages, in order.
    pub(super) fn sequences(&self, pattern: &Pattern) -> Result<Vec<u64>, Error> {
        let mut found = Vec::new();
        for subject in self.subjects(pattern)? {
            let of_subject = self.log.of_subject(&subject);
            let from = of_subject.clone().number(self.from);
            for row in self.rows.between(&from, of_subject.end().as_ref())? {
                found.push(Reader::behind(&row?.0, &of_subject)?.number()?);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    pub(super) fn read(&self, pattern: &Pattern) -> Result<Vec<StoredMessage>, Error> {
        let entries =
            self.sequences(pattern)?.into_iter().filter_map(|sequence| self.entry(sequence).transpose());
        entries.map(|entry| Ok(entry?.stored)).collect()
    }

    pub(super) fn last(&self, pattern: &Pattern) -> Result<Option<StoredMessage>, Error> {
        let mut last = None;
        for subject in self.subjects(pattern)? {
            last = last.max(self.last_of(&subject)?);
        }
        let Some(last) = last else { return Ok(None) };
        Ok(self.entry(last)?.map(|entry| entry.stored))
    }

    /// Every matching message after a sequence.
    pub(super) fn heads_since(&self, pattern: &Pattern, sequence: u64) -> Result<Vec<Head>, Error> {
        let (messages, mut found) = (self.log.rows(Kind::Message), Vec::new());
        let from = self.log.message(sequence.saturating_add(1).max(self.from));
        for row in self.rows.between(&from, messages.end().as_ref())? {
            let (key, value) = row?;
            if pattern.matches(coded::subject(&value)?) {
                let sequence = Reader::behind(&key, &messages)?.number()?;
                let StoredMessage { subject, id, .. } =
                    coded::decode(value, sequence, &self.log.namespace)?.stored;
                found.push(Head { subject, sequence, id });
            }
        }
        Ok(found)
    }

    /// The sequence of the first matching message at or after `from`, searched by subject.
    fn next_by_subject(&self, patterns: &[Pattern], from: u64) -> Result<Option<u64>, Error> {
        let mut next: Option<u64> = None;
        for pattern in patterns {
            for subject in self.subjects(pattern)? {
                next = next.into_iter().chain(self.first_of(&subject, from)?).min();
            }
        }
        Ok(next)
    }
}

impl<R: Rows> Messages for Look<'_, R> {
    type Error = Error;

    fn get(&self, sequence: u64) -> Result<Option<Entry>, Error> {
        self.entry(sequence)
    }

    fn next(&self, patterns: &[Pattern], from: &mut u64) -> Result<Option<Entry>, Error> {
        let messages = self.log.rows(Kind::Message);
        let first = self.log.message(*from);
        for (looked_at, row) in self.rows.between(&first, messages.end().as_ref())?.enumerate() {
            let (key, value) = row?;
            let sequence = Reader::behind(&key, &messages)?.number()?;
            if looked_at == LOOKED_AT {
                // Few messages match: for example one run is followed in the log of all runs.
                let next = self.next_by_subject(patterns, sequence)?;
                *from = next.unwrap_or(self.log.head(self.rows)?.last) + 1;
                return next.map_or(Ok(None), |next| self.entry(next));
            }
            *from = sequence + 1;
            let subject = coded::subject(&value)?;
            if patterns.iter().any(|pattern| pattern.matches(subject)) {
                return coded::decode(value, sequence, &self.log.namespace).map(Some);
            }
        }
        Ok(None)
    }

    fn waiting(&self, patterns: &[Pattern], from: u64) -> Result<(u64, Option<Timestamp>), Error> {
        let (messages, mut pending, mut oldest) = (self.log.rows(Kind::Message), 0, None);
        for row in self.rows.between(&self.log.message(from), messages.end().as_ref())? {
            let (_, value) = row?;
            let subject = coded::subject(&value)?;
            if patterns.iter().any(|pattern| pattern.matches(subject)) {
                pending += 1;
                oldest.get_or_insert(coded::stored_at(&value)?);
            }
        }
        Ok((pending, oldest))
    }
}
