//! Follows the log, so that copies of all records are in memory a moment after they were appended.

use std::time::Duration;

use bus::{From, StoredMessage};
use telemetry::Outage;

use super::{Error, Record, Registry};

/// Time limit for a reader that waits until the stored messages are followed.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(3);
/// Pause before the log is followed again after an error.
const FOLLOW_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl<R: Record> Registry<R> {
    /// Follows the log until the future is dropped.
    pub(crate) async fn follow(self) {
        let mut outage = Outage::new(R::LOG);
        loop {
            match self.bus.follow(R::ALL, From::Start).await {
                Ok(mut messages) => {
                    outage.ended();
                    let denied = loop {
                        match messages.next().await {
                            Ok(stored) => self.note(&stored),
                            Err(error) => break error,
                        }
                    };
                    // The connection logs what the server denies.
                    tracing::debug!(%denied, "{} can't be followed; trying again", R::LOG);
                }
                Err(error) => outage.failed(&error.to_string()),
            }
            tokio::time::sleep(FOLLOW_AGAIN_AFTER).await;
        }
    }

    fn note(&self, stored: &StoredMessage) {
        if let Some(key) = R::key(&stored.subject) {
            self.memory().take(&key, stored);
        }
        self.followed.send_modify(|followed| *followed = stored.sequence.max(*followed));
    }

    /// Waits until all messages that are stored now have been followed.
    pub(crate) async fn caught_up(&self) -> Result<(), Error> {
        let mut last = 0;
        for filter in R::ALL {
            let stored = self.bus.last(filter).await.map_err(Error::read::<R>)?;
            last = last.max(stored.map_or(0, |stored| stored.sequence));
        }
        let mut followed = self.followed.subscribe();
        let waited =
            tokio::time::timeout(CATCH_UP_WITHIN, followed.wait_for(|followed| *followed >= last)).await;
        if waited.is_ok_and(|followed| followed.is_ok()) {
            Ok(())
        } else {
            Err(Error::Behind { log: R::LOG })
        }
    }
}
