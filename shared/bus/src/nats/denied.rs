//! What the server does not permit us. It answers a forbidden publish or subscription with an error that names only the
//! subject, and a request with nothing at all: whoever waits for the answer is told here, at once.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use super::{
    super::error::{Action, Denied},
    Error, Nats,
};

/// How long the error to a subscription may take to be read, once the server has answered what was sent behind it.
const READ_WITHIN: Duration = Duration::from_millis(50);
/// A round trip.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl Nats {
    /// Does work that needs an answer to a message on this subject, or says that we may not send it.
    pub(super) async fn permitted<T>(&self, to: &str, work: impl Future<Output = T>) -> Result<T, Denied> {
        self.permitted_since(to, Instant::now(), work).await
    }

    /// The same, for a message that was sent before.
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

    /// Whether the server took a subscription that was just sent. Only servers with permissions have inboxes of their own;
    /// others are not asked.
    pub(super) async fn subscribed(&self, to: &str, since: Instant) -> Result<(), Error> {
        self.took(Action::Subscribe, to, since).await
    }

    /// The same, of a message that nobody answers.
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

    /// A round trip to the server itself: every role may send to its own inbox.
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
