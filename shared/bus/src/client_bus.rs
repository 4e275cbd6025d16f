//! The bus as a client of a cluster holds it: a peer's bus in this process, or the bus of a gateway
//! over HTTP. It has only the calls that a client makes. Queues, setting up streams and storing
//! objects are for peers.

use std::time::Duration;

use bytes::Bytes;
use domain::{
    span::Headers,
    subject::{Filter, Namespace, Subject},
};

use super::{
    Consumer,
    error::{Error, PublishError, RequestError},
    fill::{Backlog, Fill},
    handle::Bus,
    http::Http,
    keys::Keys,
    message::{self, Identity, Outgoing, Position, PublishReceipt, StoredMessage},
    stream::{Follow, Subscription},
};

/// Makes one call on the bus of a handle.
macro_rules! dispatch {
    ($handle:expr, $bus:ident => $call:expr) => {
        match $handle {
            ClientBus::Direct($bus) => $call,
            ClientBus::Http($bus) => $call,
        }
    };
}

/// A client's handle to the bus. Clones are cheap and share the same bus.
#[derive(Debug, Clone)]
pub enum ClientBus {
    Direct(Bus),
    Http(Http),
}

impl From<Bus> for ClientBus {
    fn from(bus: Bus) -> Self {
        ClientBus::Direct(bus)
    }
}

impl From<Http> for ClientBus {
    fn from(http: Http) -> Self {
        ClientBus::Http(http)
    }
}

impl ClientBus {
    pub fn namespace(&self) -> &Namespace {
        dispatch!(self, bus => bus.namespace())
    }

    /// The same bus for a client with keys, which leaves out messages without a valid signature
    /// (S3). Over HTTP the gateway checks them instead.
    #[must_use]
    pub fn with_keys(self, keys: Keys) -> Self {
        match self {
            ClientBus::Direct(bus) => ClientBus::Direct(bus.with_keys(keys)),
            ClientBus::Http(http) => ClientBus::Http(http),
        }
    }

    /// Publishes one message and waits until it is stored.
    pub async fn publish(&self, message: Outgoing) -> Result<PublishReceipt, PublishError> {
        dispatch!(self, bus => bus.publish(message).await)
    }

    pub async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        dispatch!(self, bus => bus.request(subject, headers, payload, timeout).await)
    }

    /// Sends a request to all listeners, and collects answers for the time `wait`.
    pub async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        dispatch!(self, bus => bus.gather(subject, payload, wait).await)
    }

    /// Receives every broadcast.
    pub async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        dispatch!(self, bus => bus.subscribe(filter).await)
    }

    /// All messages stored under a filter now, oldest first.
    pub async fn read(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        dispatch!(self, bus => bus.read(filter).await)
    }

    /// The last message stored under a filter.
    pub async fn last(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        dispatch!(self, bus => bus.last(filter).await)
    }

    /// Follows a log as it grows. Survives reconnects without losing or repeating a message.
    pub async fn follow(&self, filters: &[Filter], from: message::From) -> Result<Follow, Error> {
        dispatch!(self, bus => bus.follow(filters, from).await)
    }

    /// The subjects that have messages under a filter.
    pub async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        dispatch!(self, bus => bus.subjects(filter).await)
    }

    /// The current end of the log that holds the subjects of a filter. The last message of the log
    /// may belong to another filter, or be removed.
    pub async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        dispatch!(self, bus => bus.end(filter).await)
    }

    /// Removes one message that is stored under a subject.
    pub async fn delete_message(&self, subject: &Subject, sequence: u64) -> Result<(), Error> {
        dispatch!(self, bus => bus.delete_message(subject, sequence).await)
    }

    /// The object of this name whose content has this hash; if it is missing, the object that the
    /// name has now. The caller compares the hash.
    pub async fn get_content(&self, name: &str, sha256: &str) -> Result<Option<Bytes>, Error> {
        dispatch!(self, bus => bus.get_content(name, sha256).await)
    }

    /// How full each stream and the objects are.
    pub async fn fill(&self) -> Result<Vec<Fill>, Error> {
        dispatch!(self, bus => bus.fill().await)
    }

    /// The number of deliveries of a queue that wait, and that are being handled. Both are 0 for a
    /// missing queue.
    pub async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        dispatch!(self, bus => bus.backlog(consumer).await)
    }

    /// The user that a NATS server knows this client as, with its permissions; none over HTTP, in
    /// memory and on disk.
    pub async fn identity(&self) -> Result<Option<Identity>, Error> {
        match self {
            ClientBus::Direct(bus) => bus.identity().await,
            ClientBus::Http(_) => Ok(None),
        }
    }

    /// The differences between the streams of a NATS server and those that a coordinator creates;
    /// empty over HTTP, in memory and on disk.
    pub async fn differences(&self) -> Result<Vec<String>, Error> {
        match self {
            ClientBus::Direct(bus) => bus.differences().await,
            ClientBus::Http(_) => Ok(Vec::new()),
        }
    }

    /// Measures a round trip to the server.
    pub async fn ping(&self) -> Result<Duration, Error> {
        dispatch!(self, bus => bus.ping().await)
    }
}
