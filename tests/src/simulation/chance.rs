//! The choices of a simulation, all derived from one seed.

use std::time::Duration;

use host::random::Random;

#[derive(Debug, Clone)]
pub(crate) struct Chance(Random);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance(Random::seeded(seed))
    }

    /// An independent sequence. Its choices do not depend on later calls of this one.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.number())
    }

    /// A source of random numbers for a process.
    pub(crate) fn source(&self) -> Random {
        Random::seeded(self.number())
    }

    pub(crate) fn bits(&self) -> u128 {
        self.0.bits()
    }

    fn number(&self) -> u64 {
        u64::try_from(self.0.bits() >> 64).expect("64 bits")
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low + 1)
    }

    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    pub(crate) fn pick<'a, T>(&self, among: &'a [T]) -> &'a T {
        let last = among.len() as u64 - 1;
        &among[usize::try_from(self.between(0, last)).expect("an index")]
    }

    pub(crate) fn millis(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }
}
