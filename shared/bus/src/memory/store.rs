//! Stores messages in streams, reads them back and follows them.

use domain::subject::{Filter, Subject};

use super::{
    log::{self, Log},
    pattern::Pattern,
    state::Memory,
};
use crate::{
    error::{Error, PublishError},
    message::{From, Head, Outgoing, Position, PublishReceipt, StoredMessage},
    topology::{Stream, Topology, stream_of_all},
};

impl Memory {
    pub(in super::super) async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        let topology = topology.clone();
        self.ask("set up the streams", move |memory| memory.state().topology = topology.clone()).await
    }

    pub(super) fn store(&self, message: Outgoing) -> Result<PublishReceipt, PublishError> {
        let StorePlace { stream, subject, bounds } = self.admit(&message)?;
        let at = self.now();
        let stored = self.state().log(stream).append(subject, message, at, &bounds);
        if matches!(stored, Ok(PublishReceipt { duplicate: false, .. })) {
            self.changed(stream).notify_waiters();
        }
        stored
    }

    /// Finds the stream for a message, and sends the message to the current listeners.
    pub(crate) fn admit(&self, message: &Outgoing) -> Result<StorePlace, PublishError> {
        let subject = self.shared.namespace.subject(&message.subject);
        let mut state = self.state();
        let stream = Stream::of(&Filter::One(message.subject.clone()));
        let Some(stream) = stream.filter(|_| state.topology.holds(&message.subject)) else {
            return Err(PublishError::Other(format!("no stream holds `{subject}`")));
        };
        // As on a server, listeners receive the message even if the stream then rejects it.
        state.listeners.tell(&subject, &message.subject, &message.headers, &message.payload, None);
        Ok(StorePlace { stream, subject, bounds: log::Bounds::of(stream, &state.topology) })
    }

    pub(in super::super) async fn read(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        let (stream, pattern) = self.place(filter)?;
        self.ask("read a log", move |memory| memory.fresh_log(stream, |log| log.read(&pattern))).await
    }

    pub(in super::super) async fn last(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        let (stream, pattern) = self.place(filter)?;
        self.ask("read a log's end", move |memory| memory.fresh_log(stream, |log| log.last(&pattern))).await
    }

    pub(in super::super) async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        let (stream, pattern) = self.place(filter)?;
        let list = move |memory: &Memory| memory.fresh_log(stream, |log| log.subjects(&pattern));
        let subjects = self.ask("list subjects", list).await?;
        Ok(subjects.iter().filter_map(|subject| self.shared.namespace.parse(subject).ok()).collect())
    }

    pub(in super::super) async fn heads_since(
        &self,
        filter: &Filter,
        sequence: u64,
    ) -> Result<Vec<Head>, Error> {
        let (stream, pattern) = self.place(filter)?;
        let list = move |memory: &Memory| memory.fresh_log(stream, |log| log.heads_since(&pattern, sequence));
        self.ask("list new messages", list).await
    }

    /// The sequence of the first message on a subject after the given sequence.
    pub(in super::super) async fn next_behind(
        &self,
        subject: &Subject,
        sequence: u64,
    ) -> Result<Option<u64>, Error> {
        let behind = self.heads_since(&Filter::One(subject.clone()), sequence).await?;
        Ok(behind.first().map(|head| head.sequence))
    }

    pub(in super::super) async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        let (stream, _) = self.place(filter)?;
        let log = self.started_at().millis();
        let end = move |memory: &Memory| memory.state().log(stream).last_sequence();
        Ok(Position { log, sequence: self.ask("find a log's end", end).await? })
    }

    pub(in super::super) async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        let (stream, pattern) = self.place(filter)?;
        self.ask("purge a log", move |memory| memory.state().log(stream).purge(&pattern)).await
    }

    pub(in super::super) async fn delete_message(
        &self,
        subject: &Subject,
        sequence: u64,
    ) -> Result<(), Error> {
        let (stream, _) = self.place(&Filter::One(subject.clone()))?;
        self.ask("delete a message", move |memory| memory.state().log(stream).remove(sequence)).await
    }

    pub(in super::super) fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        let stream = stream_of_all(filters)?;
        let patterns = self.patterns(filters);
        let next = match from {
            From::Start => 1,
            From::Sequence(sequence) => sequence,
            From::Now => self.state().log(stream).last_sequence() + 1,
        };
        Ok(Follow { memory: self.clone(), stream, patterns, next })
    }

    pub(crate) fn place(&self, filter: &Filter) -> Result<(Stream, Pattern), Error> {
        let stream = stream_of_all(std::slice::from_ref(filter))?;
        Ok((stream, Pattern::new(&self.shared.namespace.filter(filter))))
    }

    pub(crate) fn patterns(&self, filters: &[Filter]) -> Vec<Pattern> {
        filters.iter().map(|filter| Pattern::new(&self.shared.namespace.filter(filter))).collect()
    }

    /// Runs `look` on the log without its expired messages.
    fn fresh_log<T>(&self, stream: Stream, look: impl FnOnce(&Log) -> T) -> T {
        let mut state = self.state();
        let bounds = log::Bounds::of(stream, &state.topology);
        let log = state.log(stream);
        log.forget(self.now(), &bounds);
        look(log)
    }
}

/// The stream that stores a message, with its limits.
#[derive(Debug)]
pub(crate) struct StorePlace {
    pub(crate) stream: Stream,
    /// The subject's name on the server.
    pub(crate) subject: String,
    pub(crate) bounds: log::Bounds,
}

/// A log that is being followed.
#[derive(Debug)]
pub(in super::super) struct Follow {
    pub(in super::super) memory: Memory,
    stream: Stream,
    patterns: Vec<Pattern>,
    next: u64,
}

impl Follow {
    pub(in super::super) async fn next(&mut self) -> Result<StoredMessage, Error> {
        loop {
            // Registered before the check, so that a message stored in between wakes this task.
            let mut changed = std::pin::pin!(self.memory.changed(self.stream).notified());
            changed.as_mut().enable();
            let found = self.memory.state().log(self.stream).next_stored(&self.patterns, &mut self.next);
            match found {
                Some(stored) => return Ok(stored),
                None => changed.await,
            }
        }
    }
}
