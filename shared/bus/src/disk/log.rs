//! Changes one stream on disk: messages by sequence, found by subject, limited in bytes and age,
//! stored once by id. It behaves like the stream in memory.

use disk::{Change, Error, Key, Kind, Reader, Rows};
use domain::time::Timestamp;

use crate::{
    disk::{
        coded,
        look::Look,
        rows::{Head, Log},
    },
    error::PublishError,
    memory::{Bounds, Entry},
    message::{Outgoing, PublishReceipt, StoredMessage},
};

impl Log {
    fn set_head(&self, rows: &mut Change<'_>, head: Head) -> Result<(), Error> {
        rows.put(&self.rows(Kind::Stream), Key::value().number(head.last).number(head.bytes).bytes())
    }

    /// A duplicate is recognised before the expected sequence is checked, as in memory.
    pub(super) fn append(
        &self,
        rows: &mut Change<'_>,
        subject: &str,
        message: Outgoing,
        at: Timestamp,
        bounds: &Bounds,
    ) -> Result<Result<PublishReceipt, PublishError>, Error> {
        self.forget(rows, at, bounds)?;
        let id = message.id.as_ref().map(|id| self.rows(Kind::MessageId).rest(id.as_bytes()));
        if let Some(id) = &id
            && let Some(sequence) = rows.get(id)?
        {
            return Ok(Ok(PublishReceipt { sequence: Reader::new(&sequence).number()?, duplicate: true }));
        }
        let last = Look::all(rows, self).last_of(subject)?.unwrap_or(0);
        if message.expect_last.is_some_and(|expected| expected != last) {
            return Ok(Err(PublishError::WrongSequence));
        }
        let value = coded::encode(subject, &message, at);
        let sequence = self.head(rows)?.last + 1;
        let Outgoing { subject: parsed, id: text, headers, payload, .. } = message;
        let stored = StoredMessage { subject: parsed, id: text.clone(), headers, payload, sequence, at };
        let size = Entry { subject: subject.to_owned(), stored }.size() as u64;
        if let Some(full) = self.make_room(rows, subject, size, bounds)? {
            return Ok(Err(PublishError::Full(full.into())));
        }
        let bytes = self.head(rows)?.bytes + size;
        self.set_head(rows, Head { last: sequence, bytes })?;
        rows.put(&self.message(sequence), value.bytes())?;
        rows.put(&self.of_subject(subject).number(sequence), &[])?;
        if let (Some(id), Some(text)) = (id, text) {
            rows.put_number(&id, sequence)?;
            let age = self.rows(Kind::MessageIdAge).number(at.millis()).number(sequence);
            rows.put(&age, text.as_bytes())?;
        }
        Ok(Ok(PublishReceipt { sequence, duplicate: false }))
    }

    /// Drops the oldest messages for a new one, if the stream does that. Returns the reason if no
    /// room could be made.
    fn make_room(
        &self,
        rows: &mut Change<'_>,
        subject: &str,
        size: u64,
        bounds: &Bounds,
    ) -> Result<Option<&'static str>, Error> {
        let max = bounds.max_bytes.map_or(u64::MAX, |max| max as u64);
        while bounds.drops_the_oldest
            && self.head(rows)?.bytes + size > max
            && let Some(oldest) = Look::all(rows, self).first()?
        {
            self.remove(rows, oldest)?;
        }
        if self.head(rows)?.bytes + size > max {
            return Ok(Some("maximum bytes exceeded"));
        }
        let Some(max) = bounds.max_per_subject else { return Ok(None) };
        let of_subject = rows.beginning(&self.of_subject(subject))?.take(max).count();
        Ok((of_subject >= max).then_some("maximum messages per subject exceeded"))
    }

    /// Drops everything expired: ids and, in a log, messages.
    pub(super) fn forget(&self, rows: &mut Change<'_>, now: Timestamp, bounds: &Bounds) -> Result<(), Error> {
        let ages = self.rows(Kind::MessageIdAge);
        loop {
            let Some(row) = rows.beginning(&ages)?.next() else { break };
            let (key, id) = row?;
            let mut reader = Reader::behind(&key, &ages)?;
            let (at, sequence) = (reader.number()?, reader.number()?);
            if now.millis_since(Timestamp::from_millis(at)) < bounds.duplicate_window_ms {
                break;
            }
            rows.remove(&self.rows(Kind::MessageId).rest(&id))?;
            rows.remove(&ages.clone().number(at).number(sequence))?;
        }
        let from = Look::all(rows, self).first()?;
        let to = Look::fresh(rows, self, now, bounds)?.from;
        for sequence in from.map_or(to, |from| from)..to {
            self.remove(rows, sequence)?;
        }
        Ok(())
    }

    pub(super) fn remove(&self, rows: &mut Change<'_>, sequence: u64) -> Result<(), Error> {
        let Some(value) = rows.get(&self.message(sequence))? else { return Ok(()) };
        let entry = coded::decode(value, sequence, &self.namespace)?;
        let head = self.head(rows)?;
        self.set_head(rows, Head { bytes: head.bytes.saturating_sub(entry.size() as u64), ..head })?;
        rows.remove(&self.message(sequence))?;
        rows.remove(&self.of_subject(&entry.subject).number(sequence))?;
        Ok(())
    }
}
