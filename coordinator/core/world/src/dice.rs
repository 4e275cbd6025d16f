//! Random choices of a test that depend only on a seed: the same seed gives the same choices.

use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Debug)]
pub struct Dice {
    seed: u64,
    rolls: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice { seed, rolls: 0 }
    }

    pub fn roll(&mut self) -> u64 {
        self.rolls += 1;
        let mut hasher = DefaultHasher::new();
        (self.seed, self.rolls).hash(&mut hasher);
        hasher.finish()
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("below a usize")
    }
}
