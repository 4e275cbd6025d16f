//! Messages between a server and the library, in bounds (S5). The library answers every question of
//! a server in a separate task, which waits until the server reads the answer. Without a bound, a
//! server that asks and does not read could create any number of these tasks.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    RoleClient,
    model::{JsonRpcMessage, RequestId, ServerNotification},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use crate::relay::LastFault;

/// The most questions whose answers a server has not read yet. A server has few questions for a
/// client that offers nothing: a ping now and then.
const MAX_QUESTIONS: usize = 64;
/// The longest wait until a server reads one of them, before the connection is ended. Until then no
/// more of its messages are read.
const UNREAD_WAIT: Duration = Duration::from_secs(5);
/// The longest end of a connection. The library waits until the server has read the message that is
/// being written.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The most bytes of a question's id, which its answer repeats. A question with a longer id is not
/// answered.
const MAX_ID_BYTES: usize = 256;
/// The most messages in one [`SECOND`]. After that none is read until the second is over.
const MAX_MESSAGES: usize = 1000;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct BoundedTransport<T> {
    transport: T,
    questions: Questions,
    /// A question for which there is no room yet, and the time until which it may wait.
    held: Option<(RxJsonRpcMessage<RoleClient>, Instant)>,
    messages: usize,
    /// The end of the second in which messages are counted.
    over: Instant,
    last: LastFault,
}

/// The questions of a server that have no answer yet.
#[derive(Debug, Clone, Default)]
struct Questions {
    asked: Arc<Mutex<HashMap<RequestId, QuestionState>>>,
    /// Notified when one of them has been answered.
    answered: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuestionState {
    /// The library has the question and has not answered it.
    Waits,
    /// The answer is being written, so the server can't cancel the question any more.
    IsAnswered,
}

/// The decision about a message.
#[derive(Debug, PartialEq, Eq)]
enum TakeOutcome {
    Yes,
    Ignored,
    TooMany,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(transport: T, last: LastFault) -> Self {
        let over = Instant::now() + SECOND;
        BoundedTransport { transport, questions: Questions::default(), held: None, messages: 0, over, last }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answers = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(id) = &answers {
            self.questions.answering(id);
        }
        let (questions, sending) = (self.questions.clone(), self.transport.send(message));
        async move {
            let sent = sending.await;
            if let Some(id) = &answers {
                questions.answered(id);
            }
            sent
        }
    }

    /// Cancel safe, as `receive` of the transport must be.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let (message, until) = match self.held.take() {
                Some(held) => held,
                None => (self.next().await?, Instant::now() + UNREAD_WAIT),
            };
            match self.questions.take(&message) {
                TakeOutcome::Yes => return Some(message),
                TakeOutcome::Ignored => {}
                TakeOutcome::TooMany => {
                    self.held = Some((message, until));
                    if timeout_at(until, self.questions.answered.notified()).await.is_err() {
                        self.last.tell("it sends requests and does not read the answers");
                        return None;
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        timeout(CLOSE_WAIT, self.transport.close()).await.unwrap_or(Ok(()))
    }
}

impl<T: Transport<RoleClient>> BoundedTransport<T> {
    /// The next message, within the limit for messages per second.
    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        if self.messages >= MAX_MESSAGES {
            sleep_until(self.over).await;
        }
        if self.over <= Instant::now() {
            (self.messages, self.over) = (0, Instant::now() + SECOND);
        }
        let message = self.transport.receive().await?;
        self.messages += 1;
        Some(message)
    }
}

impl Questions {
    fn take(&self, message: &RxJsonRpcMessage<RoleClient>) -> TakeOutcome {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            JsonRpcMessage::Request(question) => {
                if is_long(&question.id) || asked.contains_key(&question.id) {
                    return TakeOutcome::Ignored;
                }
                if asked.len() >= MAX_QUESTIONS {
                    return TakeOutcome::TooMany;
                }
                asked.insert(question.id.clone(), QuestionState::Waits);
            }
            JsonRpcMessage::Notification(told) => {
                // The library does not answer a cancelled question.
                if let ServerNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                    && asked.get(id) == Some(&QuestionState::Waits)
                {
                    asked.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        TakeOutcome::Yes
    }

    fn answering(&self, id: &RequestId) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.entry(id.clone()).and_modify(|state| *state = QuestionState::IsAnswered);
    }

    fn answered(&self, id: &RequestId) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.answered.notify_one();
    }
}

fn is_long(id: &RequestId) -> bool {
    match id {
        RequestId::Number(_) => false,
        RequestId::String(text) => text.len() > MAX_ID_BYTES,
    }
}
