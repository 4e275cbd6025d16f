//! Choices of a test that follow from a seed: with the same seed it does the same again.

use shared::random::Random;

#[derive(Debug)]
pub struct Dice(Random);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(Random::seeded(seed))
    }

    pub fn roll(&mut self) -> u64 {
        u64::try_from(self.0.bits() & u128::from(u64::MAX)).expect("64 bits")
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("below a usize")
    }
}
