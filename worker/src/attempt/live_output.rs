//! Live output: the text of an agent at work, broadcast to current observers (G9). Pieces are
//! collected for a moment and sent together. No work waits for them or depends on them, since
//! finished steps are in the journal.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use domain::{
    subject::Subject,
    wire::{Said, StreamPiece},
};

use super::Attempt;

/// The interval at which collected pieces are sent: often enough for a reader.
const COLLECT_INTERVAL: Duration = Duration::from_millis(100);
/// The most time by which sending may delay the agent.
const SEND_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct LiveOutput<'a> {
    attempt: &'a Attempt,
    /// The journal entry this output will be part of.
    number: u32,
    unsent: Mutex<String>,
}

impl<'a> LiveOutput<'a> {
    pub(crate) fn new(attempt: &'a Attempt, number: u32) -> Self {
        LiveOutput { attempt, number, unsent: Mutex::default() }
    }

    /// Adds a piece of a model's answer.
    pub(crate) fn add(&self, piece: &str) {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).push_str(piece);
    }

    /// Sends the added pieces while `work` runs.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(COLLECT_INTERVAL) => self.flush_shown().await,
            }
        }
    }

    /// Sends the unsent text, but not an end that may be the beginning of a secret (S8), since more
    /// may follow.
    async fn flush_shown(&self) {
        let text = {
            let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
            let shown = self.attempt.redactor.shown(&unsent);
            let rest = unsent.split_off(shown);
            std::mem::replace(&mut *unsent, rest)
        };
        if !text.is_empty() {
            self.send(Said::Text(text)).await;
        }
    }

    /// Sends all unsent text. No text follows it.
    pub(crate) async fn flush(&self) {
        let text = std::mem::take(&mut *self.unsent.lock().unwrap_or_else(PoisonError::into_inner));
        if !text.is_empty() {
            self.send(Said::Text(text)).await;
        }
    }

    pub(crate) async fn send(&self, said: Said) {
        let attempt = self.attempt;
        let (trace_id, child_id) = (attempt.trace_id(), attempt.child_id().clone());
        let subject = Subject::Stream(trace_id, child_id.clone());
        let piece = StreamPiece { trace_id, child_id, attempt: attempt.number(), number: self.number, said };
        let payload = serde_json::to_vec(&piece).expect("a message has string keys");
        let payload = attempt.redactor.message(payload).into();
        let headers = attempt.headers();
        let sending = attempt.bus.broadcast(&subject, &headers, payload);
        match tokio::time::timeout(SEND_TIMEOUT, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "live output was not sent"),
            Err(_) => tracing::debug!("live output was not sent in time"),
        }
    }
}
