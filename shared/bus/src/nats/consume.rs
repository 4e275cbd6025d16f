//! Deliveries from a durable consumer. Reading survives reconnects, restarts of the server, and the
//! loss of the consumer or of its stream. Coordinators recreate a lost consumer, also that of a
//! pool; workers wait until it exists.

use std::{fmt, time::Duration};

use async_nats::jetstream::{AckKind, message};
use telemetry::Outage;

use super::{
    Acknowledgement, Consumer, Error, Nats, ReceivedMessage, failed,
    fetch::{FetchedMessage, Fetches, is_object},
    objects::Payload,
    pull::{PullOutcome, Puller},
    received, timestamp,
};

/// The delay before a message whose payload could not be fetched is delivered again.
const FETCH_LATER: Duration = Duration::from_secs(5);

impl Nats {
    pub(in super::super) async fn consume(&self, consumer: &Consumer) -> Result<Consumption, Error> {
        self.ready(consumer).await?;
        let puller = Puller::new(self, &self.stream(consumer.stream()), &consumer.name()).await?;
        Ok(Consumption {
            nats: self.clone(),
            consumer: consumer.clone(),
            puller,
            gone: false,
            outage: Outage::new("a queue"),
            fetches: Fetches::default(),
        })
    }
}

impl Nats {
    /// Creates the consumer if it is missing, except a pool's. A pool's consumer is created by the
    /// coordinator that publishes work for the pool; workers may not create consumers.
    async fn ready(&self, consumer: &Consumer) -> Result<(), Error> {
        let Consumer::Execute(pool) = consumer else { return self.ensure_consumer(consumer).await };
        match self.find_consumer(consumer).await? {
            Some(_) => Ok(()),
            None => {
                let doing = format!("taking work of the pool `{pool}`");
                Err(failed(
                    doing,
                    &"a coordinator creates its queue with its first work, or at the start with --pools",
                ))
            }
        }
    }
}

#[derive(Debug)]
pub struct Consumption {
    nats: Nats,
    consumer: Consumer,
    puller: Puller,
    gone: bool,
    outage: Outage,
    /// Messages whose payloads are being fetched. They are stored here, so that a dropped `next`
    /// loses none.
    fetches: Fetches,
}

impl Consumption {
    pub(in super::super) fn want(&mut self, more: usize) {
        self.puller.want(more);
    }

    pub(in super::super) fn silent_for(&self) -> Duration {
        self.puller.silent_for()
    }

    pub(in super::super) async fn next(&mut self) -> (ReceivedMessage, Acker) {
        loop {
            if self.gone {
                self.restore().await;
                continue;
            }
            let delivery = tokio::select! {
                biased;
                fetched = self.fetches.next(&self.nats) => self.fetched(fetched).await,
                pulled = self.puller.next() => self.pulled(pulled).await,
            };
            if let Some(delivery) = delivery {
                return delivery;
            }
        }
    }

    async fn pulled(&mut self, pulled: Result<PullOutcome, Error>) -> Option<(ReceivedMessage, Acker)> {
        match pulled {
            Ok(PullOutcome::Message(message)) if is_object(&message) => {
                self.outage.ended();
                let refused = self.fetches.add(&self.nats, *message)?;
                self.give_back(&refused).await;
                None
            }
            Ok(PullOutcome::Message(message)) => {
                self.outage.ended();
                let payload = message.payload.clone();
                self.deliver(&message, Payload::Here(payload))
            }
            Ok(PullOutcome::Gone) => {
                self.gone = true;
                None
            }
            Ok(PullOutcome::Interrupted) => None,
            Err(error) => {
                self.nats.failed(&mut self.outage, &error);
                self.puller.stand_back();
                self.puller.stand_by().await;
                None
            }
        }
    }

    /// A message whose payload is lost for good is still delivered, so that its reader can reject
    /// it with the reason.
    async fn fetched(&mut self, (message, payload): FetchedMessage) -> Option<(ReceivedMessage, Acker)> {
        match payload {
            Some(payload) => self.deliver(&message, payload),
            None => {
                self.give_back(&message).await;
                None
            }
        }
    }

    /// Returns a message to the queue. If this future is dropped, nothing is lost: the message is
    /// delivered again after its ack wait.
    async fn give_back(&mut self, message: &async_nats::Message) {
        self.puller.want(1);
        Acker::of(&self.nats, message).acknowledge(Acknowledgement::Nak(FETCH_LATER)).await;
    }

    async fn restore(&mut self) {
        self.puller.stand_by().await;
        let restored = match &self.consumer {
            Consumer::Execute(_) => self.nats.ready(&self.consumer).await,
            Consumer::Intake | Consumer::Report(_) | Consumer::Span | Consumer::Webhook(_) => {
                self.nats.ensure_consumer_and_streams(&self.consumer).await
            }
        };
        match restored {
            Ok(()) => {
                tracing::warn!(
                    consumer = self.consumer.name(),
                    "a consumer was deleted; it was created again"
                );
                self.outage.ended();
                self.gone = false;
            }
            Err(error) => {
                self.nats.failed(&mut self.outage, &error);
                self.puller.stand_back();
            }
        }
    }

    fn deliver(
        &mut self,
        message: &async_nats::Message,
        payload: Payload,
    ) -> Option<(ReceivedMessage, Acker)> {
        let acker = Acker::of(&self.nats, message);
        let context = self.nats.0.api.clone();
        let with_info = message::Message { message: message.clone(), context };
        let Ok(info) = with_info.info() else {
            tracing::warn!(
                subject = message.subject.as_str(),
                "a message from a queue has no delivery information; it is ignored"
            );
            self.puller.want(1);
            return None;
        };
        let mut headers = received(message.headers.as_ref());
        let delivered = ReceivedMessage {
            subject: message.subject.to_string(),
            payload: payload.told(&mut headers),
            headers,
            sequence: info.stream_sequence,
            at: timestamp(info.published),
            delivered: u64::try_from(info.delivered).unwrap_or_default(),
        };
        Some((delivered, acker))
    }
}

/// Acknowledges a delivery.
pub(in super::super) struct Acker {
    nats: Nats,
    to: String,
}

impl Acker {
    fn of(nats: &Nats, message: &async_nats::Message) -> Self {
        let to = message.reply.as_ref().map(ToString::to_string).unwrap_or_default();
        Acker { nats: nats.clone(), to }
    }

    pub(in super::super) async fn acknowledge(&self, acknowledgement: Acknowledgement) {
        let kind = match acknowledgement {
            Acknowledgement::Ack => AckKind::Ack,
            Acknowledgement::Nak(delay) => AckKind::Nak(Some(delay)),
            Acknowledgement::Progress => AckKind::Progress,
            Acknowledgement::Terminate => AckKind::Term,
        };
        if let Err(error) = self.nats.0.client.publish(self.to.clone(), kind.into()).await {
            tracing::debug!(%error, "an acknowledgement could not be sent; the message will be delivered again");
        }
    }
}

impl fmt::Debug for Acker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acker").field("to", &self.to).finish_non_exhaustive()
    }
}
