//! The source of random numbers of a process: the operating system, or a seed, so that a simulation
//! can be repeated. Every value that must be unguessable comes from the system.

use std::sync::{Arc, Mutex, PoisonError};

use uuid::{Builder, Uuid};

/// A source of random numbers. Clones of a seeded source share its sequence.
#[derive(Debug, Clone, Default)]
pub enum Random {
    #[default]
    System,
    Seeded(Arc<Mutex<u64>>),
}

impl Random {
    /// The same numbers for the same seed. For simulations only.
    pub fn seeded(seed: u64) -> Self {
        Random::Seeded(Arc::new(Mutex::new(seed)))
    }

    /// 122 random bits and a few fixed ones. A seeded source returns 128 random bits.
    pub fn bits(&self) -> u128 {
        match self {
            Random::System => Uuid::new_v4().as_u128(),
            Random::Seeded(state) => {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                u128::from(next(&mut state)) << 64 | u128::from(next(&mut state))
            }
        }
    }

    /// A new unique id. Its first digits are random too, so a few of them are enough to name a run.
    pub fn id(&self) -> Uuid {
        Builder::from_random_bytes(self.bits().to_be_bytes()).into_uuid()
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_the_system_others() {
        let numbers = |random: Random| -> [u128; 3] { std::array::from_fn(|_| random.bits()) };
        assert_eq!(numbers(Random::seeded(7)), numbers(Random::seeded(7)));
        assert_ne!(numbers(Random::seeded(7)), numbers(Random::seeded(8)));
        assert_ne!(numbers(Random::System), numbers(Random::System));
        let random = Random::seeded(1);
        let (first, second) = (random.id(), random.id());
        assert!(first != second && first.get_version_num() == 4);
    }
}
