//! Rates of a model: the prices of its tokens, by the number of input tokens.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tier {
    /// The rates apply to calls with at least this many input tokens.
    pub(super) from: u64,
    pub(super) rates: Rates,
}

/// In nano-dollars per million tokens; `call` in nano-dollars per call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) cache_write: u64,
    pub(super) output: u64,
    pub(super) call: u64,
}
