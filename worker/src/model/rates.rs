//! Rates of a model: what its tokens cost, by the length of what is sent.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tier {
    /// The fewest input tokens a call has at these rates.
    pub(super) from: u64,
    pub(super) rates: Rates,
}

/// In nano-dollars for a million tokens, and for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) cache_write: u64,
    pub(super) output: u64,
    pub(super) call: u64,
}
