//! The long-lived values that a handle to the bus returns: messages in flight, a subscription, a
//! queue with its deliveries, a followed log. Each has one implementation per bus.

use std::time::Duration;

use bytes::Bytes;
use domain::{id::ChildId, span::Headers, time::Timestamp};
use telemetry::metrics;

use super::{
    authentic::Verifier,
    disk,
    error::{Error, PublishError},
    http, memory,
    message::{Acknowledgement, Message, PublishReceipt, ReceivedMessage, StoredMessage},
    nats,
};

/// Messages that were sent and are not yet known to be stored.
#[derive(Debug)]
pub struct MessagesInFlight {
    pub(super) sending: Sending,
    /// The places of the dead letters among them, with the kind of each message. A dead letter is
    /// counted in the metrics once it is stored.
    pub(super) dead_letters: Vec<(usize, ChildId)>,
}

#[derive(Debug)]
pub(super) enum Sending {
    Nats(nats::Sending),
    Memory(memory::Sending),
    Disk(disk::Sending),
}

impl MessagesInFlight {
    /// Waits until each message is stored. An unacknowledged message is sent again under the same
    /// id. Returns one result per message, in order.
    pub async fn stored(self) -> Vec<Result<PublishReceipt, PublishError>> {
        let results = match self.sending {
            Sending::Nats(sending) => sending.stored().await,
            Sending::Memory(sending) => sending.stored().await,
            Sending::Disk(sending) => sending.stored().await,
        };
        for (place, kind) in self.dead_letters {
            if let Some(Ok(PublishReceipt { duplicate: false, .. })) = results.get(place) {
                metrics::dead_letter(kind.as_str());
            }
        }
        results
    }
}

#[derive(Debug)]
pub enum Subscription {
    Nats(nats::Subscription),
    Service(Box<nats::ServiceRequests>),
    Memory(memory::Subscription),
    Http(Box<http::Subscription>),
}

impl Subscription {
    /// The next message; none when the bus is closed.
    pub async fn next(&mut self) -> Option<Message> {
        match self {
            Subscription::Nats(subscription) => subscription.next().await,
            Subscription::Service(requests) => requests.next().await,
            Subscription::Memory(subscription) => subscription.next().await,
            Subscription::Http(subscription) => subscription.next().await,
        }
    }
}

/// A queue that is being read. It delivers no more than [`Consumption::want`] has asked for.
#[derive(Debug)]
pub enum Consumption {
    Nats(Box<nats::Consumption>),
    Memory(memory::Consumption),
    Disk(disk::Consumption),
}

impl Consumption {
    /// Asks for this many more deliveries.
    pub fn want(&mut self, more: usize) {
        match self {
            Consumption::Nats(consumption) => consumption.want(more),
            Consumption::Memory(consumption) => consumption.want(more),
            Consumption::Disk(consumption) => consumption.want(more),
        }
    }

    /// The next delivery. Waits for ever if the queue stays empty. Cancel-safe.
    pub async fn next(&mut self) -> Delivery {
        match self {
            Consumption::Nats(consumption) => {
                let (received, acker) = consumption.next().await;
                Delivery::new(received, Acker::Nats(acker))
            }
            Consumption::Memory(consumption) => {
                let (received, acker) = consumption.next().await;
                Delivery::new(received, Acker::Memory(acker))
            }
            Consumption::Disk(consumption) => {
                let (received, acker) = consumption.next().await;
                Delivery::new(received, Acker::Disk(acker))
            }
        }
    }

    /// The time since the server last answered a pull or delivered a message. Readiness depends on
    /// it.
    pub fn silent_for(&self) -> Duration {
        match self {
            Consumption::Nats(consumption) => consumption.silent_for(),
            Consumption::Memory(_) | Consumption::Disk(_) => Duration::ZERO,
        }
    }
}

