//! Messages that are not stored: broadcasts, requests and their answers, and the listed service.

use std::{fmt, time::Duration};

use async_nats::{
    HeaderMap, StatusCode, Subscriber,
    client::RequestErrorKind,
    service::{self, ServiceExt},
};
use bytes::Bytes;
use domain::subject::{Action, Filter, Subject};
use futures_util::{FutureExt, StreamExt, stream::SelectAll};

use super::{
    Error, Headers, Message, Nats, RequestError, Service, failed,
    fetch::{FetchedMessage, Fetches, is_object},
    objects::{Large, Payload, overflow},
    received, to_map,
};

/// The queue group of all processes that serve a subject. Each request goes to one of them.
const GROUP: &str = "trellis";

impl Nats {
    pub(in super::super) async fn broadcast(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
    ) -> Result<(), Error> {
        let to = self.namespace().subject(subject);
        let doing = format!("sending to `{to}`");
        let headers = to_map(headers).map_err(|reason| failed(&doing, &reason))?;
        let since = tokio::time::Instant::now();
        let sent = self.0.client.publish_with_headers(to.clone(), headers, payload).await;
        sent.map_err(|error| failed(doing, &error))?;
        // A broadcast has no answer, so an administrator would not learn of a denial without this
        // check.
        if matches!(subject, Subject::Admin(_)) {
            self.published(&to, since).await?;
        }
        Ok(())
    }

    pub(in super::super) async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        let payload = self.fit(&mut headers, payload, (to, None), Large::Answer).await?;
        let client = &self.0.client;
        let sent = match headers.is_empty() {
            true => client.publish(to.to_owned(), payload).await,
            false => client.publish_with_headers(to.to_owned(), headers, payload).await,
        };
        sent.map_err(|error| failed("answering a request", &error))
    }

    pub(in super::super) async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        let mut headers = to_map(headers).map_err(RequestError::Other)?;
        let other = |error: Error| match error {
            Error::Denied(denied) => RequestError::Denied(denied),
            error @ (Error::Connect { .. }
            | Error::Unreached { .. }
            | Error::TooOld { .. }
            | Error::Mismatch { .. }
            | Error::NoRoom { .. }
            | Error::Lower { .. }
            | Error::TooLarge { .. }
            | Error::Failed { .. }) => RequestError::Other(error.to_string()),
        };
        let to = self.namespace().subject(subject);
        let payload = self.fit(&mut headers, payload, (&to, None), Large::OfOthers).await.map_err(other)?;
        let asked_with = overflow(&headers);
        let request = async_nats::Request::new().headers(headers).payload(payload).timeout(Some(timeout));
        // The client's own timeout starts when the request enters its queue, and the queue may be
        // full.
        let asked = tokio::time::timeout(timeout, self.0.client.send_request(to.clone(), request));
        match self.permitted(&to, asked).await? {
            Ok(Ok(answer)) => {
                // The answer comes from a coordinator.
                let fetched = self.payload(true, answer.headers.as_ref(), &answer.payload).await;
                let payload = match fetched.map_err(other)? {
                    Payload::Here(payload) => payload,
                    Payload::Lost(reason) => return Err(RequestError::Other(reason)),
                };
                // The responder was the only reader of the request's object.
                if let Some(object) = asked_with
                    && let Err(error) = self.delete_object(&object).await
                {
                    tracing::debug!(%error, "the payload of a request stays until it expires");
                }
                Ok(payload)
            }
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => RequestError::NoResponders,
                RequestErrorKind::TimedOut => RequestError::TimedOut,
                RequestErrorKind::InvalidSubject
                | RequestErrorKind::MaxPayloadExceeded
                | RequestErrorKind::Other => RequestError::Other(error.to_string()),
            }),
            Err(_) => Err(RequestError::TimedOut),
        }
    }

    pub(in super::super) async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        let to = self.namespace().subject(subject);
        let doing = format!("sending a request to all listeners on `{to}`");
        let inbox = self.0.client.new_inbox();
        let subscribed = self.0.client.subscribe(inbox.clone()).await;
        let mut inbox_of_answers = subscribed.map_err(|error| failed(&doing, &error))?;
        let asked = tokio::time::Instant::now();
        let sent = self.0.client.publish_with_reply(to.clone(), inbox, payload).await;
        sent.map_err(|error| failed(doing, &error))?;
        let over = tokio::time::Instant::now() + wait;
        let mut answers = Vec::new();
        loop {
            let next = tokio::time::timeout_at(over, inbox_of_answers.next());
            let Ok(Some(answer)) = self.permitted_since(&to, asked, next).await? else { break };
            if answer.status == Some(StatusCode::NO_RESPONDERS) {
                break;
            }
            answers.push(answer.payload);
        }
        Ok(answers)
    }

    pub(in super::super) async fn serve(&self, filter: &Filter) -> Result<Subscription, Error> {
        let at = self.namespace().filter(filter);
        let since = tokio::time::Instant::now();
        let subscribed = self.0.client.queue_subscribe(at.clone(), GROUP.into()).await;
        let subscriber = subscribed.map_err(|error| failed(format!("subscribing to `{at}`"), &error))?;
        self.listening(&at, since, subscriber).await
    }

    pub(in super::super) async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        let at = self.namespace().filter(filter);
        let since = tokio::time::Instant::now();
        let subscribed = self.0.client.subscribe(at.clone()).await;
        let subscriber = subscribed.map_err(|error| failed(format!("subscribing to `{at}`"), &error))?;
        self.listening(&at, since, subscriber).await
    }

    /// Returns once the server has the subscription, so that later messages on this connection are
    /// received.
    async fn listening(
        &self,
        at: &str,
        since: tokio::time::Instant,
        subscriber: Subscriber,
    ) -> Result<Subscription, Error> {
        let flushed = self.0.client.flush().await;
        flushed.map_err(|error| failed("subscribing", &error))?;
        self.subscribed(at, since).await?;
        Ok(Subscription { nats: self.clone(), subscriber, fetches: Fetches::default() })
    }

    pub(in super::super) async fn offer(&self, offered: &Service) -> Result<ServiceRequests, Error> {
        let name = self.namespace().stream(offered.name);
        let doing = format!("offering the service `{name}`");
        let builder = self.0.client.service_builder().description(offered.description).queue_group(GROUP);
        let service = builder.start(&name, offered.version).await.map_err(|error| failed(&doing, &error))?;
        let mut requests = ServiceRequests {
            nats: self.clone(),
            service: Some(service),
            endpoints: SelectAll::new(),
            fetches: Fetches::default(),
        };
        for subject in &offered.subjects {
            let at = self.namespace().subject(subject);
            // Such as `query-runs`: the last words of two subjects may be equal.
            let name = subject.to_string().split('.').skip(1).collect::<Vec<_>>().join("-");
            let Some(service) = &requests.service else { break };
            let endpoint = service.endpoint_builder().name(name).add(&at).await;
            requests.endpoints.push(endpoint.map_err(|error| failed(&doing, &error))?);
        }
        self.0.client.flush().await.map_err(|error| failed(&doing, &error))?;
        Ok(requests)
    }
}

