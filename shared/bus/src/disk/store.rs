//! Stores messages in streams, and reads them back.

use disk::{Change, View, Waiting};
use domain::{
    span::Headers,
    subject::{Filter, Subject},
};

use super::{
    bucket,
    look::Look,
    objects,
    rows::Log,
    state::{Disk, failed, unpublished},
};
use crate::{
    error::{Error, PublishError},
    memory::{Bounds, Pattern, StorePlace},
    message::{Head, Outgoing, Position, PublishReceipt, StoredMessage},
    topology::{Stream, Topology},
};

/// Messages that are being stored.
#[derive(Debug)]
pub(crate) struct Sending {
    count: usize,
    waiting: Waiting<Vec<Result<PublishReceipt, PublishError>>>,
}

impl Sending {
    pub(in super::super) async fn stored(self) -> Vec<Result<PublishReceipt, PublishError>> {
        self.waiting.done().await.unwrap_or_else(|error| vec![Err(unpublished(error)); self.count])
    }
}

impl Disk {
    pub(in super::super) async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        self.within.set_up(topology).await?;
        let now = self.within.now();
        let streams = Stream::ALL.map(|stream| (self.rows_of(stream), Bounds::of(stream, topology)));
        let limits = bucket::limits(topology);
        let forget = move |rows: &mut Change<'_>| {
            objects::forget(rows, now, limits)?;
            streams.iter().try_for_each(|(log, bounds)| log.forget(rows, now, bounds))
        };
        // Removes at once what expired while no process was running. An error is ignored here: on a
        // full disk the next publish returns it.
        self.directory.write(forget).await.ok();
        Ok(())
    }

    /// Stores all messages in one transaction, in order.
    pub(in super::super) async fn send(&self, messages: Vec<Outgoing>) -> Sending {
        let (at, count, within) = (self.within.now(), messages.len(), self.within.clone());
        let admit = |message: Outgoing| {
            let admitted = self.within.admit(&message)?;
            Ok((self.rows_of(admitted.stream), admitted, message))
        };
        let messages: Vec<Result<(Log, StorePlace, Outgoing), PublishError>> =
            messages.into_iter().map(admit).collect();
        let mut streams: Vec<Stream> =
            messages.iter().flatten().map(|(_, admitted, _)| admitted.stream).collect();
        streams.dedup();
        let store = move |rows: &mut Change<'_>| {
            let append = |message: Result<(Log, StorePlace, Outgoing), PublishError>| match message {
                Ok((log, StorePlace { subject, bounds, .. }, message)) => {
                    log.append(rows, &subject, message, at, &bounds)
                }
                Err(refused) => Ok(Err(refused)),
            };
            messages.into_iter().map(append).collect()
        };
        let then = move |stored: &Result<_, disk::Error>| {
            if stored.is_ok() {
                streams.iter().for_each(|stream| within.changed(*stream).notify_waiters());
            }
        };
        Sending { count, waiting: self.directory.submit(store, then).await }
    }

    /// Like a server, it does not know that the message was meant as a broadcast: a stream that
    /// holds the subject stores it.
    pub(in super::super) async fn broadcast(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: bytes::Bytes,
    ) -> Result<(), Error> {
        if Stream::of(&Filter::One(subject.clone())).is_none() {
            return self.within.broadcast(subject, headers, payload).await;
        }
        let (subject, headers) = (subject.clone(), headers.clone());
        // The sender of a broadcast does not wait until it is stored.
        self.send(vec![Outgoing { subject, id: None, headers, payload, expect_last: None }]).await;
        Ok(())
    }

    pub(in super::super) async fn read(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        self.look("read a log", filter, |look, pattern| look.read(pattern))
    }

    pub(in super::super) async fn last(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        self.look("read a log's end", filter, |look, pattern| look.last(pattern))
    }

    pub(in super::super) async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        let subjects = self.look("list subjects", filter, |look, pattern| look.subjects(pattern))?;
        Ok(subjects.iter().filter_map(|subject| self.namespace().parse(subject).ok()).collect())
    }

    pub(in super::super) async fn heads_since(
        &self,
        filter: &Filter,
        sequence: u64,
    ) -> Result<Vec<Head>, Error> {
        self.look("list new messages", filter, |look, pattern| look.heads_since(pattern, sequence))
    }

    pub(in super::super) async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        let log = self.rows_of(self.within.place(filter)?.0);
        let head = self.directory.read(|rows| log.head(rows));
        let head = head.map_err(|error| failed("find a log's end", &error))?;
        Ok(Position { log: self.log, sequence: head.last })
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

    pub(in super::super) async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        let (stream, pattern) = self.within.place(filter)?;
        let log = self.rows_of(stream);
        let purge = move |rows: &mut Change<'_>| {
            let gone = Look::all(rows, &log).sequences(&pattern)?;
            gone.into_iter().try_for_each(|sequence| log.remove(rows, sequence))
        };
        self.directory.write(purge).await.map_err(|error| failed("purge a log", &error))
    }

    pub(in super::super) async fn delete_message(
        &self,
        subject: &Subject,
        sequence: u64,
    ) -> Result<(), Error> {
        let log = self.rows_of(self.within.place(&Filter::One(subject.clone()))?.0);
        let deleted = self.directory.write(move |rows| log.remove(rows, sequence)).await;
        deleted.map_err(|error| failed("delete a message", &error))
    }

    /// Reads the log that holds a filter's subjects, without expired messages.
    fn look<T>(
        &self,
        doing: &'static str,
        filter: &Filter,
        look: impl FnOnce(&Look<'_, View>, &Pattern) -> Result<T, disk::Error>,
    ) -> Result<T, Error> {
        let (stream, pattern) = self.within.place(filter)?;
        let (log, now) = (self.rows_of(stream), self.within.now());
        let bounds = Bounds::of(stream, &self.within.state().topology);
        let looked = self.directory.read(|rows| look(&Look::fresh(rows, &log, now, &bounds)?, &pattern));
        looked.map_err(|error| failed(doing, &error))
    }
}
