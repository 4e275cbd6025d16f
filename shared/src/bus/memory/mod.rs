//! The bus within one process, with the semantics of JetStream as far as the interface shows them:
//! for the simulation, and for everything in one process. Time is tokio's, so a paused clock pauses
//! ack waits too. Nothing here is random: the same calls give the same answers.

mod listen;
mod log;
mod pattern;
mod queue;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

pub(super) use self::{
    listen::Subscription,
    queue::{Acker, Consumption},
};

use self::{listen::Listeners, log::Log, pattern::Pattern, queue::Queue};
use super::{
    Consumer, Error, From, Headers, Outgoing, PublishError, Published, Service, Stored, Stream, Topology,
};
use crate::{
    subject::{Filter, Namespace, Subject},
    time::{Timestamp, millis},
};

/// A bus of this process; clones are the same bus.
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    namespace: Namespace,
    started: Instant,
    started_at: Timestamp,
    state: Mutex<State>,
    /// Wakes who waits for a stream: something was stored, or is to be delivered again.
    changed: BTreeMap<Stream, Notify>,
}

struct State {
    topology: Topology,
    logs: BTreeMap<Stream, Log>,
    queues: BTreeMap<String, Queue>,
    listeners: Listeners,
    objects: BTreeMap<String, Bytes>,
}

impl Memory {
    /// A bus whose messages are stamped with the time of day.
    pub fn new(namespace: Namespace) -> Self {
        Self::starting_at(namespace, crate::clock::Clock::Machine.now())
    }

    /// A bus that was started at a moment of the caller's choice: a simulation's.
    pub fn starting_at(namespace: Namespace, at: Timestamp) -> Self {
        Memory(Arc::new(Shared {
            namespace,
            started: Instant::now(),
            started_at: at,
            state: Mutex::new(State {
                topology: Topology::default(),
                logs: Stream::ALL.map(|stream| (stream, Log::default())).into(),
                queues: BTreeMap::new(),
                listeners: Listeners::default(),
                objects: BTreeMap::new(),
            }),
            changed: Stream::ALL.map(|stream| (stream, Notify::new())).into(),
        }))
    }