#[derive(Debug)]
pub struct Subscription {
    nats: Nats,
    subscriber: Subscriber,
    fetches: Fetches,
}

impl Subscription {
    pub(in super::super) async fn next(&mut self) -> Option<Message> {
        loop {
            let message = tokio::select! {
                biased;
                fetched = self.fetches.next(&self.nats) => fetched_message(&self.nats, fetched),
                message = self.subscriber.next() => sort(&self.nats, message?, &mut self.fetches),
            };
            if message.is_some() {
                return message;
            }
        }
    }
}

/// The requests to all subjects of a service. When dropped, the service is no longer listed.
pub struct ServiceRequests {
    nats: Nats,
    service: Option<service::Service>,
    endpoints: SelectAll<service::endpoint::Endpoint>,
    fetches: Fetches,
}

impl ServiceRequests {
    pub(in super::super) async fn next(&mut self) -> Option<Message> {
        loop {
            let message = tokio::select! {
                biased;
                fetched = self.fetches.next(&self.nats) => fetched_message(&self.nats, fetched),
                request = self.endpoints.next() => sort(&self.nats, request?.message, &mut self.fetches),
            };
            if message.is_some() {
                return message;
            }
        }
    }
}

impl Drop for ServiceRequests {
    fn drop(&mut self) {
        // Returns at once. Without it a task would continue to answer discovery requests.
        if let Some(service) = self.service.take() {
            service.stop().now_or_never();
        }
    }
}

impl fmt::Debug for ServiceRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceRequests").field("service", &self.service).finish_non_exhaustive()
    }
}

/// Parses a received message. Returns none if the message is ignored, or if its payload is an
/// object, which is fetched in the background.
fn sort(nats: &Nats, message: async_nats::Message, fetches: &mut Fetches) -> Option<Message> {
    if !is_object(&message) {
        let payload = message.payload.clone();
        return parse(nats, message, Payload::Here(payload));
    }
    let subject = message.subject.clone();
    if nats.namespace().parse(subject.as_str()).is_ok_and(|subject| !may_be_large(&subject)) {
        tracing::debug!(%subject, "a message names an object on a subject that does not allow it; it is ignored");
    } else if fetches.add(nats, message).is_some() {
        tracing::warn!(%subject, "too many messages with object payloads are waiting; one is ignored");
    }
    None
}

/// Returns true if a message on this subject, which is not stored, may be too large for the server.
/// Broadcasts never are.
fn may_be_large(subject: &Subject) -> bool {
    !matches!(
        subject,
        Subject::Stop(_) | Subject::Stream(..) | Subject::Worker | Subject::Admin(Action::Drain)
    )
}

fn fetched_message(nats: &Nats, (message, payload): FetchedMessage) -> Option<Message> {
    match payload {
        Some(payload) => parse(nats, message, payload),
        None => {
            let subject = message.subject.as_str();
            tracing::warn!(subject, "the payload of a message can't be fetched; it is ignored");
            None
        }
    }
}

fn parse(nats: &Nats, message: async_nats::Message, payload: Payload) -> Option<Message> {
    let subject = match nats.namespace().parse(message.subject.as_str()) {
        Ok(subject) => subject,
        Err(error) => {
            tracing::debug!(%error, "a message can't be read; it is ignored");
            return None;
        }
    };
    let mut headers = received(message.headers.as_ref());
    let payload = payload.told(&mut headers);
    let reply_to = message.reply.map(|reply| reply.to_string());
    Some(Message { subject, headers, payload, reply_to })
}