/// A message from a queue. If it is dropped unacknowledged, it is delivered again after the ack
/// wait.
#[derive(Debug)]
pub struct Delivery {
    /// The subject's name on the server, which may be invalid as a [`domain::subject::Subject`].
    pub subject: String,
    pub headers: Headers,
    pub payload: Bytes,
    /// Its sequence in the stream. Together with `at`, the time when it was stored, it identifies
    /// the message for ever.
    pub sequence: u64,
    pub at: Timestamp,
    /// The number of deliveries of this message so far, with this one. It restarts when a consumer
    /// is recreated.
    pub delivered: u64,
    acker: Acker,
}

#[derive(Debug)]
enum Acker {
    Nats(nats::Acker),
    Memory(memory::Acker),
    Disk(disk::Acker),
}

impl Delivery {
    fn new(received: ReceivedMessage, acker: Acker) -> Self {
        let ReceivedMessage { subject, headers, payload, sequence, at, delivered } = received;
        Delivery { subject, headers, payload, sequence, at, delivered, acker }
    }

    /// The message was handled and is removed.
    pub async fn ack(&self) {
        self.acknowledge(Acknowledgement::Ack).await;
    }

    /// The message can't be handled now and is delivered again after `delay`.
    pub async fn nak(&self, delay: Duration) {
        self.acknowledge(Acknowledgement::Nak(delay)).await;
    }

    /// The message is still being handled: the ack wait starts again.
    pub async fn progress(&self) {
        self.acknowledge(Acknowledgement::Progress).await;
    }

    /// The message is rejected for good and removed.
    pub async fn terminate(&self) {
        self.acknowledge(Acknowledgement::Terminate).await;
    }

    /// A lost acknowledgement is harmless: the message is delivered again.
    async fn acknowledge(&self, acknowledgement: Acknowledgement) {
        match &self.acker {
            Acker::Nats(acker) => acker.acknowledge(acknowledgement).await,
            Acker::Memory(acker) => acker.acknowledge(acknowledgement),
            Acker::Disk(acker) => acker.acknowledge(acknowledgement).await,
        }
    }
}

/// A log that is being followed.
#[derive(Debug)]
pub enum Follow {
    Direct(LogFollow),
    Http(Box<http::Follow>),
}

impl Follow {
    pub async fn next(&mut self) -> Result<StoredMessage, Error> {
        match self {
            Follow::Direct(follow) => follow.next().await,
            Follow::Http(follow) => follow.next().await,
        }
    }
}

/// A log that a peer follows. With keys, a message without a valid signature is left out.
#[derive(Debug)]
pub struct LogFollow {
    pub(super) log: Followed,
    pub(super) verifier: Option<Verifier>,
}

#[derive(Debug)]
pub(super) enum Followed {
    Nats(Box<nats::Follow>),
    Memory(memory::Follow),
    Disk(disk::Follow),
}

impl LogFollow {
    async fn next(&mut self) -> Result<StoredMessage, Error> {
        loop {
            let stored = match &mut self.log {
                Followed::Nats(follow) => follow.next().await?,
                Followed::Memory(follow) => follow.next().await?,
                Followed::Disk(follow) => follow.next().await?,
            };
            let Some(verifier) = &mut self.verifier else { return Ok(stored) };
            let Err((why, after)) = verifier.weigh(&stored) else { return Ok(stored) };
            if let Some(after) = after {
                let next = match &self.log {
                    Followed::Nats(follow) => follow.next_behind(&stored.subject, after).await?,
                    Followed::Memory(follow) => follow.memory.next_behind(&stored.subject, after).await?,
                    Followed::Disk(follow) => follow.bus.next_behind(&stored.subject, after).await?,
                };
                // No message exists between the two. So the message was not stored again after
                // later ones: the messages before it were removed.
                if next == Some(stored.sequence) {
                    verifier.took(&stored, after);
                    return Ok(stored);
                }
            }
            verifier.refuse(&stored, why);
        }
    }
}
