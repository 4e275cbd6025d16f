//! A record as it was read from the log, with the place up to which it was read: a writer appends
//! after that place.

use std::ops::Deref;

use bus::{Position, StoredMessage};
use domain::subject::Subject;

use super::Record;

#[derive(Debug, Clone)]
pub(crate) struct Known<R> {
    record: R,
    /// The sequence of the last message of each subject that has one.
    last: Vec<(Subject, u64)>,
    /// Where the log ended when the record was compared with it.
    pub(super) as_of: Option<Position>,
}

impl<R: Default> Default for Known<R> {
    fn default() -> Self {
        Known { record: R::default(), last: Vec::new(), as_of: None }
    }
}

impl<R> Deref for Known<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.record
    }
}

impl<R: Record> Known<R> {
    /// The sequence of the last message of a subject; 0 if it has none.
    pub(crate) fn last(&self, subject: &Subject) -> u64 {
        let found = self.last.iter().find(|(of, _)| of == subject);
        found.map_or(0, |(_, sequence)| *sequence)
    }

    /// False if the log has no message of the record.
    pub(crate) fn exists(&self) -> bool {
        !self.last.is_empty()
    }

    pub(super) fn add(&mut self, stored: &StoredMessage) {
        self.record.add(stored);
        match self.last.iter_mut().find(|(of, _)| *of == stored.subject) {
            Some((_, sequence)) => *sequence = stored.sequence,
            None => self.last.push((stored.subject.clone(), stored.sequence)),
        }
    }
}
