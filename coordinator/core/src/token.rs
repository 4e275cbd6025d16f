//! What a trace keeps of a lease token: its hash. The token itself proves who runs a context, so it must not stand in the
//! event log or the store, where others read it.

use domain::{LeaseToken, digest};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
pub struct TokenHash(String);

impl TokenHash {
    pub fn of(token: &LeaseToken) -> Self {
        TokenHash(digest::sha256(token.as_str()))
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    /// Traces of earlier versions have the token itself, which is shorter than a hash.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(TokenHash(if is_hash { text } else { digest::sha256(text) }))
    }
}
