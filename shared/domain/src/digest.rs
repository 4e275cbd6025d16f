//! SHA-256 as lowercase hexadecimal digits: of files, of the content that ids are derived from, and
//! of a sequence of texts. Stored forms depend on these digits, so they must never change.

use sha2::{Digest, Sha256};

/// Bytes of a short digest: 128 bits, 32 digits. Enough for ids that no attacker chooses.
const SHORT_BYTES: usize = 16;

/// Returns all 64 digits.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns the first 32 digits.
pub fn short_sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes)[..SHORT_BYTES])
}

/// The digest of a sequence of texts. Each text is preceded by its length, so two different
/// sequences never give the same bytes.
#[derive(Debug, Default, Clone)]
pub struct SequenceDigest(Sha256);

impl SequenceDigest {
    pub fn add(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// Returns the first 32 digits.
    pub fn short(self) -> String {
        hex(&self.0.finalize()[..SHORT_BYTES])
    }
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_lowercase_hexadecimal() {
        assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(short_sha256("abc"), "ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn sequences_that_join_to_the_same_text_differ() {
        let digest = |texts: &[&str]| {
            let mut digest = SequenceDigest::default();
            texts.iter().for_each(|text| digest.add(text));
            digest.short()
        };
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }
}
