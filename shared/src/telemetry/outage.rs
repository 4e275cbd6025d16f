//! The lines of an outage: one when it begins, with its cause, one every ten seconds with a count, one when it ends.

use std::time::Duration;

use tokio::time::Instant;

/// Between two lines of one outage.
const EVERY: Duration = Duration::from_secs(10);

/// Whether something can be reached, as its log tells it.
#[derive(Debug)]
pub struct Outage {
    what: &'static str,
    since: Option<Since>,
}

#[derive(Debug)]
struct Since {
    began: Instant,
    told: Instant,
    failures: u64,
}

impl Outage {
    pub fn new(what: &'static str) -> Self {
        Outage { what, since: None }
    }

    /// It was tried in vain.
    pub fn failed(&mut self, cause: &str) {
        let now = Instant::now();
        match &mut self.since {
            None => {
                tracing::warn!(what = self.what, cause, "can't be reached");
                self.since = Some(Since { began: now, told: now, failures: 1 });
            }
            Some(since) => {
                since.failures += 1;
                if now.duration_since(since.told) >= EVERY {
                    since.told = now;
                    let (failures, seconds) = (since.failures, now.duration_since(since.began).as_secs());
                    tracing::warn!(what = self.what, failures, seconds, cause, "still can't be reached");
                }
            }
        }
    }

    /// It answered.
    pub fn ended(&mut self) {
        if let Some(Since { began, failures, .. }) = self.since.take() {
            tracing::info!(
                what = self.what,
                failures,
                seconds = began.elapsed().as_secs(),
                "can be reached again"
            );
        }
    }
}
