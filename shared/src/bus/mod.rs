//! The bus: durable publishing, work queues, request and reply, broadcast, logs that are read back,
//! and objects. One interface over two real implementations, NATS and memory; only this module knows
//! NATS. It carries bytes and decides nothing.

mod memory;
mod nats;
mod topology;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;

pub use memory::Memory;
pub use nats::{Connect, Nats};
pub use topology::{Consumer, Stream, Topology};

use crate::{
    subject::{self, Filter, Namespace, Subject},
    time::Timestamp,
};

/// A handle to the bus; clones are cheap and are the same bus.
#[derive(Debug, Clone)]
pub enum Bus {
    Nats(Nats),
    Memory(Memory),
}

/// W3C trace context and the like. Few and short.
pub type Headers = BTreeMap<String, String>;

/// A message to be stored before it counts as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub subject: Subject,
    /// Sent again under the same id, it is stored once (as long as the server remembers).
    pub id: Option<String>,
    pub headers: Headers,
    pub payload: Bytes,
    /// Stored only if this is the last sequence on its subject; 0: only if it is the first.
    pub expect_last: Option<u64>,
}

/// A message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    pub sequence: u64,
    /// It was there already, by its id.
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Somebody else wrote to the subject first: a fence, not a fault.
    #[error("the subject has moved on: its last sequence is not the expected one")]
    WrongSequence,
    #[error("the stream is full: {0}")]
    Full(String),
    /// It may have been stored or not; sending again under the same id is safe.
    #[error("no acknowledgement in time")]
    Unacknowledged,
    #[error("could not publish: {0}")]
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("nobody answers there")]
    NoResponders,
    #[error("no answer in time")]
    TimedOut,
    #[error("could not ask: {0}")]
    Other(String),
}

/// The bus could not be reached, or is not what it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("could not connect to NATS at {url}: {reason}")]
    Connect { url: String, reason: String },
    #[error("nats-server {found} is too old: {needed} or newer is needed")]
    TooOld { found: String, needed: &'static str },
    #[error("{what} `{name}` is configured differently on the server: {difference}")]
    Mismatch { what: &'static str, name: String, difference: String },
    /// It will not be smaller next time.
    #[error("the object `{name}` has more than the {max} bytes that are allowed")]
    TooLarge { name: String, max: u64 },
    #[error("{doing}: {reason}")]
    Failed { doing: String, reason: String },
}

/// A message as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub subject: Subject,
    pub headers: Headers,
    pub payload: Bytes,
    pub sequence: u64,
    pub at: Timestamp,
}

/// From where a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    Sequence(u64),
    Now,
}

impl Bus {
    pub fn namespace(&self) -> &Namespace {
        match self {
            Bus::Nats(nats) => nats.namespace(),
            Bus::Memory(memory) => memory.namespace(),
        }
    }

