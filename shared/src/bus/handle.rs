//! A handle to the bus: every call goes to NATS or to memory. It carries bytes and decides nothing.

use std::time::Duration;

use bytes::Bytes;

use super::{
    Consumer, Topology,
    error::{Error, PublishError, RequestError},
    fill::Fill,
    memory::Memory,
    message::{From, Head, Headers, Outgoing, Position, Published, Service, Stored},
    nats::Nats,
    stream::{Consumption, Follow, Sent, Subscription},
};
use crate::subject::{self, Filter, Namespace, Subject};

/// A handle to the bus; clones are cheap and are the same bus.
#[derive(Debug, Clone)]
pub enum Bus {
    Nats(Nats),
    Memory(Memory),
}

impl Bus {
    pub fn namespace(&self) -> &Namespace {
        match self {
            Bus::Nats(nats) => nats.namespace(),
            Bus::Memory(memory) => memory.namespace(),
        }
    }

    /// Makes the streams and consumers of a deployment, or checks those that exist.
    pub async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.set_up(topology).await,
            Bus::Memory(memory) => memory.set_up(topology).await,
        }
    }

    /// Sends messages in order, without waiting until they are stored: [`Sent::stored`] does that.
    pub async fn send(&self, messages: Vec<Outgoing>) -> Sent {
        match self {
            Bus::Nats(nats) => Sent::Nats(nats.send(messages).await),
            Bus::Memory(memory) => Sent::Memory(memory.send(messages)),
        }
    }

    /// Whether a payload of this size fits into a message. A larger one is stored as an object first, which takes longer.
    pub fn fits(&self, bytes: usize) -> bool {
        match self {
            Bus::Nats(nats) => nats.fits(bytes),
            Bus::Memory(_) => true,
        }
    }

    /// Publishes one message and waits until it is stored.
    pub async fn publish(&self, message: Outgoing) -> Result<Published, PublishError> {
        let mut results = self.send(vec![message]).await.stored().await;
        results.pop().unwrap_or(Err(PublishError::Unacknowledged))
    }

    /// Sends a message to whoever listens now; it is not stored.
    pub async fn broadcast(&self, subject: &Subject, headers: &Headers, payload: Bytes) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.broadcast(subject, headers, payload).await,
            Bus::Memory(memory) => memory.broadcast(subject, headers, payload),
        }
    }

    /// Sends to a reply subject that a requester chose; nobody may be listening any more. We publish with
    /// our own permissions, so it is never sent to a subject of Trellis or of the server.
    pub async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        if subject::is_reserved(to) {
            let reason = format!("`{to}` is reserved, and can't be a reply subject");
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

    /// Sends a request to everybody who listens, and collects answers for the time `wait`.
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

    /// Receives requests; of all processes that serve the subject, one gets each request.
    pub async fn serve(&self, subject: &Subject) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.serve(subject).await?)),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.serve(subject))),
        }
    }

    /// As `serve`, for several subjects, and listed: on NATS as a micro service that tools can find.
    pub async fn offer(&self, service: &Service) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Service(Box::new(nats.offer(service).await?))),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.offer(service))),
        }
    }

    /// Receives every broadcast.
    pub async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.subscribe(filter).await?)),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.subscribe(filter))),
        }
    }

    /// Takes work from a queue, as much as [`Consumption::want`] asks for.
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
            Bus::Memory(memory) => memory.read(filter).await,
        }
    }

    /// The last message stored under a filter.
    pub async fn last(&self, filter: &Filter) -> Result<Option<Stored>, Error> {
        match self {
            Bus::Nats(nats) => nats.last(filter).await,
            Bus::Memory(memory) => memory.last(filter).await,
        }
    }

    /// Follows a log as it grows. Survives reconnects without losing or repeating a message.
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
            Bus::Memory(memory) => memory.subjects(filter).await,
        }
    }

    /// Every message under a filter behind a sequence, up to the one that is now the last. Costs as much as there are such
    /// messages, however many there are before them.
    pub async fn each_since(
        &self,
        filter: &Filter,
        sequence: u64,
        each: &mut (dyn FnMut(Head) + Send),
    ) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.each_since(filter, sequence, each).await,
            Bus::Memory(memory) => {
                memory.heads_since(filter, sequence).await?.into_iter().for_each(each);
                Ok(())
            }
        }
    }

    /// Where the log that holds the subjects of a filter ends now. Its last message may be of another filter, or removed.
    pub async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        match self {
            Bus::Nats(nats) => nats.end(filter).await,
            Bus::Memory(memory) => memory.end(filter).await,
        }
    }

    /// Removes what is stored under a filter.
    pub async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.purge(filter).await,
            Bus::Memory(memory) => memory.purge(filter).await,
        }
    }

    /// Removes one message that is stored under a subject.
    pub async fn delete_message(&self, subject: &Subject, sequence: u64) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.delete_message(subject, sequence).await,
            Bus::Memory(memory) => memory.delete_message(subject, sequence).await,
        }
    }

    pub async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.put_object(name, bytes).await,
            Bus::Memory(memory) => memory.put_object(name, bytes).await,
        }
    }

    pub async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        match self {
            Bus::Nats(nats) => nats.get_object(name).await,
            Bus::Memory(memory) => memory.get_object(name).await,
        }
    }

    pub async fn delete_object(&self, name: &str) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.delete_object(name).await,
            Bus::Memory(memory) => memory.delete_object(name).await,
        }
    }

    /// The names of the objects with this prefix, in order.
    pub async fn objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        match self {
            Bus::Nats(nats) => nats.objects(prefix).await,
            Bus::Memory(memory) => memory.objects(prefix).await,
        }
    }

    /// How full each stream and the objects are.
    pub async fn fill(&self) -> Result<Vec<Fill>, Error> {
        match self {
            Bus::Nats(nats) => nats.fill().await,
            Bus::Memory(memory) => memory.fill().await,
        }
    }

    /// How many deliveries of a queue are not acknowledged yet, over all its readers.
    pub async fn unacknowledged(&self, consumer: &Consumer) -> Result<usize, Error> {
        match self {
            Bus::Nats(nats) => nats.unacknowledged(consumer).await,
            Bus::Memory(memory) => memory.unacknowledged(consumer).await,
        }
    }

    /// Measures a round trip to the server.
    pub async fn ping(&self) -> Result<Duration, Error> {
        match self {
            Bus::Nats(nats) => nats.ping().await,
            Bus::Memory(_) => Ok(Duration::ZERO),
        }
    }
}
