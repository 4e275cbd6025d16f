//! The hash of a lease token. The token itself proves which worker runs a context, so the event log
//! and the store, which others can read, contain only its hash.

use domain::{LeaseToken, digest};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TokenHash(String);

impl TokenHash {
    pub fn of(token: &LeaseToken) -> Self {
        TokenHash(digest::sha256(token.as_str()))
    }
}
