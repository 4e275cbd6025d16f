//! What a trace keeps of a lease token: its hash. The token itself proves who runs a context, so it must not stand in the
//! event log or the store, where others read it.

use domain::{LeaseToken, digest};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TokenHash(String);

impl TokenHash {
    pub fn of(token: &LeaseToken) -> Self {
        TokenHash(digest::sha256(token.as_str()))
    }
}
