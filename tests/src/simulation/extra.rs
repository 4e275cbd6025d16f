//! Faults and checks of a simulation that run only on demand, because they fail today. A mended one
//! moves to `MENDED` and becomes part of every seed.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// The store loses acknowledged writes, and the log ends inside a commit.
    LostWrites,
    /// No context is paused or failed for a budget that would have sufficed.
    NobodyStarves,
    /// The clocks of workers differ by minutes, and no agent fails for lack of time while it has
    /// time left.
    SkewedClocks,
    /// A context's own timeout does not run while the context waits for a slot.
    QueuedTimeouts,
    /// Expired runs do not come back. The check passes, but is left out because it takes hours of
    /// virtual time.
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

    /// The extras that every seed has.
    pub const MENDED: [Extra; 6] = [
        Extra::LostWrites,
        Extra::NobodyStarves,
        Extra::SkewedClocks,
        Extra::QueuedTimeouts,
        Extra::ChargeKeys,
        Extra::FinalOutcomes,
    ];

    /// The name on the command line.
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

    /// Switches an extra on by its name. Returns false if the name is unknown.
    pub fn add(&mut self, name: &str) -> bool {
        let found = Extra::ALL.into_iter().find(|extra| extra.name() == name);
        self.0.extend(found);
        found.is_some()
    }
}
