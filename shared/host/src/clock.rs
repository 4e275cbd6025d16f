//! The source of time of a process: the machine, or a simulation. All code that measures time or
//! stamps messages takes a [`Clock`]. The core takes none: its time comes with the commands.

use std::time::Duration;

use nix::time::ClockId;
use tokio::time::Instant;

use domain::time::{Timestamp, millis};

#[derive(Debug, Clone, Copy, Default)]
pub enum Clock {
    #[default]
    Machine,
    /// Tokio's clock, which a test may pause, counted from a time that the test chooses.
    Simulated { started: Instant, at: Timestamp },
}

impl Clock {
    pub fn simulated(at: Timestamp) -> Self {
        Clock::Simulated { started: Instant::now(), at }
    }

    /// The time of day. It differs between machines and may jump, so durations are never measured
    /// by it.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::Machine => {
                #[expect(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
                let now = std::time::SystemTime::now();
                let passed = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_millis(millis(passed))
            }
            Clock::Simulated { started, at } => at.plus_millis(millis(started.elapsed())),
        }
    }

    /// The time since a fixed moment, with the time for which this machine was suspended. Leases
    /// are measured by it, because they expire on other machines during a suspension.
    pub fn mark(&self) -> Mark {
        Mark(match self {
            Clock::Machine => {
                #[expect(clippy::disallowed_methods, reason = "the one place that reads this clock")]
                let boot = ClockId::CLOCK_BOOTTIME.now().expect("every Linux since 2.6.39 has this clock");
                Duration::from(boot)
            }
            Clock::Simulated { started, .. } => started.elapsed(),
        })
    }

    pub fn since(&self, earlier: Mark) -> Duration {
        self.mark().0.saturating_sub(earlier.0)
    }
}

/// A moment of [`Clock::mark`]. Only differences between marks have a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(Duration);
