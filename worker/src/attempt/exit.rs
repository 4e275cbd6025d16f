//! Ends an agent that can't continue, because its journal or its files can't be read or written. The agent reports its
//! failure here at any depth of its calls, and the delivery ends the attempt.

use domain::wire::Failure;
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Exit(watch::Sender<Option<Failure>>);

impl Default for Exit {
    fn default() -> Self {
        Exit(watch::Sender::new(None))
    }
}

impl Exit {
    /// Reports the failure. Never returns, because the attempt ends.
    pub(super) async fn take(&self, failure: Failure) -> ! {
        tracing::warn!(kind = ?failure.kind, "the agent can't continue");
        tracing::debug!(said = failure.message, "why");
        self.0.send_replace(Some(failure));
        std::future::pending().await
    }

    /// Waits until the agent has reported a failure here.
    pub(crate) async fn taken(&self) -> Failure {
        let mut taken = self.0.subscribe();
        let failure = taken.wait_for(Option::is_some).await.expect("the sender is ours").clone();
        failure.expect("it was waited for")
    }
}
