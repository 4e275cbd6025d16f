//! The coordinator of a trace, as a worker sees it: somebody who answers. Every ask may be sent
//! twice, since the answer to the second is the answer to the first; so no answer just means again.

use std::time::Duration;

use bytes::Bytes;
use shared::{
    TraceId,
    bus::{Bus, Headers, RequestError},
    decode,
    subject::Subject,
    wire::{Answer, Ask, AskMessage},
};

use tokio::time::Instant;

use crate::attempt::lease::Keeper;

/// How long one try waits for its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long what another attempt could do as well is tried in one.
const ENOUGH: Duration = Duration::from_secs(60);
/// The code of a coordinator that can't answer now: its store is away (B13).
const UNAVAILABLE: &str = "unavailable";

#[derive(Debug, Clone)]
pub(crate) struct Coordinator {
    bus: Bus,
    subject: Subject,
    trace_id: TraceId,
    headers: Headers,
}

impl Coordinator {
    pub(crate) fn new(bus: Bus, subject: Subject, trace_id: TraceId, headers: Headers) -> Self {
        Coordinator { bus, subject, trace_id, headers }
    }

    /// One try: none if nobody answered, or nobody could.
    pub(crate) async fn once(&self, ask: Ask, patience: Duration) -> Option<Answer> {
        self.send(self.encode(ask), patience).await
    }

    /// Tries until there is an answer, each try under a lease that stands if one is given. Whoever
    /// calls bounds it: by a deadline, or by the lease that ends the attempt around it.
    pub(crate) async fn until_answered(&self, ask: Ask, lease: Option<&Keeper>) -> Answer {
        let payload = self.encode(ask);
        let mut pause = Backoff::default();
        loop {
            if let Some(lease) = lease {
                lease.live().await;
            }
            if let Some(answer) = self.send(payload.clone(), PATIENCE).await {
                return answer;
            }
            pause.wait().await;
        }
    }

    fn encode(&self, ask: Ask) -> Bytes {
        let message = AskMessage { trace_id: self.trace_id, ask };
        serde_json::to_vec(&message).expect("a message has string keys").into()
    }

    async fn send(&self, payload: Bytes, patience: Duration) -> Option<Answer> {
        let answer = self.bus.request(&self.subject, &self.headers, payload, patience).await;
        let bytes = match answer {
            Ok(bytes) => bytes,
            Err(error @ (RequestError::NoResponders | RequestError::TimedOut)) => {
                tracing::debug!(%error, "the coordinator does not answer");
                return None;
            }
            Err(error @ RequestError::Other(_)) => {
                tracing::warn!(%error, "could not ask the coordinator");
                return None;
            }
        };
        match decode::json(&bytes) {
            Ok(Answer::Refused(refusal)) if refusal.code == UNAVAILABLE => {
                tracing::debug!(message = refusal.message, "the coordinator can't answer now");
                None
            }
            Ok(answer) => Some(answer),
            Err(problems) => {
                tracing::warn!(%problems, "the coordinator's answer can't be read");
                None
            }
        }
    }
}

/// Waits between tries: 100 ms at first, 2 s at most.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    began: Instant,
}

/// It has been tried for long enough.
#[derive(Debug)]
pub(crate) struct Enough;

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: Duration::from_millis(100), began: Instant::now() }
    }
}

impl Backoff {
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(Duration::from_secs(2));
    }

    /// The same, but not for ever: a lease is kept while its attempt tries in vain, so that alone does
    /// not end it.
    pub(crate) async fn wait_a_while(&mut self) -> Result<(), Enough> {
        if self.began.elapsed() >= ENOUGH {
            return Err(Enough);
        }
        self.wait().await;
        Ok(())
    }
}
