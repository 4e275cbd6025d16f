//! The partition of a trace. One coordinator at a time owns a partition.

use std::fmt;

use crate::id::TraceId;

/// The partition of a trace. Asks and reports about the trace go to it. Workers send it back
/// unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

impl Partition {
    pub const MAX_COUNT: u16 = 1024;

    pub fn new(number: u16) -> Option<Self> {
        (number < Self::MAX_COUNT).then_some(Partition(number))
    }

    /// Returns the partitions of a deployment that has `count` of them.
    pub fn all(count: u16) -> impl Iterator<Item = Partition> {
        (0..count.min(Self::MAX_COUNT)).map(Partition)
    }

    pub fn number(self) -> u16 {
        self.0
    }

    /// Parses a partition's name, in the form that `Display` writes.
    pub fn parse(name: &str) -> Option<Self> {
        let partition = Partition::new(name.strip_prefix('p')?.parse().ok()?)?;
        (partition.to_string() == name).then_some(partition)
    }

    /// Returns the partition of a trace among `count`. It is the same on every machine and in every
    /// version.
    pub fn of(trace: TraceId, count: u16) -> Self {
        let id = trace.as_u128();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both halves are meant, and a remainder below 1024 fits"
        )]
        let mixed = ((id >> 64) as u64 ^ id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let count = u64::from(count.clamp(1, Self::MAX_COUNT));
        Partition(u16::try_from(mixed % count).expect("below 1024"))
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:02}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_spread_and_never_move() {
        let traces = (1..=6400u128).map(|n| TraceId::from_u128((n << 64) | (n * 7919)).unwrap());
        let mut counts = [0; 64];
        traces.for_each(|trace| counts[usize::from(Partition::of(trace, 64).0)] += 1);
        assert!(counts.iter().all(|count| (40..=180).contains(count)), "{counts:?}");
        let fixed = TraceId::from_u128(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c).unwrap();
        assert_eq!(Partition::of(fixed, 64).to_string(), "p32", "the partition of a trace must never change");
    }
}
