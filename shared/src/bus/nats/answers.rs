//! Answers that are too large for a message are objects of the coordinators. Whoever asked may read them and not remove them: so
//! the coordinator that stored them does, once they have been there for long enough to be read, or when there are too many.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How long an answer is there. Whoever asked reads it at once.
const THERE_FOR: Duration = Duration::from_secs(60);
/// The most bytes of such answers of one process: a part of their bucket, however many are asked for within that time.
const MAX_BYTES: usize = 256 << 20;

/// The answers of this process that are still there, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Answers {
    sent: VecDeque<(Instant, String, usize)>,
    bytes: usize,
}

impl Answers {
    pub(super) fn add(&mut self, object: String, bytes: usize, now: Instant) {
        self.sent.push_back((now, object, bytes));
        self.bytes += bytes;
    }

    /// Takes the oldest one out, if it is to be removed.
    pub(super) fn due(&mut self, now: Instant) -> Option<String> {
        let (sent, ..) = self.sent.front()?;
        // The last one is there for its time, whatever its size.
        let too_many = self.bytes > MAX_BYTES && self.sent.len() > 1;
        if !too_many && now.duration_since(*sent) < THERE_FOR {
            return None;
        }
        let (_, object, bytes) = self.sent.pop_front()?;
        self.bytes -= bytes;
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_answers_that_are_objects_are_removed_after_a_minute_or_when_they_are_too_many() {
        let now = Instant::now();
        let mut answers = Answers::default();
        answers.add("a".into(), 10, now);
        answers.add("b".into(), 10, now + THERE_FOR / 2);
        assert_eq!(answers.due(now + THERE_FOR / 2), None);
        assert_eq!(answers.due(now + THERE_FOR).as_deref(), Some("a"));
        assert_eq!(answers.due(now + THERE_FOR), None, "it was sent later");
        answers.add("c".into(), MAX_BYTES, now + THERE_FOR);
        assert_eq!(answers.due(now + THERE_FOR).as_deref(), Some("b"));
        assert_eq!(
            (answers.due(now + THERE_FOR), answers.bytes),
            (None, MAX_BYTES),
            "the last one may be large"
        );
    }
}