    pub fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    pub(super) async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        self.state().topology = topology.clone();
        Ok(())
    }

    pub(super) fn send(&self, messages: Vec<Outgoing>) -> Vec<Result<Published, PublishError>> {
        messages.into_iter().map(|message| self.store(message)).collect()
    }

    fn store(&self, message: Outgoing) -> Result<Published, PublishError> {
        let subject = self.0.namespace.subject(&message.subject);
        let Some(stream) = Stream::of(&Filter::One(message.subject.clone())) else {
            return Err(PublishError::Other(format!("no stream holds `{subject}`")));
        };
        let mut state = self.state();
        if !state.topology.holds(&message.subject) {
            return Err(PublishError::Other(format!("no stream holds `{subject}`")));
        }
        // As on a server: whoever listens hears it, whatever the stream makes of it.
        state.listeners.tell(&subject, &message.subject, &message.headers, &message.payload, None);
        let bounds = log::Bounds::of(stream, &state.topology);
        let at = self.now();
        let stored = state.log(stream).append(subject, message, at, &bounds);
        drop(state);
        if matches!(stored, Ok(Published { duplicate: false, .. })) {
            self.changed(stream).notify_waiters();
        }
        stored
    }

    pub(super) fn consume(&self, consumer: &Consumer) -> Consumption {
        Consumption::new(self.clone(), consumer)
    }

    pub(super) fn serve(&self, subject: &Subject) -> Subscription {
        self.listen(&[self.0.namespace.subject(subject)], true)
    }

    pub(super) fn offer(&self, service: &Service) -> Subscription {
        let subjects: Vec<_> =
            service.subjects.iter().map(|subject| self.0.namespace.subject(subject)).collect();
        self.listen(&subjects, true)
    }

    pub(super) fn subscribe(&self, filter: &Filter) -> Subscription {
        self.listen(&[self.0.namespace.filter(filter)], false)
    }

    pub(super) fn broadcast(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
    ) -> Result<(), Error> {
        if Stream::of(&Filter::One(subject.clone())).is_some() {
            // A server can't tell how a message was meant: a stream that holds its subject takes it.
            let (subject, headers) = (subject.clone(), headers.clone());
            self.store(Outgoing { subject, id: None, headers, payload, expect_last: None }).ok();
        } else {
            self.tell(subject, headers, &payload, None);
        }
        Ok(())
    }

    pub(super) fn read(&self, filter: &Filter) -> Result<Vec<Stored>, Error> {
        let (stream, pattern) = self.place(filter)?;
        Ok(self.fresh_log(stream, |log| log.read(&pattern)))
    }

    pub(super) fn last(&self, filter: &Filter) -> Result<Option<Stored>, Error> {
        let (stream, pattern) = self.place(filter)?;
        Ok(self.fresh_log(stream, |log| log.last(&pattern)))
    }

    pub(super) fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        let (stream, pattern) = self.place(filter)?;
        let subjects = self.fresh_log(stream, |log| log.subjects(&pattern));
        Ok(subjects.iter().filter_map(|subject| self.0.namespace.parse(subject).ok()).collect())
    }

    pub(super) fn purge(&self, filter: &Filter) -> Result<(), Error> {
        let (stream, pattern) = self.place(filter)?;
        self.state().log(stream).purge(&pattern);
        Ok(())
    }

    pub(super) fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        let stream = super::topology::stream_of_all(filters)?;
        let patterns = filters.iter().map(|filter| Pattern::new(&self.0.namespace.filter(filter))).collect();
        let next = match from {
            From::Start => 1,
            From::Sequence(sequence) => sequence,
            From::Now => self.state().log(stream).last_sequence() + 1,
        };
        Ok(Follow { memory: self.clone(), stream, patterns, next })
    }

    pub(super) fn put_object(&self, name: &str, bytes: Bytes) {
        self.state().objects.insert(name.to_owned(), bytes);
    }

    pub(super) fn get_object(&self, name: &str) -> Option<Bytes> {
        self.state().objects.get(name).cloned()
    }

    pub(super) fn delete_object(&self, name: &str) {
        self.state().objects.remove(name);
    }

    pub(super) fn objects(&self, prefix: &str) -> Vec<String> {
        let state = self.state();
        let names = state.objects.range(prefix.to_owned()..).map(|(name, _)| name);
        names.take_while(|name| name.starts_with(prefix)).cloned().collect()
    }

    fn place(&self, filter: &Filter) -> Result<(Stream, Pattern), Error> {
        let stream = super::topology::stream_of_all(std::slice::from_ref(filter))?;
        Ok((stream, Pattern::new(&self.0.namespace.filter(filter))))
    }

    /// The log, without what has grown too old.
    fn fresh_log<T>(&self, stream: Stream, look: impl FnOnce(&Log) -> T) -> T {
        let mut state = self.state();
        let bounds = log::Bounds::of(stream, &state.topology);
        let log = state.log(stream);
        log.forget(self.now(), &bounds);
        look(log)
    }

    fn now(&self) -> Timestamp {
        self.0.started_at.plus_millis(millis(self.0.started.elapsed()))
    }

    fn changed(&self, stream: Stream) -> &Notify {
        self.0.changed.get(&stream).expect("every stream is there from the start")
    }

    /// Held for no longer than a look; a panic elsewhere leaves nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn log(&mut self, stream: Stream) -> &mut Log {
        self.logs.get_mut(&stream).expect("every stream is there from the start")
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("namespace", &self.0.namespace).finish_non_exhaustive()
    }
}

/// A log as it grows.
#[derive(Debug)]
pub struct Follow {
    memory: Memory,
    stream: Stream,
    patterns: Vec<Pattern>,
    next: u64,
}

impl Follow {
    pub(super) async fn next(&mut self) -> Result<Stored, Error> {
        loop {
            // Registered before the look, so that what is stored in between wakes us.
            let mut changed = std::pin::pin!(self.memory.changed(self.stream).notified());
            changed.as_mut().enable();
            let found = self.memory.state().log(self.stream).next(&self.patterns, &mut self.next);
            match found {
                Some(stored) => return Ok(stored),
                None => changed.await,
            }
        }
    }
}
