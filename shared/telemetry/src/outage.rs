//! Logs an outage, independent of the number of attempts (X8): one line at its start with the
//! cause, one every ten seconds with a count, and one at its end.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two lines about an outage that continues.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The state of a connection, as far as its user knows it.
#[derive(Debug)]
pub struct Outage {
    what: &'static str,
    since: Option<Since>,
    /// The last outage, and the time of its end. A failure soon after continues this outage.
    before: Option<(Instant, Since)>,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    began: Instant,
    told: Instant,
    failures: u64,
    /// True if the last line reported the end of the outage.
    said_over: bool,
}

impl Outage {
    pub fn new(what: &'static str) -> Self {
        Outage { what, since: None, before: None }
    }

    /// Notes a failed attempt. The cause must not contain content of runs.
    pub fn failed(&mut self, cause: &str) {
        let now = Instant::now();
        let again = self.before.take().filter(|(ended, _)| now.duration_since(*ended) < TELL_EVERY);
        let Some(since) = self.since.as_mut() else {
            if let Some((_, before)) = again {
                self.since = Some(before);
                return self.failed(cause);
            }
            tracing::warn!(what = self.what, cause, "can't be reached");
            self.since = Some(Since { began: now, told: now, failures: 1, said_over: false });
            return;
        };
        since.failures += 1;
        if now.duration_since(since.told) >= TELL_EVERY {
            let seconds = now.duration_since(since.began).as_secs();
            tracing::warn!(
                what = self.what,
                cause,
                failures = since.failures,
                seconds,
                "still can't be reached"
            );
            (since.told, since.said_over) = (now, false);
        }
    }

    /// Notes a successful attempt.
    pub fn ended(&mut self) {
        let Some(mut since) = self.since.take() else { return };
        let now = Instant::now();
        if !since.said_over {
            let seconds = now.duration_since(since.began).as_secs();
            tracing::info!(what = self.what, failures = since.failures, seconds, "can be reached again");
            (since.told, since.said_over) = (now, true);
        }
        self.before = Some((now, since));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Subscriber, field::Visit};
    use tracing_subscriber::{
        layer::{Context, Layer, SubscriberExt},
        registry,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    struct Text(String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            self.0 += &format!(" {}={value:?}", field.name());
        }
    }

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut text = Text(event.metadata().level().to_string());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn x8_an_outage_of_25_seconds_has_four_lines() {
        let heard = Heard::default();
        let _log = tracing::subscriber::set_default(registry().with(heard.clone()));
        // Another test may have reached a log line first, without a subscriber, and that result
        // would be cached for all tests.
        tracing::callsite::rebuild_interest_cache();
        let mut outage = Outage::new("Redis");
        outage.ended();
        for _ in 0..250 {
            outage.failed("connection refused");
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        outage.ended();
        outage.ended();
        tokio::time::advance(Duration::from_secs(10)).await;
        outage.failed("timed out");
        let lines = heard.0.lock().unwrap().clone();
        assert_eq!(
            lines,
            [
                "WARN message=can't be reached what=\"Redis\" cause=\"connection refused\"",
                "WARN message=still can't be reached what=\"Redis\" cause=\"connection refused\" failures=101 seconds=10",
                "WARN message=still can't be reached what=\"Redis\" cause=\"connection refused\" failures=201 seconds=20",
                "INFO message=can be reached again what=\"Redis\" failures=250 seconds=25",
                "WARN message=can't be reached what=\"Redis\" cause=\"timed out\"",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn x8_occasional_failures_are_logged_every_ten_seconds_at_most() {
        let heard = Heard::default();
        let _log = tracing::subscriber::set_default(registry().with(heard.clone()));
        tracing::callsite::rebuild_interest_cache();
        let mut outage = Outage::new("a collector");
        for _ in 0..250 {
            outage.failed("too large");
            outage.ended();
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let lines = heard.0.lock().unwrap().clone();
        assert_eq!(lines.len(), 6, "{lines:#?}");
        assert!(lines[5].contains("can be reached again"), "{lines:#?}");
    }
}
