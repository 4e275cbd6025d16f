//! The tokens that one model call used. Prices are elsewhere.

use serde::{Deserialize, Serialize};

/// The usage that a provider reports. The input includes tokens read from the cache and tokens
/// written to it; the output includes reasoning tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub cache_write_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_tokens: u64,
}
