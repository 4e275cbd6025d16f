//! The registry of versioned records: graphs, schedules and agents. A log of the bus has the
//! versions of each record, on subjects that its key names. A version is appended after the last
//! one that its writer has read, or not at all. So two versions never have the same number, and a
//! writer's second try is harmless.
//!
//! Records are copied in memory. A reader compares its copy with the log, by one request if the log
//! has not grown. The log decides: an append based on an outdated copy is rejected, and the record
//! is read again.

mod follow;
mod known;
mod memory;
#[cfg(test)]
mod tests;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bus::{Bus, Position, PublishError, StoredMessage};
use domain::subject::{Filter, Subject};
use tokio::sync::watch;

pub(crate) use self::known::Known;
use self::memory::Memory;

/// A kind of versioned record: its place in the log, and the part of it that a reader uses.
pub(crate) trait Record: Debug + Clone + Default + Send + Sync + 'static {
    type Key: Debug + Clone + Ord + Send + Sync + 'static;

    /// The log, as errors name it.
    const LOG: &'static str;
    /// All records, in one log.
    const ALL: &'static [Filter];

    /// One record, as errors name it.
    fn title(key: &Self::Key) -> String;

    fn subjects(key: &Self::Key) -> Vec<Subject>;

    fn key(subject: &Subject) -> Option<Self::Key>;

    /// Adds a message that is later than all messages of its subject added so far.
    fn add(&mut self, stored: &StoredMessage);

    /// False if messages may be missing between those that were added and this one.
    fn is_next(&self, _stored: &StoredMessage) -> bool {
        true
    }

    /// The size of the copy in memory, if the copies of all records have a limit.
    fn bytes(&self) -> usize {
        0
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{log} can't be read")]
    Read {
        log: &'static str,
        #[source]
        source: bus::Error,
    },
    #[error("{title} could not be written to the log")]
    Write {
        title: String,
        #[source]
        source: PublishError,
    },
    #[error("{log} has newer entries than this coordinator has read")]
    Behind { log: &'static str },
}

impl Error {
    pub(crate) fn read<R: Record>(source: bus::Error) -> Self {
        Error::Read { log: R::LOG, source }
    }

    /// True if the log is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Write { source: PublishError::Full(_), .. })
    }
}

/// The outcome of an append.
pub(crate) enum Appended<R> {
    /// The record with the new version. Another writer may have appended a later one since.
    Done(Arc<Known<R>>),
    /// Another writer was first.
    Behind,
}

pub(crate) type Records<R> = BTreeMap<<R as Record>::Key, Arc<Known<R>>>;

#[derive(Debug, Clone)]
pub(crate) struct Registry<R: Record> {
    bus: Bus,
    memory: Arc<Mutex<Memory<R>>>,
    /// The last message that was followed.
    followed: Arc<watch::Sender<u64>>,
}

impl<R: Record> Registry<R> {
    pub(crate) fn new(bus: Bus) -> Self {
        Registry { bus, memory: Arc::default(), followed: Arc::new(watch::Sender::new(0)) }
    }

    fn memory(&self) -> MutexGuard<'_, Memory<R>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copy of a record, which may be outdated.
    pub(crate) fn copy(&self, key: &R::Key) -> Option<Arc<Known<R>>> {
        self.memory().get(key)
    }

    /// Reads the copies of all records, which may be outdated.
    pub(crate) fn copies<T>(&self, look: impl FnOnce(&Records<R>) -> T) -> T {
        look(self.memory().records())
    }

    /// A record as the log has it now.
    pub(crate) async fn one(&self, key: &R::Key) -> Result<Arc<Known<R>>, Error> {
        let end = self.end().await?;
        self.compared(key, end).await
    }

    /// Some records as the log has them now.
    pub(crate) async fn some(&self, keys: &BTreeSet<R::Key>) -> Result<Records<R>, Error> {
        let end = self.end().await?;
        let mut found = BTreeMap::new();
        for key in keys {
            found.insert(key.clone(), self.compared(key, end).await?);
        }
        Ok(found)
    }

