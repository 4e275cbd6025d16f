//! Signatures of the messages to webhooks (X9), by the Standard Webhooks specification, for which
//! receivers find libraries: HMAC-SHA-256 over a message's id, time and body.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Sha256;

const PREFIX: &str = "whsec_";
/// The length of a secret in bytes that the specification allows.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that a webhook and its receiver share. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Makes a secret of random bits. The caller draws them, because this crate has no randomness.
    pub fn from_bits(bits: [u128; 2]) -> Self {
        Secret(bits.iter().flat_map(|bits| bits.to_be_bytes()).collect())
    }

    /// Derives a secret from a text, which must be impossible to guess.
    pub fn of(text: &str) -> Self {
        Secret(text.as_bytes().to_vec())
    }

    /// The secret as text: the form in the file, and the form that the receiver gets.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", BASE64_STANDARD.encode(&self.0))
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        BYTES.contains(&bytes.len()).then_some(Secret(bytes))
    }

    fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts a key of any length");
        mac.update(format!("{id}.{seconds}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Returns the value of the signature header: one signature per secret, separated by spaces.
pub fn signatures(secrets: &[Secret], id: &str, seconds: u64, body: &[u8]) -> String {
    secrets.iter().map(|secret| secret.sign(id, seconds, body)).collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Secret::parse(&text).ok_or_else(|| de::Error::custom("not a secret of a webhook"))
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.reveal().serialize(s)
    }
}

impl schemars::JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WebhookSecret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "x-check": "webhook secret"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x9_a_signature_is_the_one_of_the_specification() {
        // The example in the specification's libraries.
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed =
            signatures(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_read_back_and_a_bad_one_is_none() {
        let secret = Secret::from_bits([1, 2]);
        assert_ne!(secret, Secret::from_bits([1, 3]));
        assert_eq!(Secret::parse(&secret.reveal()), Some(secret));
        for bad in ["", "whsec_", "whsec_AAAA", "whsec_!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert!(Secret::parse(bad).is_none(), "{bad}");
        }
    }
}
