//! Fetches payloads that are stored as objects, while other messages continue to be delivered. A
//! message that names an unreadable object so delays no other message.

use std::{collections::VecDeque, fmt};

use async_nats::Message;
use tokio::task::JoinSet;

use super::{Nats, OBJECT_HEADER, backoff, objects::Payload};

/// The most objects that one reader fetches at once. Each may be large.
const AT_ONCE: usize = 4;
/// The most messages that wait for a fetch.
const WAITING: usize = 64;
/// The number of attempts of a fetch that the server does not answer.
const TRIES: usize = 3;

/// A message with its payload; none if the server did not answer.
pub(super) type FetchedMessage = (Message, Option<Payload>);

#[derive(Default)]
pub(super) struct Fetches {
    running: JoinSet<FetchedMessage>,
    waiting: VecDeque<Message>,
}

/// Returns true if the payload of a message is stored as an object.
pub(super) fn is_object(message: &Message) -> bool {
    message.headers.as_ref().is_some_and(|headers| headers.get(OBJECT_HEADER).is_some())
}

impl Fetches {
    /// Accepts a message whose payload is an object. Returns the message if too many wait.
    pub(super) fn add(&mut self, nats: &Nats, message: Message) -> Option<Message> {
        if self.waiting.len() == WAITING {
            return Some(message);
        }
        self.waiting.push_back(message);
        self.begin(nats);
        None
    }

    /// The next message whose fetch has ended. Waits for ever if no fetch is running. Cancel-safe.
    pub(super) async fn next(&mut self, nats: &Nats) -> FetchedMessage {
        loop {
            let ended = self.running.join_next().await;
            self.begin(nats);
            match ended {
                Some(Ok(fetched)) => return fetched,
                // The task panicked. The server delivers its message again.
                Some(Err(error)) => tracing::error!(%error, "a fetch ended without an end"),
                None => std::future::pending().await,
            }
        }
    }

    fn begin(&mut self, nats: &Nats) {
        while self.running.len() < AT_ONCE
            && let Some(message) = self.waiting.pop_front()
        {
            self.running.spawn(fetch(nats.clone(), message));
        }
    }
}

async fn fetch(nats: Nats, message: Message) -> FetchedMessage {
    let subject = nats.namespace().parse(message.subject.as_str());
    let of_the_core = subject.is_ok_and(|subject| subject.is_of_the_core());
    for tries in 0..TRIES {
        match nats.payload(of_the_core, message.headers.as_ref(), &message.payload).await {
            Ok(payload) => return (message, Some(payload)),
            Err(error) => {
                tracing::debug!(%error, "the payload of a message can't be fetched; trying again");
                tokio::time::sleep(backoff(tries)).await;
            }
        }
    }
    tracing::warn!(
        subject = message.subject.as_str(),
        "the payload of a message can't be fetched; the message comes again"
    );
    (message, None)
}

impl fmt::Debug for Fetches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.running.len() + self.waiting.len();
        f.debug_struct("Fetches").field("messages", &count).finish_non_exhaustive()
    }
}
