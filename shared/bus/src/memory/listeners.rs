//! The current listeners, and the choice of those that receive a message. A listener that lags
//! behind loses messages, as on a server.

use std::collections::BTreeMap;

use bytes::Bytes;
use domain::{span::Headers, subject::Subject};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::pattern::Pattern;
use crate::message::Message;

#[derive(Debug, Default)]
pub(super) struct Listeners {
    next: u64,
    pub(super) listeners: BTreeMap<u64, Listener>,
    pub(super) inboxes: BTreeMap<String, mpsc::Sender<Bytes>>,
    /// The next member of each group, by the pattern that the group listens on.
    turns: BTreeMap<Pattern, usize>,
}

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) pattern: Pattern,
    /// True if each message goes to only one of the listeners with the same pattern.
    pub(super) shares: bool,
    pub(super) sender: mpsc::Sender<Message>,
}

impl Listeners {
    /// Sends a message to its listeners, and returns their number.
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
                tracing::warn!(subject = text, "a listener lags too far behind and loses a message");
            }
        }
        to.len()
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
