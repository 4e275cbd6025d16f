//! What is not stored: broadcasts, requests and their answers, and the listed service.

use std::{fmt, time::Duration};

use async_nats::{
    HeaderMap, StatusCode, Subscriber,
    client::RequestErrorKind,
    service::{self, ServiceExt},
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream::SelectAll};

use super::{
    Error, Headers, Message, Nats, RequestError, Service, failed, from_map, objects::overflow, to_map,
};
use crate::subject::{Filter, Subject};

/// All processes that serve a subject are in this group: one of them gets each request.
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
        let sent = self.0.client.publish_with_headers(to, headers, payload).await;
        sent.map_err(|error| failed(doing, &error))
    }

    pub(in super::super) async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        let payload = self.fit(&mut headers, payload, None).await?;
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
        let other = |error: Error| RequestError::Other(error.to_string());
        let payload = self.fit(&mut headers, payload, None).await.map_err(other)?;
        let asked_with = overflow(&headers);
        let request = async_nats::Request::new().headers(headers).payload(payload).timeout(Some(timeout));
        // The client's own timeout begins when the request enters its queue, which may be full.
        let asked = self.0.client.send_request(self.namespace().subject(subject), request);
        match tokio::time::timeout(timeout, asked).await {
            Ok(Ok(answer)) => {
                let payload = self.payload(answer.headers.as_ref(), &answer.payload).await.map_err(other)?;
                // Nobody else reads what was too large for a message.
                let answered_with = answer.headers.as_ref().and_then(overflow);
                for object in asked_with.into_iter().chain(answered_with) {
                    if let Err(error) = self.delete_object(&object).await {
                        tracing::debug!(%error, "the payload of a request stays until its age");
                    }
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
        let doing = format!("sending a request to everybody at `{to}`");
        let inbox = self.0.client.new_inbox();
        let subscribed = self.0.client.subscribe(inbox.clone()).await;
        let mut inbox_of_answers = subscribed.map_err(|error| failed(&doing, &error))?;
        let sent = self.0.client.publish_with_reply(to, inbox, payload).await;
        sent.map_err(|error| failed(doing, &error))?;
        let over = tokio::time::Instant::now() + wait;
        let mut answers = Vec::new();
        while let Ok(Some(answer)) = tokio::time::timeout_at(over, inbox_of_answers.next()).await {
            if answer.status == Some(StatusCode::NO_RESPONDERS) {
                break;
            }
            answers.push(answer.payload);
        }
        Ok(answers)
    }

    pub(in super::super) async fn serve(&self, subject: &Subject) -> Result<Subscription, Error> {
        let at = self.namespace().subject(subject);
        let subscribed = self.0.client.queue_subscribe(at.clone(), GROUP.into()).await;
        let subscriber = subscribed.map_err(|error| failed(format!("subscribing to `{at}`"), &error))?;
        self.listening(subscriber).await
    }

    pub(in super::super) async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        let at = self.namespace().filter(filter);
        let subscribed = self.0.client.subscribe(at.clone()).await;
        let subscriber = subscribed.map_err(|error| failed(format!("subscribing to `{at}`"), &error))?;
        self.listening(subscriber).await
    }

    /// Returns once the server has the subscription, so that messages sent afterwards on this connection
    /// are received.
    async fn listening(&self, subscriber: Subscriber) -> Result<Subscription, Error> {
        let flushed = self.0.client.flush().await;
        flushed.map_err(|error| failed("subscribing", &error))?;
        Ok(Subscription { nats: self.clone(), subscriber })
    }

    pub(in super::super) async fn offer(&self, offered: &Service) -> Result<ServiceRequests, Error> {
        let name = self.namespace().stream(offered.name);
        let doing = format!("offering the service `{name}`");
        let builder = self.0.client.service_builder().description(offered.description).queue_group(GROUP);
        let service = builder.start(&name, offered.version).await.map_err(|error| failed(&doing, &error))?;
        let mut requests =
            ServiceRequests { nats: self.clone(), service: Some(service), endpoints: SelectAll::new() };
        for subject in &offered.subjects {
            let at = self.namespace().subject(subject);
            let last = at.rsplit('.').next().unwrap_or(&at).to_owned();
            let Some(service) = &requests.service else { break };
            let endpoint = service.endpoint_builder().name(last).add(&at).await;
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
}

impl Subscription {
    pub(in super::super) async fn next(&mut self) -> Option<Message> {
        loop {
            let message = self.subscriber.next().await?;
            if let Some(message) = parse(&self.nats, message).await {
                return Some(message);
            }
        }
    }
}

/// The requests to all subjects of a service. When dropped, the service is no longer listed.
pub struct ServiceRequests {
    nats: Nats,
    service: Option<service::Service>,
    endpoints: SelectAll<service::endpoint::Endpoint>,
}

impl ServiceRequests {
    pub(in super::super) async fn next(&mut self) -> Option<Message> {
        loop {
            let request = self.endpoints.next().await?;
            if let Some(message) = parse(&self.nats, request.message).await {
                return Some(message);
            }
        }
    }
}

impl Drop for ServiceRequests {
    fn drop(&mut self) {
        // Returns at once. Without it a task would keep answering discovery requests.
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

async fn parse(nats: &Nats, message: async_nats::Message) -> Option<Message> {
    let subject = match nats.namespace().parse(message.subject.as_str()) {
        Ok(subject) => subject,
        Err(error) => {
            tracing::warn!(%error, "a message can't be read; it is ignored");
            return None;
        }
    };
    let payload = match nats.payload(message.headers.as_ref(), &message.payload).await {
        Ok(payload) => payload,
        Err(error) => {
            tracing::warn!(%subject, %error, "a message can't be read; it is ignored");
            return None;
        }
    };
    let headers = from_map(message.headers.as_ref());
    let reply_to = message.reply.map(|reply| reply.to_string());
    Some(Message { subject, headers, payload, reply_to })
}
