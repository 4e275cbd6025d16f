//! A peer's handle to the bus. Coordinators, workers and gateways hold it; each call goes to NATS,
//! to memory or to the disk. A client of a cluster holds a `ClientBus`, which may also reach a
//! peer's bus over HTTP.

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
    topology::ExistingLimits,
};
use crate::keys::Keys;

/// Makes one call on the implementation of a handle. `within`: the call stores nothing, so a disk
/// bus passes it to its memory bus.
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

/// A handle to the bus. Clones are cheap and share the same bus.
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

    /// The same bus for a coordinator with keys. Messages that it stores in signed logs are signed;
    /// messages that it reads there without a valid signature are left out, as if they did not
    /// exist (S3).
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

    /// Creates the streams and consumers of a deployment, and changes the limits of those that exist.
    pub async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        self.set_up_as(topology, ExistingLimits::Change).await
    }

    /// As [`Bus::set_up`]; `existing` is for a NATS server, which other processes set up too.
    pub async fn set_up_as(&self, topology: &Topology, existing: ExistingLimits) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.set_up(topology, existing).await,
            Bus::Memory(memory) => memory.set_up(topology).await,
            Bus::Disk(disk) => disk.set_up(topology).await,
        }
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

    /// Returns true if a payload of this size fits into a message. A larger payload is first stored
    /// as an object, which takes longer.
    pub fn fits(&self, bytes: usize) -> bool {
        match self {
            Bus::Nats(nats) => nats.fits(bytes),
            Bus::Memory(_) | Bus::Disk(_) => true,
        }
    }

    /// Sends a message to all current listeners; it is not stored.
    pub async fn broadcast(&self, subject: &Subject, headers: &Headers, payload: Bytes) -> Result<(), Error> {
        dispatch!(self, bus => bus.broadcast(subject, headers, payload).await)
    }

    /// Sends to a reply subject that the requester chose. The requester may have stopped listening.
    /// The message is sent with this process's own permissions, so a subject of Trellis or of the
    /// server is rejected: otherwise a requester could make a peer send there.
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

    /// Sends a request to all listeners, and collects answers for the time `wait`.
    pub async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        dispatch!(within self, bus => bus.gather(subject, payload, wait).await)
    }

    /// Receives requests. Each request goes to one of the processes that serve the filter.
    pub async fn serve(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.serve(filter).await?)),
            Bus::Memory(memory) | Bus::Disk(Disk { within: memory, .. }) => {
                Ok(Subscription::Memory(memory.serve(filter)))
            }
        }
    }

    /// Like `serve`, for several subjects. On NATS it is a micro service, which tools can list.
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

    /// Reads a queue. It delivers as many messages as [`Consumption::want`] asks for.
    pub async fn consume(&self, consumer: &Consumer) -> Result<Consumption, Error> {
        match self {
            Bus::Nats(nats) => Ok(Consumption::Nats(Box::new(nats.consume(consumer).await?))),
            Bus::Memory(memory) => Ok(Consumption::Memory(memory.consume(consumer))),
            Bus::Disk(disk) => Ok(Consumption::Disk(disk.consume(consumer))),
        }
    }

    /// All messages stored under a filter, with or without a valid signature. Use it only where no
    /// decision depends on the messages.
    pub async fn read_unjudged(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        dispatch!(self, bus => bus.read(filter).await)
    }

    /// The last message stored under a filter, with or without a valid signature.
    pub(super) async fn last_unjudged(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        dispatch!(self, bus => bus.last(filter).await)
    }

    /// The sequence of the first message on a subject after the given sequence.
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

    /// Calls `each` for every message under a filter after a sequence, up to the message that is
    /// now the last. The cost depends on the number of these messages only, and not on the number
    /// before them.
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

    /// The current end of the log that holds the subjects of a filter. The last message of the log
    /// may belong to another filter, or be removed.
    pub async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        dispatch!(self, bus => bus.end(filter).await)
    }

    /// Removes all messages stored under a filter.
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

    /// The object of this name whose content has this hash, even if the name was stored again
    /// since. If that content is missing, it is the object that the name has now. The caller
    /// compares the hash.
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

    /// The number of unacknowledged deliveries of a queue, over all its readers.
    pub async fn unacknowledged(&self, consumer: &Consumer) -> Result<usize, Error> {
        dispatch!(within self, bus => bus.unacknowledged(consumer).await)
    }

    /// The number of deliveries of a queue that wait, and that are being handled. Both are 0 for a
    /// missing queue.
    pub async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        dispatch!(self, bus => bus.backlog(consumer).await)
    }

    /// Reports a failure of a task that is retried again and again. Without a connection every task
    /// fails, and the lost connection is reported once for all of them (X8).
    pub fn tell(&self, outage: &mut Outage, error: &Error) {
        match self {
            Bus::Nats(nats) => nats.failed(outage, error),
            Bus::Memory(_) | Bus::Disk(_) => outage.failed(&with_causes(error)),
        }
    }

    /// Recreates the queues of the pools that this process has published work for, if they were
    /// removed.
    pub async fn keep_pools(&self) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.keep_pools().await,
            Bus::Memory(_) | Bus::Disk(_) => Ok(()),
        }
    }

    /// The user that the server knows this process as, with its permissions; none for a bus in
    /// memory or on disk.
    pub async fn identity(&self) -> Result<Option<Identity>, Error> {
        match self {
            Bus::Nats(nats) => Ok(Some(nats.identity().await?)),
            Bus::Memory(_) | Bus::Disk(_) => Ok(None),
        }
    }

    /// The differences between the streams of a NATS server and those that a coordinator creates.
    /// Always empty for a bus in memory or on disk.
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
