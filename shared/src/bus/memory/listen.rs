//! What is not stored: broadcasts, requests and their answers. A listener that can't keep up loses
//! messages, as it does on a server.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Error, Headers, Memory, Pattern, Subject};
use crate::bus::{Message, RequestError};

/// Messages a listener may be behind before it loses some.
const BEHIND: usize = 8192;
/// Answers that may wait in an inbox.
const ANSWERS: usize = 1024;
const INBOX: &str = "_INBOX.";

#[derive(Debug, Default)]
pub(super) struct Listeners {
    next: u64,
    listeners: BTreeMap<u64, Listener>,
    inboxes: BTreeMap<String, mpsc::Sender<Bytes>>,
    /// Whose turn it is, by the subject a group serves.
    turns: BTreeMap<Pattern, usize>,
}

#[derive(Debug)]
struct Listener {
    pattern: Pattern,
    /// One of all with the same pattern gets a message, not each.
    shares: bool,
    sender: mpsc::Sender<Message>,
}

impl Listeners {
    /// Hands a message to everyone it concerns; how many that were.
    pub(super) fn tell(
        &mut self,
        text: &str,
        subject: &Subject,
        headers: &Headers,
        payload: &Bytes,
        reply_to: Option<&str>,
    ) -> usize {
        let mut to = Vec::new();
        let mut groups: BTreeMap<&Pattern, Vec<&Listener>> = BTreeMap::new();
        for listener in self.listeners.values().filter(|listener| listener.pattern.matches(text)) {
            if listener.shares {
                groups.entry(&listener.pattern).or_default().push(listener);
            } else {
                to.push(listener);
            }
        }
        for (pattern, members) in groups {
            let turn = self.turns.entry(pattern.clone()).or_default();
            to.push(members[*turn % members.len()]);
            *turn = turn.wrapping_add(1);
        }
        for listener in &to {
            let message = Message {
                subject: subject.clone(),
                headers: headers.clone(),
                payload: payload.clone(),
                reply_to: reply_to.map(str::to_owned),
            };
            if let Err(TrySendError::Full(_)) = listener.sender.try_send(message) {
                tracing::warn!(subject = text, "a listener can't keep up: a message is lost to it");
            }
        }
        to.len()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Memory {
    pub(super) fn listen(&self, subjects: &[String], shares: bool) -> Subscription {
        let (sender, receiver) = mpsc::channel(BEHIND);
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

    pub(super) fn tell(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: &Bytes,
        reply_to: Option<&str>,
    ) -> usize {
        let text = self.namespace().subject(subject);
        self.state().listeners.tell(&text, subject, headers, payload, reply_to)
    }

    pub(in super::super) fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        let inbox = self.state().listeners.inboxes.get(to).cloned();
        if inbox.is_some_and(|inbox| matches!(inbox.try_send(payload), Err(TrySendError::Full(_)))) {
            tracing::warn!(to, "an inbox is full: an answer is lost");
        }
        Ok(())
    }

    pub(in super::super) async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        let mut inbox = self.inbox();
        if self.tell(subject, headers, &payload, Some(&inbox.name)) == 0 {
            return Err(RequestError::NoResponders);
        }
        let answer = tokio::time::timeout(timeout, inbox.answers.recv()).await;
        answer.ok().flatten().ok_or(RequestError::TimedOut)
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
        let (sender, answers) = mpsc::channel(ANSWERS);
        let mut state = self.state();
        let name = format!("{INBOX}{}", state.listeners.number());
        state.listeners.inboxes.insert(name.clone(), sender);
        drop(state);
        Inbox { memory: self.clone(), name, answers }
    }
}

/// An address that is gone when its owner is.
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
