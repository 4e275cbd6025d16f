//! A log on disk that is being followed.

use domain::subject::Filter;

use super::{
    look::Look,
    state::{Disk, failed},
};
use crate::{
    error::Error,
    memory::{Messages, Pattern},
    message::{From, StoredMessage},
    topology::{Stream, stream_of_all},
};

#[derive(Debug)]
pub(in super::super) struct Follow {
    pub(in super::super) bus: Disk,
    stream: Stream,
    patterns: Vec<Pattern>,
    next: u64,
}

impl Disk {
    pub(in super::super) async fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        let stream = stream_of_all(filters)?;
        let next = match (from, filters.first()) {
            (From::Sequence(sequence), _) => sequence,
            (From::Now, Some(filter)) => self.end(filter).await?.sequence + 1,
            (From::Start | From::Now, _) => 1,
        };
        Ok(Follow { bus: self.clone(), stream, patterns: self.within.patterns(filters), next })
    }
}

impl Follow {
    pub(in super::super) async fn next(&mut self) -> Result<StoredMessage, Error> {
        let Follow { bus, stream, patterns, next } = self;
        let log = bus.rows_of(*stream);
        let look = || match bus.directory.read(|rows| Look::all(rows, &log).next(patterns, next)) {
            Ok(Some(entry)) => Ok(Ok(entry.stored)),
            Ok(None) => Err(None),
            Err(error) => Ok(Err(failed("follow a log", &error))),
        };
        bus.within.when_there(*stream, look).await
    }
}