    /// Makes the streams and consumers of a deployment, or compares those that are there.
    pub async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.set_up(topology).await,
            Bus::Memory(memory) => memory.set_up(topology).await,
        }
    }

    /// Sends messages in order, without waiting for them to be stored: [`Sent::stored`] does.
    pub async fn send(&self, messages: Vec<Outgoing>) -> Sent {
        match self {
            Bus::Nats(nats) => Sent::Nats(nats.send(messages).await),
            Bus::Memory(memory) => Sent::Memory(memory.send(messages)),
        }
    }

    /// One message, stored.
    pub async fn publish(&self, message: Outgoing) -> Result<Published, PublishError> {
        let mut results = self.send(vec![message]).await.stored().await;
        results.pop().unwrap_or(Err(PublishError::Unacknowledged))
    }

    /// To whoever listens now; not stored.
    pub async fn broadcast(&self, subject: &Subject, headers: &Headers, payload: Bytes) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.broadcast(subject, headers, payload).await,
            Bus::Memory(memory) => memory.broadcast(subject, headers, payload),
        }
    }

    /// To a reply address someone gave us. Nobody may be listening any more. We publish with our own
    /// rights, so it never goes where it would be a message to us or an order to the server.
    pub async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        if subject::is_reserved(to) {
            let reason = format!("`{to}` is not the asker's own");
            return Err(Error::Failed { doing: "answering a request".into(), reason });
        }
        match self {
            Bus::Nats(nats) => nats.reply(to, payload).await,
            Bus::Memory(memory) => memory.reply(to, payload),
        }
    }

    pub async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        match self {
            Bus::Nats(nats) => nats.request(subject, headers, payload, timeout).await,
            Bus::Memory(memory) => memory.request(subject, headers, payload, timeout).await,
        }
    }

    /// Asks everybody who listens, and collects answers until `wait` is over.
    pub async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        match self {
            Bus::Nats(nats) => nats.gather(subject, payload, wait).await,
            Bus::Memory(memory) => memory.gather(subject, payload, wait).await,
        }
    }

    /// Answers requests, one server of the group each.
    pub async fn serve(&self, subject: &Subject) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.serve(subject).await?)),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.serve(subject))),
        }
    }

    /// As `serve`, for several subjects, and announced: on NATS a micro service that tools can list.
    pub async fn offer(&self, service: &Service) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Service(Box::new(nats.offer(service).await?))),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.offer(service))),
        }
    }

    /// Hears every broadcast.
    pub async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.subscribe(filter).await?)),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.subscribe(filter))),
        }
    }

    /// Takes work from a queue, as much as it is told to want.
    pub async fn consume(&self, consumer: &Consumer) -> Result<Consumption, Error> {
        match self {
            Bus::Nats(nats) => Ok(Consumption::Nats(nats.consume(consumer).await?)),
            Bus::Memory(memory) => Ok(Consumption::Memory(memory.consume(consumer))),
        }
    }

    /// Everything stored under a filter now, oldest first.
    pub async fn read(&self, filter: &Filter) -> Result<Vec<Stored>, Error> {
        match self {
            Bus::Nats(nats) => nats.read(filter).await,
            Bus::Memory(memory) => memory.read(filter),
        }
    }

    /// The last message stored under a filter.
    pub async fn last(&self, filter: &Filter) -> Result<Option<Stored>, Error> {
        match self {
            Bus::Nats(nats) => nats.last(filter).await,
            Bus::Memory(memory) => memory.last(filter),
        }
    }

    /// A log as it grows. Survives reconnects without losing or repeating a message.
    pub async fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        match self {
            Bus::Nats(nats) => Ok(Follow::Nats(Box::new(nats.follow(filters, from).await?))),
            Bus::Memory(memory) => Ok(Follow::Memory(memory.follow(filters, from)?)),
        }
    }

    /// The subjects that have messages under a filter.
    pub async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        match self {
            Bus::Nats(nats) => nats.subjects(filter).await,
            Bus::Memory(memory) => memory.subjects(filter),
        }
    }

    /// Removes what is stored under a filter.
    pub async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.purge(filter).await,
            Bus::Memory(memory) => memory.purge(filter),
        }
    }

    pub async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.put_object(name, bytes).await,
            Bus::Memory(memory) => {
                memory.put_object(name, bytes);
                Ok(())
            }
        }
    }

    pub async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        match self {
            Bus::Nats(nats) => nats.get_object(name).await,
            Bus::Memory(memory) => Ok(memory.get_object(name)),
        }
    }

    pub async fn delete_object(&self, name: &str) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.delete_object(name).await,
            Bus::Memory(memory) => {
                memory.delete_object(name);
                Ok(())
            }
        }
    }

    /// The names of the objects that begin with this, in order.
    pub async fn objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        match self {
            Bus::Nats(nats) => nats.objects(prefix).await,
            Bus::Memory(memory) => Ok(memory.objects(prefix)),
        }
    }

    /// A round trip to the server: how long it took.
    pub async fn ping(&self) -> Result<Duration, Error> {
        match self {
            Bus::Nats(nats) => nats.ping().await,
            Bus::Memory(_) => Ok(Duration::ZERO),
        }
    }
}

/// What a service is called and where it listens.
#[derive(Debug, Clone)]
pub struct Service {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub subjects: Vec<Subject>,
}

/// Messages on their way to be stored.
#[derive(Debug)]
pub enum Sent {
    Nats(nats::Sending),
    Memory(Vec<Result<Published, PublishError>>),
}

