//! What a simulation does or checks only on demand, because it fails today. What is mended moves to `MENDED`, and is part
//! of every seed.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// The store loses acknowledged writes, and the log ends inside a commit.
    LostWrites,
    /// Nobody is paused or failed for a budget that would have sufficed.
    NobodyStarves,
    /// The clocks of workers differ by minutes, and nobody fails for time that it has.
    SkewedClocks,
    /// A context's own timeout does not run while it waits for a slot.
    QueuedTimeouts,
    /// Runs that have expired do not come back. It holds, and is left out because it takes hours of virtual time.
    ExpiredRuns,
    /// A charge may have any key.
    ChargeKeys,
    /// An outcome holds nothing (B20).
    FinalOutcomes,
}

impl Extra {
    pub const ALL: [Extra; 7] = [
        Extra::LostWrites,
        Extra::NobodyStarves,
        Extra::SkewedClocks,
        Extra::QueuedTimeouts,
        Extra::ExpiredRuns,
        Extra::ChargeKeys,
        Extra::FinalOutcomes,
    ];

    /// Those that every seed has.
    pub const MENDED: [Extra; 6] = [
        Extra::LostWrites,
        Extra::NobodyStarves,
        Extra::SkewedClocks,
        Extra::QueuedTimeouts,
        Extra::ChargeKeys,
        Extra::FinalOutcomes,
    ];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Extra::LostWrites => "lost-writes",
            Extra::NobodyStarves => "nobody-starves",
            Extra::SkewedClocks => "skewed-clocks",
            Extra::QueuedTimeouts => "queued-timeouts",
            Extra::ExpiredRuns => "expired-runs",
            Extra::ChargeKeys => "charge-keys",
            Extra::FinalOutcomes => "final-outcomes",
        }
    }
}

/// The extras of one simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extras(BTreeSet<Extra>);

impl Default for Extras {
    fn default() -> Self {
        Extras(Extra::MENDED.into())
    }
}

impl Extras {
    pub fn has(&self, extra: Extra) -> bool {
        self.0.contains(&extra)
    }

    /// Switches one on by its name; false if there is none.
    pub fn add(&mut self, name: &str) -> bool {
        let found = Extra::ALL.into_iter().find(|extra| extra.name() == name);
        self.0.extend(found);
        found.is_some()
    }
}
