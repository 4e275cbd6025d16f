//! Work from a durable consumer. Survives reconnects, restarts of the server and the loss of the consumer
//! itself or of its stream, which are created again.

use std::{fmt, time::Duration};

use async_nats::jetstream::{AckKind, message};
use bytes::Bytes;

use super::{
    Acknowledgement, Consumer, Error, Nats, Received, backoff, from_map,
    pull::{Pulled, Puller},
    timestamp,
};

/// How often fetching a payload that is stored as an object is tried before its message is given back.
const FETCH_TRIES: usize = 3;
const FETCH_LATER: Duration = Duration::from_secs(5);

impl Nats {
    pub(in super::super) async fn consume(&self, consumer: &Consumer) -> Result<Consumption, Error> {
        self.ensure_consumer(consumer).await?;
        let puller = Puller::new(self, &self.stream(consumer.stream()), &consumer.name()).await?;
        Ok(Consumption { nats: self.clone(), consumer: consumer.clone(), puller, gone: false, held: None })
    }
}

#[derive(Debug)]
pub struct Consumption {
    nats: Nats,
    consumer: Consumer,
    puller: Puller,
    gone: bool,
    /// A message whose payload is being fetched: kept here, so that nothing is lost if the caller stops
    /// waiting.
    held: Option<(Box<async_nats::Message>, usize)>,
}

impl Consumption {
    pub(in super::super) fn want(&mut self, more: usize) {
        self.puller.want(more);
    }

    pub(in super::super) fn silent_for(&self) -> Duration {
        self.puller.silent_for()
    }

    pub(in super::super) async fn next(&mut self) -> (Received, Acker) {
        loop {
            if let Some(delivery) = self.release().await {
                return delivery;
            }
            if self.gone {
                self.restore().await;
                continue;
            }
            match self.puller.next().await {
                Ok(Pulled::Message(message)) => self.held = Some((message, 0)),
                Ok(Pulled::Gone) => self.gone = true,
                Ok(Pulled::Interrupted) => {}
                Err(error) => {
                    tracing::warn!(%error, "a queue can't be read; trying again");
                    self.puller.stand_back();
                    self.puller.stand_by().await;
                }
            }
        }
    }

    async fn restore(&mut self) {
        self.puller.stand_by().await;
        match self.nats.ensure_consumer_and_streams(&self.consumer).await {
            Ok(()) => {
                tracing::warn!(
                    consumer = self.consumer.name(),
                    "a consumer was deleted; it was created again"
                );
                self.gone = false;
            }
            Err(error) => {
                tracing::warn!(%error, "a consumer was deleted and can't be created again yet");
                self.puller.stand_back();
            }
        }
    }

    /// The held message as a delivery, once its payload is fetched.
    async fn release(&mut self) -> Option<(Received, Acker)> {
        let (message, tries) = self.held.as_mut()?;
        let payload = match self.nats.payload(message.headers.as_ref(), &message.payload).await {
            Ok(payload) => payload,
            Err(error) => {
                tracing::warn!(%error, "the payload of a message can't be fetched; trying again");
                *tries += 1;
                let enough = *tries >= FETCH_TRIES;
                tokio::time::sleep(backoff(*tries)).await;
                if enough && let Some((message, _)) = self.held.take() {
                    Acker::of(&self.nats, &message).acknowledge(Acknowledgement::Nak(FETCH_LATER)).await;
                    self.puller.want(1);
                }
                return None;
            }
        };
        let (message, _) = self.held.take()?;
        let delivery = self.deliver(&message, payload);
        if delivery.is_none() {
            tracing::warn!(
                subject = message.subject.as_str(),
                "a message from a queue has no delivery information; it is ignored"
            );
            self.puller.want(1);
        }
        delivery
    }

    fn deliver(&self, message: &async_nats::Message, payload: Bytes) -> Option<(Received, Acker)> {
        let acker = Acker::of(&self.nats, message);
        let context = self.nats.0.api.clone();
        let with_info = message::Message { message: message.clone(), context };
        let info = with_info.info().ok()?;
        let received = Received {
            subject: message.subject.to_string(),
            headers: from_map(message.headers.as_ref()),
            payload,
            sequence: info.stream_sequence,
            at: timestamp(info.published),
            delivered: u64::try_from(info.delivered).unwrap_or_default(),
        };
        Some((received, acker))
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
            tracing::warn!(%error, "an acknowledgement could not be sent; the message will be delivered again");
        }
    }
}

impl fmt::Debug for Acker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acker").field("to", &self.to).finish_non_exhaustive()
    }
}
