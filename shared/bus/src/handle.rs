//! A peer's handle to the bus, which coordinators, workers and gateways hold: each call goes to NATS, to memory or to the
//! disk. A client of a cluster holds a `ClientBus`, which may also reach one of these over HTTP.

use std::time::Duration;

use bytes::Bytes;
use domain::{
    span::Headers,
    subject::{self, Filter, Namespace, Subject},
    wording::with_causes,
};
use telemetry::Outage;

use super::{
    Consumer, Topology,
    disk::Disk,
    error::{Error, RequestError},
    fill::{Backlog, Fill},
    memory::Memory,
    message::{From, Head, Identity, Outgoing, Position, Service, StoredMessage},
    nats::Nats,
    stream::{Consumption, Follow, Followed, LogFollow, MessagesInFlight, Sending, Subscription},
};
use crate::keys::Keys;

/// Makes one call on the bus of a handle. `within`: the memory of a disk's bus answers for it, because the call stores nothing.
macro_rules! dispatch {
    (within $handle:expr, $bus:ident => $call:expr) => {
        match $handle {
            Bus::Nats($bus) => $call,
            Bus::Memory($bus) | Bus::Disk(Disk { within: $bus, .. }) => $call,
        }
    };
    ($handle:expr, $bus:ident => $call:expr) => {
        match $handle {
            Bus::Nats($bus) => $call,
            Bus::Memory($bus) => $call,
            Bus::Disk($bus) => $call,
        }
    };
}

/// A handle to the bus; clones are cheap and are the same bus.
#[derive(Debug, Clone)]
pub enum Bus {
    Nats(Nats),
    Memory(Memory),
    Disk(Disk),
}

impl Bus {
    pub fn namespace(&self) -> &Namespace {
        dispatch!(self, bus => bus.namespace())
    }

    /// The same bus for a coordinator with keys: what it stores in the logs that are read back is signed, and what it reads
    /// there and nobody with these keys has signed is left out, as if it were not there (S3).
    #[must_use]
    pub fn with_keys(self, keys: Keys) -> Self {
        match self {
            Bus::Nats(nats) => Bus::Nats(nats.with_keys(keys)),
            Bus::Memory(memory) => Bus::Memory(memory.with_keys(keys)),
            Bus::Disk(disk) => Bus::Disk(disk.with_keys(keys)),
        }
    }

    pub(super) fn keys(&self) -> Option<&Keys> {
        match self {
            Bus::Nats(nats) => nats.1.as_ref(),
            Bus::Memory(memory) | Bus::Disk(Disk { within: memory, .. }) => memory.keys.as_ref(),
        }
    }