    /// All keys in the log, sorted, including those of deleted records.
    pub(crate) async fn keys(&self) -> Result<BTreeSet<R::Key>, Error> {
        let mut keys = BTreeSet::new();
        for filter in R::ALL {
            let subjects = self.bus.subjects(filter).await.map_err(Error::read::<R>)?;
            keys.extend(subjects.iter().filter_map(R::key));
        }
        Ok(keys)
    }

    /// A record with only the last message of each of its subjects.
    pub(crate) async fn latest(&self, key: &R::Key) -> Result<Known<R>, Error> {
        let mut known = Known::<R>::default();
        for subject in R::subjects(key) {
            self.last(&subject).await?.iter().for_each(|stored| known.add(stored));
        }
        Ok(known)
    }

    /// All records as the log has them now.
    pub(crate) async fn all(&self) -> Result<Records<R>, Error> {
        let mut all: BTreeMap<R::Key, Known<R>> = BTreeMap::new();
        for filter in R::ALL {
            for stored in self.bus.read(filter).await.map_err(Error::read::<R>)? {
                if let Some(key) = R::key(&stored.subject) {
                    all.entry(key).or_default().add(&stored);
                }
            }
        }
        Ok(all.into_iter().map(|(key, known)| (key, Arc::new(known))).collect())
    }

    /// The current end of the log.
    pub(crate) async fn end(&self) -> Result<Position, Error> {
        // All subjects of a record are in one log.
        self.bus.end(&R::ALL[0]).await.map_err(Error::read::<R>)
    }

    /// The messages of a subject, oldest first.
    pub(crate) async fn stored(&self, subject: &Subject) -> Result<Vec<StoredMessage>, Error> {
        self.bus.read(&Filter::One(subject.clone())).await.map_err(Error::read::<R>)
    }

    pub(crate) async fn last(&self, subject: &Subject) -> Result<Option<StoredMessage>, Error> {
        self.bus.last(&Filter::One(subject.clone())).await.map_err(Error::read::<R>)
    }

    async fn compared(&self, key: &R::Key, end: Position) -> Result<Arc<Known<R>>, Error> {
        let copy = self.copy(key);
        if let Some(copy) = copy.as_ref().filter(|copy| copy.as_of == Some(end)) {
            return Ok(copy.clone());
        }
        let mut known = match self.renewed(key, copy.as_deref(), end).await? {
            Some(known) => known,
            None => self.whole(key).await?,
        };
        known.as_of = Some(end);
        let known = Arc::new(known);
        self.memory().replace(key, copy.as_ref(), &known);
        Ok(known)
    }

    /// A copy with the last messages of the log added; none if the log may have more messages in
    /// between.
    async fn renewed(
        &self,
        key: &R::Key,
        copy: Option<&Known<R>>,
        end: Position,
    ) -> Result<Option<Known<R>>, Error> {
        let mut known = copy.cloned().unwrap_or_default();
        // A log that was made anew has other messages under the same sequences.
        if known.as_of.is_some_and(|as_of| as_of.log != end.log) {
            return Ok(None);
        }
        for subject in R::subjects(key) {
            let place = known.last(&subject);
            match self.last(&subject).await? {
                None if place == 0 => {}
                Some(last) if last.sequence == place => {}
                Some(last) if last.sequence > place && known.is_next(&last) => known.add(&last),
                Some(_) | None => return Ok(None),
            }
        }
        Ok(Some(known))
    }

    async fn whole(&self, key: &R::Key) -> Result<Known<R>, Error> {
        let mut known = Known::<R>::default();
        for subject in R::subjects(key) {
            self.stored(&subject).await?.iter().for_each(|stored| known.add(stored));
        }
        Ok(known)
    }
}
