//! The bus in memory behind a simulated link. Messages and requests of a process cross the link,
//! and may arrive late, twice or never. Without a link they arrive at once.

use std::time::Duration;

use host::simulated_network::{Crossing, round_trip};
use tokio::time::{Instant, timeout_at};

use super::state::Memory;
use crate::{
    error::{Error, PublishError},
    message::{Outgoing, PublishReceipt},
};

/// The time for which a message is sent again before its publish fails as unacknowledged, and the
/// timeout of one attempt. The same as on a server.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages that are being sent.
#[derive(Debug)]
pub(crate) enum Sending {
    Stored(Vec<Result<PublishReceipt, PublishError>>),
    OnTheirWay(Memory, Vec<Outgoing>),
}

impl Sending {
    pub(in super::super) async fn stored(self) -> Vec<Result<PublishReceipt, PublishError>> {
        match self {
            Sending::Stored(results) => results,
            Sending::OnTheirWay(memory, messages) => {
                let tries = messages.into_iter().map(|message| memory.store_across(message));
                futures_util::future::join_all(tries).await
            }
        }
    }
}

impl Memory {
    pub(in super::super) fn send(&self, messages: Vec<Outgoing>) -> Sending {
        match &self.link {
            None => Sending::Stored(messages.into_iter().map(|message| self.store(message)).collect()),
            Some(_) => Sending::OnTheirWay(self.clone(), messages),
        }
    }

    /// Sends a message, always under the same id, until it is acknowledged.
    async fn store_across(&self, message: Outgoing) -> Result<PublishReceipt, PublishError> {
        let Some(link) = &self.link else { return self.store(message) };
        let give_up = Instant::now() + GIVE_UP_AFTER;
        let subject = self.namespace().subject(&message.subject);
        while Instant::now() < give_up {
            let (memory, message) = (self.clone(), message.clone());
            let way = (Crossing::ToBus(&subject), Crossing::FromBus("stored"));
            let sent = round_trip(link, way, ACK_TIMEOUT, move || memory.store(message.clone()));
            if let Ok(Some(result)) = timeout_at(give_up, sent).await {
                return result;
            }
        }
        Err(PublishError::Unacknowledged)
    }

    /// Runs `act` on the far side of the link when the message arrives there. The caller does not
    /// wait for it.
    pub(super) fn across(&self, subject: &str, act: impl Fn(&Memory) + Send + Sync + 'static) {
        match &self.link {
            None => act(self),
            Some(link) => {
                let memory = self.clone();
                link.carry(Crossing::ToBus(subject), Box::new(move || act(&memory)));
            }
        }
    }

    /// Sends a request to the bus itself, to read or to change its state, and waits for the answer.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        doing: &'static str,
        act: impl Fn(&Memory) -> T + Send + Sync + 'static,
    ) -> Result<T, Error> {
        let Some(link) = &self.link else { return Ok(act(self)) };
        let memory = self.clone();
        let way = (Crossing::ToBus(doing), Crossing::FromBus(doing));
        let answer = round_trip(link, way, READ_TIMEOUT, move || act(&memory)).await;
        answer.ok_or_else(|| Error::Failed { doing: doing.into(), reason: "no answer in time".into() })
    }
}
