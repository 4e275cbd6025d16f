//! The deadline of an attempt's context. It counts down from the coordinator's latest answer, by a
//! clock that counts suspended time, and never by the time of day, which differs between machines.
//! The coordinator decides when the deadline has passed. The worker only starts no work that could
//! not end in time, and waits to be stopped.

use std::time::Duration;

use domain::wire::TimeLeft;
use host::clock::{Clock, Mark};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Deadline {
    clock: Clock,
    /// The time left and the moment of that answer; `None` without a deadline, or while the
    /// deadline is suspended.
    said: watch::Sender<Option<(Duration, Mark)>>,
}

impl Deadline {
    pub(crate) fn new(clock: Clock, left: TimeLeft) -> Self {
        let deadline = Deadline { clock, said: watch::Sender::new(None) };
        deadline.renew(left);
        deadline
    }

    /// Takes over the time left from the coordinator's latest answer.
    pub(crate) fn renew(&self, left: TimeLeft) {
        let left = left.deadline_ms.map(Duration::from_millis);
        let said = left.map(|left| (left, self.clock.mark()));
        self.said.send_replace(said);
    }

    /// The time left now; `None` without a deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        let said = *self.said.borrow();
        said.map(|(left, at)| left.saturating_sub(self.clock.since(at)))
    }

    /// Waits while less than `at_least` is left. The wait ends when the coordinator stops the
    /// attempt or reports more time: the deadline is suspended while a context waits for a human.
    /// The worker reports no failure for lack of time, so that the end does not depend on which
    /// clock is ahead.
    pub(crate) async fn leaves(&self, at_least: Duration) {
        let mut said = self.said.subscribe();
        while self.left().is_some_and(|left| left < at_least) {
            said.changed().await.expect("the sender is ours");
        }
    }
}
