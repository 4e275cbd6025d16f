//! Messages that are not stored: broadcasts, requests and their answers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{
    span::Headers,
    subject::{Filter, Subject},
};
use tokio::sync::{
    Notify,
    mpsc::{self, error::TrySendError},
};

use super::{listeners::Listener, pattern::Pattern, state::Memory};
use crate::{
    error::{Error, RequestError},
    message::{Message, Outgoing, Service},
    topology::Stream,
};

/// The number of messages that a listener may lag behind before it loses some.
const MAX_LAG: usize = 8192;
/// The most answers that may wait in an inbox.
const MAX_ANSWERS: usize = 1024;
const INBOX: &str = "_INBOX.";

impl Memory {
    pub(in super::super) fn serve(&self, filter: &Filter) -> Subscription {
        self.listen(&[self.shared.namespace.filter(filter)], true)
    }

    pub(in super::super) fn offer(&self, service: &Service) -> Subscription {
        let subjects: Vec<_> =
            service.subjects.iter().map(|subject| self.shared.namespace.subject(subject)).collect();
        self.listen(&subjects, true)
    }

    pub(in super::super) fn subscribe(&self, filter: &Filter) -> Subscription {
        self.listen(&[self.shared.namespace.filter(filter)], false)
    }

    pub(in super::super) async fn broadcast(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
    ) -> Result<(), Error> {
        if Stream::of(&Filter::One(subject.clone())).is_some() {
            // Like a server, it does not know that the message was meant as a broadcast: a stream
            // that holds the subject stores it.
            let (subject, headers) = (subject.clone(), headers.clone());
            let message = Outgoing { subject, id: None, headers, payload, expect_last: None };
            self.across(&self.namespace().subject(&message.subject), move |memory| {
                memory.store(message.clone()).ok();
            });
        } else {
            let (told, headers) = (subject.clone(), headers.clone());
            self.across(&self.namespace().subject(subject), move |memory| {
                memory.tell(&told, &headers, &payload, None);
            });
        }
        Ok(())
    }

    fn listen(&self, subjects: &[String], shares: bool) -> Subscription {
        let (sender, receiver) = mpsc::channel(MAX_LAG);
        let mut state = self.state();
        let listeners = &mut state.listeners;
        let numbers = subjects.iter().map(|subject| {
            let number = listeners.number();
            let listener = Listener { pattern: Pattern::new(subject), shares, sender: sender.clone() };
            listeners.listeners.insert(number, listener);
            number
        });
        let numbers = numbers.collect();
        drop(state);
        Subscription { memory: self.clone(), numbers, receiver }
    }

    fn tell(&self, subject: &Subject, headers: &Headers, payload: &Bytes, reply_to: Option<&str>) -> usize {
        let text = self.namespace().subject(subject);
        self.state().listeners.tell(&text, subject, headers, payload, reply_to)
    }

    pub(in super::super) async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        let inbox = to.to_owned();
        self.across(to, move |memory| memory.answer(&inbox, payload.clone()));
        Ok(())
    }

    fn answer(&self, to: &str, payload: Bytes) {
        let inbox = self.state().listeners.inboxes.get(to).cloned();
        if inbox.is_some_and(|inbox| matches!(inbox.try_send(payload), Err(TrySendError::Full(_)))) {
            tracing::warn!(to, "an inbox is full: an answer is lost");
        }
    }

    pub(in super::super) async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        let mut inbox = self.inbox();
        let nobody = Arc::new(Notify::new());
        let (told, headers, reply_to, deaf) =
            (subject.clone(), headers.clone(), inbox.name.clone(), nobody.clone());
        self.across(&self.namespace().subject(subject), move |memory| {
            if memory.tell(&told, &headers, &payload, Some(&reply_to)) == 0 {
                deaf.notify_one();
            }
        });
        tokio::select! {
            biased;
            answer = tokio::time::timeout(timeout, inbox.answers.recv()) => {
                answer.ok().flatten().ok_or(RequestError::TimedOut)
            }
            () = nobody.notified() => Err(RequestError::NoResponders),
        }
    }

    pub(in super::super) async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        let mut inbox = self.inbox();
        let mut answers = Vec::new();
        if self.tell(subject, &Headers::new(), &payload, Some(&inbox.name)) == 0 {
            return Ok(answers);
        }
        let over = tokio::time::Instant::now() + wait;
        while let Ok(Some(answer)) = tokio::time::timeout_at(over, inbox.answers.recv()).await {
            answers.push(answer);
        }
        Ok(answers)
    }

    fn inbox(&self) -> Inbox {
        let (sender, answers) = mpsc::channel(MAX_ANSWERS);
        let mut state = self.state();
        let name = format!("{INBOX}{}", state.listeners.number());
        state.listeners.inboxes.insert(name.clone(), sender);
        drop(state);
        Inbox { memory: self.clone(), name, answers }
    }
}

/// A reply subject that is removed together with its owner.
struct Inbox {
    memory: Memory,
    name: String,
    answers: mpsc::Receiver<Bytes>,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.memory.state().listeners.inboxes.remove(&self.name);
    }
}

#[derive(Debug)]
pub struct Subscription {
    memory: Memory,
    numbers: Vec<u64>,
    receiver: mpsc::Receiver<Message>,
}

impl Subscription {
    pub(in super::super) async fn next(&mut self) -> Option<Message> {
        self.receiver.recv().await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.memory.state();
        for number in &self.numbers {
            state.listeners.listeners.remove(number);
        }
    }
}