impl Sent {
    /// Waits until each is stored, sending again under the same id what is not acknowledged. One
    /// result a message, in their order.
    pub async fn stored(self) -> Vec<Result<Published, PublishError>> {
        match self {
            Sent::Nats(sending) => sending.stored().await,
            Sent::Memory(results) => results,
        }
    }
}

/// A message that is not stored: a broadcast, or a request if there is someone to answer.
#[derive(Debug, Clone)]
pub struct Message {
    pub subject: Subject,
    pub headers: Headers,
    pub payload: Bytes,
    /// Where the answer goes, for [`Bus::reply`].
    pub reply_to: Option<String>,
}

#[derive(Debug)]
pub enum Subscription {
    Nats(nats::Subscription),
    Service(Box<nats::ServiceRequests>),
    Memory(memory::Subscription),
}

impl Subscription {
    /// The next message; none when the bus is closed.
    pub async fn next(&mut self) -> Option<Message> {
        match self {
            Subscription::Nats(subscription) => subscription.next().await,
            Subscription::Service(requests) => requests.next().await,
            Subscription::Memory(subscription) => subscription.next().await,
        }
    }
}

/// A queue being worked on. It takes no more than [`Consumption::want`] has asked for.
#[derive(Debug)]
pub enum Consumption {
    Nats(nats::Consumption),
    Memory(memory::Consumption),
}

impl Consumption {
    /// Room for this many more deliveries.
    pub fn want(&mut self, more: usize) {
        match self {
            Consumption::Nats(consumption) => consumption.want(more),
            Consumption::Memory(consumption) => consumption.want(more),
        }
    }

    /// The next delivery. Waits for ever if none comes; safe to be dropped and called again.
    pub async fn next(&mut self) -> Delivery {
        match self {
            Consumption::Nats(consumption) => consumption.next().await,
            Consumption::Memory(consumption) => consumption.next().await,
        }
    }

    /// How long ago the server last showed that this queue is served: an answer to a pull, or a
    /// delivery. What readiness is judged by.
    pub fn silent_for(&self) -> Duration {
        match self {
            Consumption::Nats(consumption) => consumption.silent_for(),
            Consumption::Memory(_) => Duration::ZERO,
        }
    }
}

/// A message from a queue. Dropped without a word it comes again after the ack wait.
#[derive(Debug)]
pub struct Delivery {
    /// As it stands on the server, for what can't be parsed.
    pub subject: String,
    pub headers: Headers,
    pub payload: Bytes,
    /// Its place in the stream, and when it was stored: together they name it for ever.
    pub sequence: u64,
    pub at: Timestamp,
    /// How often it has been delivered, this time included; restarts when a consumer is re-created.
    pub delivered: u64,
    acker: Acker,
}

#[derive(Debug)]
enum Acker {
    Nats(nats::Acker),
    Memory(memory::Acker),
}

impl Delivery {
    /// Done: it goes.
    pub async fn ack(&self) {
        self.say(Said::Ack).await;
    }

    /// Not now: it comes again after `delay`.
    pub async fn nak(&self, delay: Duration) {
        self.say(Said::Nak(delay)).await;
    }

    /// Still at it: the ack wait begins anew.
    pub async fn progress(&self) {
        self.say(Said::Progress).await;
    }

    /// Never again: it goes undone.
    pub async fn terminate(&self) {
        self.say(Said::Terminate).await;
    }

    /// Lost words are harmless: the message then comes again.
    async fn say(&self, said: Said) {
        match &self.acker {
            Acker::Nats(acker) => acker.say(said).await,
            Acker::Memory(acker) => acker.say(said),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Said {
    Ack,
    Nak(Duration),
    Progress,
    Terminate,
}

/// A log being followed.
#[derive(Debug)]
pub enum Follow {
    Nats(Box<nats::Follow>),
    Memory(memory::Follow),
}

impl Follow {
    pub async fn next(&mut self) -> Result<Stored, Error> {
        match self {
            Follow::Nats(follow) => follow.next().await,
            Follow::Memory(follow) => follow.next().await,
        }
    }
}