    /// Makes the streams and consumers of a deployment, or checks those that exist.
    pub async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        dispatch!(self, bus => bus.set_up(topology).await)
    }

    pub(super) async fn send_signed(&self, messages: Vec<Outgoing>) -> MessagesInFlight {
        let is_dead = |(place, message): (usize, &Outgoing)| {
            if let Subject::Dead(kind) = &message.subject { Some((place, kind.clone())) } else { None }
        };
        let dead_letters = messages.iter().enumerate().filter_map(is_dead).collect();
        let sending = match self {
            Bus::Nats(nats) => Sending::Nats(nats.send(messages).await),
            Bus::Memory(memory) => Sending::Memory(memory.send(messages)),
            Bus::Disk(disk) => Sending::Disk(disk.send(messages).await),
        };
        MessagesInFlight { sending, dead_letters }
    }

    /// Whether a payload of this size fits into a message. A larger one is stored as an object first, which takes longer.
    pub fn fits(&self, bytes: usize) -> bool {
        match self {
            Bus::Nats(nats) => nats.fits(bytes),
            Bus::Memory(_) | Bus::Disk(_) => true,
        }
    }

    /// Sends a message to whoever listens now; it is not stored.
    pub async fn broadcast(&self, subject: &Subject, headers: &Headers, payload: Bytes) -> Result<(), Error> {
        dispatch!(self, bus => bus.broadcast(subject, headers, payload).await)
    }

    /// Sends to a reply subject that a requester chose; nobody may be listening any more. We publish with
    /// our own permissions, so it is never sent to a subject of Trellis or of the server.
    pub async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        if subject::is_reserved(to) {
            let reason = format!("`{to}` is reserved, and can't be a reply subject");
            return Err(Error::Failed { doing: "answering a request".into(), reason });
        }
        dispatch!(within self, bus => bus.reply(to, payload).await)
    }

    pub async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        dispatch!(within self, bus => bus.request(subject, headers, payload, timeout).await)
    }

    /// Sends a request to everybody who listens, and collects answers for the time `wait`.
    pub async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        dispatch!(within self, bus => bus.gather(subject, payload, wait).await)
    }

    /// Receives requests; of all processes that serve the filter, one gets each request.
    pub async fn serve(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.serve(filter).await?)),
            Bus::Memory(memory) | Bus::Disk(Disk { within: memory, .. }) => {
                Ok(Subscription::Memory(memory.serve(filter)))
            }
        }
    }

    /// As `serve`, for several subjects, and listed: on NATS as a micro service that tools can find.
    pub async fn offer(&self, service: &Service) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Service(Box::new(nats.offer(service).await?))),
            Bus::Memory(memory) | Bus::Disk(Disk { within: memory, .. }) => {
                Ok(Subscription::Memory(memory.offer(service)))
            }
        }
    }

    /// Receives every broadcast.
    pub async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.subscribe(filter).await?)),
            Bus::Memory(memory) | Bus::Disk(Disk { within: memory, .. }) => {
                Ok(Subscription::Memory(memory.subscribe(filter)))
            }
        }
    }

    /// Takes work from a queue, as much as [`Consumption::want`] asks for.
    pub async fn consume(&self, consumer: &Consumer) -> Result<Consumption, Error> {
        match self {
            Bus::Nats(nats) => Ok(Consumption::Nats(Box::new(nats.consume(consumer).await?))),
            Bus::Memory(memory) => Ok(Consumption::Memory(memory.consume(consumer))),
            Bus::Disk(disk) => Ok(Consumption::Disk(disk.consume(consumer))),
        }
    }

    /// Everything stored under a filter, whoever stored it: for what nothing depends on.
    pub async fn read_unjudged(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        dispatch!(self, bus => bus.read(filter).await)
    }

    /// The last message stored under a filter, valid signature or not.
    pub(super) async fn last_unjudged(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        dispatch!(self, bus => bus.last(filter).await)
    }

    /// The sequence of the first message on a subject behind another.
    pub(super) async fn next_behind(&self, subject: &Subject, sequence: u64) -> Result<Option<u64>, Error> {
        dispatch!(self, bus => bus.next_behind(subject, sequence).await)
    }

    /// Follows a log as it grows. Survives reconnects without losing or repeating a message.
    pub async fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        let log = match self {
            Bus::Nats(nats) => Followed::Nats(Box::new(nats.follow(filters, from).await?)),
            Bus::Memory(memory) => Followed::Memory(memory.follow(filters, from)?),
            Bus::Disk(disk) => Followed::Disk(disk.follow(filters, from).await?),
        };
        Ok(Follow::Direct(LogFollow { log, verifier: self.verifier() }))
    }

    /// The subjects that have messages under a filter.
    pub async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        dispatch!(self, bus => bus.subjects(filter).await)
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
            Bus::Nats(nats) => return nats.each_since(filter, sequence, each).await,
            Bus::Memory(memory) => memory.heads_since(filter, sequence).await?.into_iter().for_each(each),
            Bus::Disk(disk) => disk.heads_since(filter, sequence).await?.into_iter().for_each(each),
        }
        Ok(())
    }

    /// Where the log that holds the subjects of a filter ends now. Its last message may be of another filter, or removed.
    pub async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        dispatch!(self, bus => bus.end(filter).await)
    }

    /// Removes what is stored under a filter.
    pub async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        dispatch!(self, bus => bus.purge(filter).await)
    }

    /// Removes one message that is stored under a subject.
    pub async fn delete_message(&self, subject: &Subject, sequence: u64) -> Result<(), Error> {
        dispatch!(self, bus => bus.delete_message(subject, sequence).await)
    }

    pub async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        dispatch!(self, bus => bus.put_object(name, bytes).await)
    }

    pub async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        self.object(name, None).await
    }

    /// The object of this name whose content has this hash, even if its name was stored again since; if it is missing, the
    /// object that the name has now. The caller compares the hash.
    pub async fn get_content(&self, name: &str, sha256: &str) -> Result<Option<Bytes>, Error> {
        self.object(name, Some(sha256)).await
    }

    async fn object(&self, name: &str, sha256: Option<&str>) -> Result<Option<Bytes>, Error> {
        match self {
            Bus::Nats(nats) => Box::pin(nats.get_object(name, sha256)).await,
            Bus::Memory(memory) => memory.get_object(name).await,
            Bus::Disk(disk) => disk.get_object(name).await,
        }
    }

    pub async fn delete_object(&self, name: &str) -> Result<(), Error> {
        dispatch!(self, bus => bus.delete_object(name).await)
    }

    /// The names of the objects with this prefix, in order.
    pub async fn objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        dispatch!(self, bus => bus.objects(prefix).await)
    }

    /// How full each stream and the objects are.
    pub async fn fill(&self) -> Result<Vec<Fill>, Error> {
        dispatch!(self, bus => bus.fill().await)
    }

    /// How many deliveries of a queue are not acknowledged yet, over all its readers.
    pub async fn unacknowledged(&self, consumer: &Consumer) -> Result<usize, Error> {
        dispatch!(within self, bus => bus.unacknowledged(consumer).await)
    }

    /// How much of a queue waits, and is being done. A queue that does not exist has nothing.
    pub async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        dispatch!(self, bus => bus.backlog(consumer).await)
    }

    /// Something could not be done, again and again. Without a connection nothing can, and that is told once for all (X8).
    pub fn tell(&self, outage: &mut Outage, error: &Error) {
        match self {
            Bus::Nats(nats) => nats.failed(outage, error),
            Bus::Memory(_) | Bus::Disk(_) => outage.failed(&with_causes(error)),
        }
    }

    /// Makes the queues of the pools that this process has published work for again, if they were removed.
    pub async fn keep_pools(&self) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.keep_pools().await,
            Bus::Memory(_) | Bus::Disk(_) => Ok(()),
        }
    }

    /// Who we are for the server, and what it permits us; nobody within this process.
    pub async fn identity(&self) -> Result<Option<Identity>, Error> {
        match self {
            Bus::Nats(nats) => Ok(Some(nats.identity().await?)),
            Bus::Memory(_) | Bus::Disk(_) => Ok(None),
        }
    }

    /// How the streams of a server differ from those that a coordinator makes; what is within a process, or behind another
    /// server, can't.
    pub async fn differences(&self) -> Result<Vec<String>, Error> {
        match self {
            Bus::Nats(nats) => nats.differences().await,
            Bus::Memory(_) | Bus::Disk(_) => Ok(Vec::new()),
        }
    }

    /// Measures a round trip to the server.
    pub async fn ping(&self) -> Result<Duration, Error> {
        match self {
            Bus::Nats(nats) => nats.ping().await,
            Bus::Memory(_) => Ok(Duration::ZERO),
            Bus::Disk(disk) => disk.ping().map(|()| Duration::ZERO),
        }
    }
}
