//! Sends a message to a webhook: one signed request to an allowed address, without redirects and
//! with a timeout. Only the status of the answer is read.

use std::{sync::Arc, time::Duration};

use domain::{signature::signatures, time::Timestamp, wording::with_causes};
use reqwest::{
    Client,
    header::{CONTENT_TYPE, HeaderName},
};

use super::Webhook;
use crate::internet::{self, Resolver};

/// The timeout of one request, from the look-up of the name to the status of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIME: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The reason why a webhook did not accept a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error("it answered with status {0}")]
    Status(u16),
    #[error("it redirects (status {0}), and redirects are not followed")]
    Redirect(u16),
    #[error("it can't be reached: {0}")]
    Unreachable(String),
}

impl WebhookError {
    /// Returns true if the receiver rejected this message only, and may accept others.
    pub fn is_of_the_message(&self) -> bool {
        match self {
            // The message is invalid for the receiver, or too large.
            WebhookError::Status(400 | 409 | 413 | 415 | 422) => true,
            WebhookError::Status(_) | WebhookError::Redirect(_) | WebhookError::Unreachable(_) => false,
        }
    }
}

/// Sends messages to webhooks.
#[derive(Debug)]
pub struct Sender {
    /// Connects to public addresses of the internet only.
    outside: Client,
    /// Connects to any address.
    inside: Client,
}

impl Sender {
    pub fn new() -> Result<Self, WebhookError> {
        let hint = "`internal: true` of the webhook allows it";
        let resolver = Resolver { look_up: internet::by_system(), listed: Arc::default(), hint };
        // A proxy would look names up itself, so none is used.
        let client = || {
            internet::strict_client()
                .no_proxy()
                .timeout(TIMEOUT)
                .user_agent("trellis")
                .pool_max_idle_per_host(0)
        };
        let built = client().dns_resolver(Arc::new(resolver)).build().and_then(|outside| {
            let inside = client().build()?;
            Ok(Sender { outside, inside })
        });
        built.map_err(|error| WebhookError::Unreachable(with_causes(&error)))
    }

    /// Sends a body under an id. A repeated message has the same id.
    pub async fn send(
        &self,
        webhook: &Webhook,
        id: &str,
        now: Timestamp,
        body: Vec<u8>,
    ) -> Result<(), WebhookError> {
        let url = webhook.checked_url().map_err(|(what, _)| WebhookError::Unreachable(what.into()))?;
        let seconds = now.millis() / 1_000;
        let signature = signatures(&webhook.secrets, id, seconds, &body);
        let client = if webhook.internal { &self.inside } else { &self.outside };
        let request = client.post(url).header(CONTENT_TYPE, "application/json").header(ID, id);
        let request = request.header(TIME, seconds.to_string()).header(SIGNATURE, signature).body(body);
        let answer = request.send().await;
        let answer = answer.map_err(|error| WebhookError::Unreachable(with_causes(&error.without_url())))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(WebhookError::Redirect(status.as_u16())),
            status => Err(WebhookError::Status(status.as_u16())),
        }
    }
}
