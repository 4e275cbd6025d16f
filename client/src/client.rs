//! The client of a cluster. It sends requests, which a coordinator answers, and publishes messages,
//! which a stream stores for the coordinators.

use std::{sync::Arc, time::Duration};

use bus::{ClientBus, Outgoing, RequestError};
use bytes::Bytes;
use domain::{span::Headers, subject::Subject, wire::BY_HEADER};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::Error;

/// Timeout of one request. The coordinator answers after its commit.
const REQUEST: Duration = Duration::from_secs(10);
/// The pause between two attempts of a request while no coordinator listens.
const PAUSE: Duration = Duration::from_millis(20);

/// A client of a cluster. Clones are cheap and share the connection.
#[derive(Debug, Clone)]
pub struct Client {
    bus: ClientBus,
    program: &'static str,
    by: Option<Arc<str>>,
    timeout: Duration,
    patience: Duration,
}

impl Client {
    /// Creates a client. The name of the program is the prefix of the ids of its messages. While no
    /// coordinator listens, a request fails at once.
    pub fn new(bus: impl Into<ClientBus>, program: &'static str) -> Self {
        Client { bus: bus.into(), program, by: None, timeout: REQUEST, patience: Duration::ZERO }
    }

    /// Sets the name of the sender in administrator messages (S7).
    #[must_use]
    pub fn sent_by(self, by: impl Into<Arc<str>>) -> Self {
        Client { by: Some(by.into()), ..self }
    }

    /// While no coordinator listens, retries a request for this time. A coordinator may be
    /// starting.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Client { patience, ..self }
    }

    /// Waits this long for the answer to a request.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Client { timeout, ..self }
    }

    pub fn bus(&self) -> &ClientBus {
        &self.bus
    }

    /// The header with the sender's name.
    pub(crate) fn by_header(&self) -> Headers {
        self.by.iter().map(|by| (BY_HEADER.to_owned(), by.to_string())).collect()
    }

    /// The headers of a message. Only an administrator message names its sender (S7).
    fn headers(&self, subject: &Subject) -> Headers {
        if matches!(subject, Subject::Admin(_)) { self.by_header() } else { Headers::new() }
    }

    /// Sends a request that is safe to repeat. A request without an answer is sent a second time,
    /// because a coordinator may have died between its commit and its answer.
    pub(crate) async fn request_again<A: DeserializeOwned>(
        &self,
        subject: &Subject,
        payload: Vec<u8>,
        what: &'static str,
    ) -> Result<A, Error> {
        let payload = Bytes::from(payload);
        match self.request(subject, payload.clone(), what).await {
            Err(error @ Error::Request { .. }) if error.denied().is_none() => {
                self.request(subject, payload, what).await
            }
            answer => answer,
        }
    }

    pub(crate) async fn request<A: DeserializeOwned>(
        &self,
        subject: &Subject,
        payload: Bytes,
        what: &'static str,
    ) -> Result<A, Error> {
        let (headers, started) = (self.headers(subject), Instant::now());
        loop {
            match self.bus.request(subject, &headers, payload.clone(), self.timeout).await {
                Ok(answer) => {
                    let kind = subject.kind();
                    return serde_json::from_slice(&answer).map_err(|source| Error::Answer { kind, source });
                }
                Err(RequestError::NoResponders) if started.elapsed() < self.patience => sleep(PAUSE).await,
                Err(source) => {
                    let is_over_http = matches!(self.bus, ClientBus::Http(_));
                    return Err(Error::Request { what, is_over_http, source });
                }
            }
        }
    }

    /// Publishes a message for the coordinators. It is stored in the stream when this returns.
    pub async fn publish(&self, subject: Subject, message: &impl Serialize) -> Result<(), Error> {
        let payload = serde_json::to_vec(message).map_err(Error::Message)?.into();
        let id = Some(format!("{}-{}", self.program, Uuid::now_v7().simple()));
        let headers = self.headers(&subject);
        self.bus.publish(Outgoing { subject, id, headers, payload, expect_last: None }).await?;
        Ok(())
    }
}
