//! Waits between tries: exponential, and bounded for work that another attempt can also do.

use std::time::Duration;

use tokio::time::Instant;

/// The pauses between tries: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The time for which one operation is retried within one attempt. After that the caller decides;
/// mostly the attempt fails, so that another worker can try.
const RETRY_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    began: Instant,
}

/// The retry limit of an operation is reached.
#[derive(Debug)]
pub(crate) struct RetriesExhausted;

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: FIRST_PAUSE, began: Instant::now() }
    }
}

impl Backoff {
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }

    /// Like `wait`, up to the retry limit. The heartbeat renews the lease meanwhile, so the lease
    /// would never end an operation that can't succeed.
    pub(crate) async fn wait_bounded(&mut self) -> Result<(), RetriesExhausted> {
        if self.began.elapsed() >= RETRY_LIMIT {
            return Err(RetriesExhausted);
        }
        self.wait().await;
        Ok(())
    }
}
