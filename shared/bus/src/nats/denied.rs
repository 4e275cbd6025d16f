//! Reports a missing permission at once.
//!
//! The server answers a forbidden publish or subscription with an error that names only the
//! subject, and it does not answer a forbidden request at all. Without this module, a caller would
//! wait until its timeout.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use super::{
    super::error::{Action, Denied},
    Error, Nats,
};

/// The most time between the server's answer to a later message and the arrival of the error about
/// an earlier subscription or publish.
const READ_WITHIN: Duration = Duration::from_millis(50);
/// The timeout of a round trip.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl Nats {
    /// Runs `work`, which waits for an answer to a message on this subject. Returns early if the
    /// server denies that message.
    pub(super) async fn permitted<T>(&self, to: &str, work: impl Future<Output = T>) -> Result<T, Denied> {
        self.permitted_since(to, Instant::now(), work).await
    }

    /// Like `permitted`, for a message that was sent at `since`.
    pub(super) async fn permitted_since<T>(
        &self,
        to: &str,
        since: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Denied> {
        let denials = &self.0.denials;
        let mut count = denials.count.subscribe();
        let denied = async {
            loop {
                if let Some(denied) = denials.of(Action::Publish, to, &self.0.inbox, since) {
                    return denied;
                }
                if count.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            denied = denied => Err(denied),
        }
    }

    /// Checks that the server accepted a subscription that was just sent. Servers without
    /// permissions give this process no inbox of its own; there the check is skipped.
    pub(super) async fn subscribed(&self, to: &str, since: Instant) -> Result<(), Error> {
        self.took(Action::Subscribe, to, since).await
    }

    /// Like `subscribed`, for a message without an answer.
    pub(super) async fn published(&self, to: &str, since: Instant) -> Result<(), Error> {
        self.took(Action::Publish, to, since).await
    }

    async fn took(&self, action: Action, to: &str, since: Instant) -> Result<(), Error> {
        if !self.0.restricted {
            return Ok(());
        }
        self.echo().await?;
        let denials = &self.0.denials;
        let mut count = denials.count.subscribe();
        let over = Instant::now() + READ_WITHIN;
        loop {
            if let Some(denied) = denials.of(action, to, &self.0.inbox, since) {
                return Err(denied.into());
            }
            if !matches!(tokio::time::timeout_at(over, count.changed()).await, Ok(Ok(()))) {
                return Ok(());
            }
        }
    }

    /// Measures a round trip to the server itself. It works for every role, because each may send
    /// to its own inbox.
    pub(super) async fn echo(&self) -> Result<Duration, Error> {
        let client = &self.0.client;
        let failed = |reason: String| Error::Failed { doing: "asking the NATS server".into(), reason };
        let (asked, inbox) = (Instant::now(), client.new_inbox());
        let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| failed(error.to_string()))?;
        let sent = client.publish(inbox.clone(), bytes::Bytes::new()).await;
        sent.map_err(|error| failed(error.to_string()))?;
        let heard = tokio::time::timeout(ANSWER_WITHIN, answers.next());
        match self.permitted(&inbox, heard).await? {
            Ok(Some(_)) => Ok(asked.elapsed()),
            Ok(None) | Err(_) => Err(failed("no answer in time".into())),
        }
    }
}
