//! The time at which decisions are made: the store's clock less its correction, advanced by the
//! coordinator's own clock between two readings. It never goes back.
//!
//! The clock of a store jumps when it is set, or when a replica with another clock takes over.
//! Following a jump ahead at once would end every lease and pass every deadline. So each reading is
//! compared with the time that has passed here, by a clock that counts suspended time. A difference
//! too large for a slow answer is a jump. The coordinator does not follow a jump: it proposes a
//! correction, which is stored beside the clock for all coordinators, including those that start
//! later.
//!
//! If several coordinators see a jump, the first correction of its number is kept. If only one
//! coordinator sees a jump, that coordinator stood still (a virtual machine was stopped). To the
//! other coordinators its correction is a jump, so they correct it back. A coordinator whose
//! correction is soon replaced follows the store. A coordinator that has just started has no
//! reading to compare with, and follows too. A small difference is followed; if the store's clock
//! is behind, ours runs at half speed until the two meet, so that leases and timers still expire.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{Timestamp, time::millis};
use host::clock::{Clock as Machine, Mark};

use crate::store::{Correction, StoreTime};

/// The largest difference that is followed. A reading may be late by the time that the store may
/// take to answer. A lease survives it: ticks come every third of a lease.
const MOST_FOLLOWED_MS: u64 = 3_000;
/// A correction of ours that another coordinator replaces within this time was wrong: the other has
/// a longer record of readings. The time covers many heartbeats.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct Clock(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    /// The clock that measures the time between two readings.
    machine: Machine,
    /// The last reading that was followed, and when it was taken.
    time: Timestamp,
    read_at: Mark,
    /// Two readings agreed, so that a third which disagrees is a jump.
    steady: bool,
    /// The number of the correction that this coordinator proposed last, and when.
    proposed: Option<(u64, Mark)>,
    /// The latest time that was returned, and when.
    given: Timestamp,
    given_at: Mark,
}

impl Clock {
    pub(crate) fn new(machine: Machine, store: StoreTime) -> Self {
        let (time, read_at) = (store.corrected(), machine.mark());
        let reading =
            Reading { machine, time, read_at, steady: false, proposed: None, given: time, given_at: read_at };
        Clock(Arc::new(Mutex::new(reading)))
    }

    /// Takes a reading of the store's clock. Returns the correction to propose if the clock has
    /// jumped.
    pub(crate) fn set(&self, store: StoreTime) -> Option<Correction> {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = reading.expected();
        let time = store.corrected();
        let (ahead, behind) = (time.millis_since(expected), expected.millis_since(time));
        let agrees = ahead.max(behind) <= MOST_FOLLOWED_MS;
        if agrees || reading.overruled(store.correction) || !reading.steady {
            reading.steady = agrees;
            if !agrees {
                tracing::warn!(
                    ahead,
                    behind,
                    "following the store's clock after a jump of this process's clock"
                );
            }
            (reading.time, reading.read_at) = (time, reading.machine.mark());
            return None;
        }
        let number = store.correction.number + 1;
        reading.proposed = Some((number, reading.machine.mark()));
        tracing::warn!(ahead, behind, number, "the store's clock has jumped; proposing to correct it");
        let change = signed(ahead) - signed(behind);
        Some(Correction { number, ahead_ms: store.correction.ahead_ms.saturating_add(change) })
    }

    pub(crate) fn now(&self) -> Timestamp {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = millis(reading.machine.since(reading.given_at));
        let slow = reading.given.plus_millis(passed / 2);
        let now = reading.expected().max(slow);
        // Advances of less than a millisecond are not lost: `given_at` moves only together with
        // `given`.
        if now > reading.given {
            (reading.given, reading.given_at) = (now, reading.machine.mark());
        }
        reading.given
    }
}

impl Reading {
    /// The time that the store's clock shows by now, unless it has jumped.
    fn expected(&self) -> Timestamp {
        self.time.plus_millis(millis(self.machine.since(self.read_at)))
    }

    /// Returns true if another coordinator has replaced the correction that this one proposed.
    fn overruled(&self, correction: Correction) -> bool {
        self.proposed.is_some_and(|(number, at)| {
            correction.number > number && self.machine.since(at) < REPLACED_WITHIN
        })
    }
}

fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOURS: u64 = 3 * 3_600_000;
    const NONE: Correction = Correction { number: 0, ahead_ms: 0 };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000 + millis)
    }

    fn reads(millis: u64, correction: Correction) -> StoreTime {
        StoreTime { read: at(millis), correction }
    }

    /// A clock that has seen two readings, at 0 and 1000 ms.
    async fn steady() -> Clock {
        let clock = Clock::new(Machine::simulated(Timestamp::from_millis(5)), reads(0, NONE));
        pass(1_000).await;
        assert_eq!(clock.set(reads(1_000, NONE)), None);
        clock
    }

    async fn pass(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn f28_small_differences_are_followed_and_the_clock_never_goes_back_or_stops() {
        let clock = steady().await;
        pass(500).await;
        assert_eq!(clock.now(), at(1_500));
        assert_eq!(clock.set(reads(4_000, NONE)), None);
        assert_eq!(clock.now(), at(4_000), "a clock that is slightly behind is advanced");
        assert_eq!(clock.set(reads(2_000, NONE)), None);
        assert_eq!(clock.now(), at(4_000), "a clock that is slightly ahead does not go back");
        pass(1_000).await;
        assert_eq!(clock.now(), at(4_500), "it continues at half speed");
        pass(10_000).await;
        assert_eq!(clock.now(), at(13_000), "the clocks are equal again");
    }

    #[tokio::test(start_paused = true)]
    async fn f28_a_jump_ahead_and_back_is_corrected_and_not_followed() {
        let clock = steady().await;
        pass(1_000).await;
        let ahead = clock.set(reads(2_000 + HOURS, NONE)).expect("the clock has jumped");
        assert_eq!((ahead.number, ahead.ahead_ms), (1, HOURS as i64));
        assert_eq!(clock.now(), at(2_000));
        pass(1_000).await;
        assert_eq!(clock.set(reads(3_000 + HOURS, ahead)), None);
        assert_eq!(clock.now(), at(3_000));
        let back = clock.set(reads(3_000, ahead)).expect("the clock has jumped back");
        assert_eq!((back.number, back.ahead_ms), (2, 0));
        assert_eq!(clock.now(), at(3_000));
        assert_eq!(clock.set(reads(3_000, back)), None);
        // The store lost the correction with everything else, while its clock was ahead.
        assert_eq!(clock.set(reads(3_000 + HOURS, NONE)).map(|c| c.number), Some(1));
        assert_eq!(clock.now(), at(3_000));
    }

    /// The two clocks run one after the other here: the hours that pass for the first are over
    /// before the second starts.
    #[tokio::test(start_paused = true)]
    async fn f28_of_several_coordinators_the_one_that_stood_still_gives_way() {
        let other = steady().await;
        pass(HOURS).await;
        let stopped = steady().await;
        assert_eq!(
            other.set(reads(1_000 + HOURS, NONE)).map(|c| c.number),
            None,
            "the coordinator that ran meanwhile needs no correction"
        );
        let wrong = stopped
            .set(reads(1_000 + HOURS, NONE))
            .expect("the store's clock has jumped for the stopped coordinator");
        assert_eq!(stopped.set(reads(1_000 + HOURS, wrong)), None, "its own correction changes nothing");
        let right = other
            .set(reads(1_000 + HOURS, wrong))
            .expect("the correction is a jump for the other coordinator");
        assert_eq!((right.number, right.ahead_ms), (2, 0));
        assert_eq!(stopped.set(reads(1_000 + HOURS, right)), None);
        assert_eq!((stopped.now(), other.now()), (at(1_000 + HOURS), at(1_000 + HOURS)));
        assert_eq!(stopped.set(reads(1_000 + HOURS, right)), None, "both clocks agree");
        assert_eq!(other.set(reads(1_000 + HOURS, right)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn f28_a_coordinator_that_has_just_started_follows() {
        let clock = Clock::new(Machine::simulated(Timestamp::from_millis(5)), reads(0, NONE));
        assert_eq!(clock.set(reads(HOURS, NONE)), None);
        assert_eq!(clock.now(), at(HOURS));
    }
}
