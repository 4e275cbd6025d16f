//! The coordinator of a trace, as a worker sees it. A repeated ask gets the answer to the first
//! one, so an ask without an answer is sent again.

use std::{future::Future, time::Duration};

use bus::{Bus, RequestError};
use bytes::Bytes;
use domain::{
    TraceId, decode,
    span::Headers,
    subject::Subject,
    wire::{Answer, Ask, AskMessage},
};

use crate::{retry::Backoff, secret::Redactor};

/// The time for which one try waits for its answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which a hold or a grant waits for calls in flight, before its context gives up its
/// slot. The coordinator answers when there is room, and otherwise after a moment.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The code of a coordinator that can't answer now, because its store is unreachable (B13).
const UNAVAILABLE: &str = "unavailable";

#[derive(Debug, Clone)]
pub(crate) struct Coordinator {
    bus: Bus,
    subject: Subject,
    trace_id: TraceId,
    headers: Headers,
    redactor: Redactor,
}

impl Coordinator {
    pub(crate) fn new(
        bus: Bus,
        subject: Subject,
        trace_id: TraceId,
        headers: Headers,
        redactor: Redactor,
    ) -> Self {
        Coordinator { bus, subject, trace_id, headers, redactor }
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Tries once. Returns `None` if no coordinator answered, or if it could not decide.
    pub(crate) async fn try_once(&self, ask: Ask, timeout: Duration) -> Option<Answer> {
        self.send(self.encode(ask), timeout).await
    }

    /// Tries until there is an answer. The caller sets the bound: a deadline, or the lease that
    /// ends the attempt around it.
    pub(crate) async fn until_answered(&self, ask: Ask) -> Answer {
        self.until_answered_when(ask, || std::future::ready(())).await
    }

    /// Like `until_answered`, but waits for `permitted` before each try.
    pub(crate) async fn until_answered_when<F: Future<Output = ()>>(
        &self,
        ask: Ask,
        permitted: impl Fn() -> F,
    ) -> Answer {
        let payload = self.encode(ask);
        let mut backoff = Backoff::default();
        loop {
            permitted().await;
            if let Some(answer) = self.send(payload.clone(), ANSWER_TIMEOUT).await {
                return answer;
            }
            backoff.wait().await;
        }
    }

    fn encode(&self, ask: Ask) -> Bytes {
        let message = AskMessage { trace_id: self.trace_id, ask };
        let payload = serde_json::to_vec(&message).expect("a message has string keys");
        self.redactor.message(payload).into()
    }

    async fn send(&self, payload: Bytes, timeout: Duration) -> Option<Answer> {
        let answer = self.bus.request(&self.subject, &self.headers, payload, timeout).await;
        let bytes = match answer {
            Ok(bytes) => bytes,
            Err(error @ (RequestError::NoResponders | RequestError::TimedOut)) => {
                tracing::debug!(%error, "the coordinator does not answer");
                return None;
            }
            Err(error @ (RequestError::Denied(_) | RequestError::Other(_))) => {
                tracing::debug!(%error, "could not ask the coordinator");
                return None;
            }
        };
        match decode::from_peer(&bytes) {
            Ok(Answer::Refused(refusal)) if refusal.code == UNAVAILABLE => {
                tracing::debug!(said = refusal.message, "the coordinator can't decide now");
                None
            }
            Ok(answer) => Some(answer),
            Err(problems) => {
                tracing::debug!(%problems, "the problems in the message");
                tracing::warn!("could not read the coordinator's answer");
                None
            }
        }
    }
}
