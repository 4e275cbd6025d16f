//! The keys of a deployment (S3). Coordinators write a code made with a key into logs and the
//! store, and data that is read back is valid only with such a code. The code is HMAC-SHA-256, cut
//! to its first 128 bits. A key is never shown.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use domain::digest;

/// The digits of a key: 32 bytes.
const KEY_DIGITS: usize = 64;
/// The bytes of a code.
const CODE_BYTES: usize = 16;
/// The most keys: the one that signs, and earlier ones.
const MAX_KEYS: usize = 8;
/// The number of rejected messages that are remembered, so that each is reported once.
const REMEMBERED: usize = 10_000;
/// The most rejected messages that wait to be reported.
const UNTOLD: usize = 1_000;
/// The number of waiting ones that are logged as warnings; the rest are logged at debug level.
const LOGGED: usize = 20;

const HINT: &str = "a key is 64 hexadecimal digits on a line of its own; `openssl rand -hex 32` makes one";

/// The reasons why a text is not a list of keys. They never contain a part of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problems}\n\nhint: {HINT}")]
pub struct BadKeys {
    problems: String,
}

/// The first key signs, and all keys verify. Clones share the same keys.
#[derive(Clone)]
pub struct Keys(Arc<Inner>);

struct Inner {
    keys: Vec<Key>,
    accepts_unsigned: bool,
    refusals: Mutex<Refusals>,
}

#[derive(Default)]
struct Refusals {
    count: u64,
    seen: BTreeSet<(String, u64)>,
    untold: Vec<ForgedMessage>,
}

/// One key. Its id identifies it without revealing it.
#[derive(Clone)]
pub struct Key {
    id: String,
    mac: Hmac<Sha256>,
}

/// A message or a part of the store that was read back and is not authentic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgedMessage {
    /// A subject, or a part of the store.
    pub place: String,
    /// The sequence of a message, or the version of a stored run.
    pub number: u64,
    pub why: Why,
}

/// The reason why a message or a stored value is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Unsigned,
    UnknownKey,
    /// The code was made for another key, place or content.
    WrongCode,
    /// It is an earlier message, stored again after later ones.
    Replayed,
}

impl Why {
    /// True if a coordinator with other keys may have written the data. Such data may be right, so
    /// nothing may take its place.
    pub fn is_foreign(self) -> bool {
        match self {
            Why::Unsigned | Why::UnknownKey => true,
            Why::WrongCode | Why::Replayed => false,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Why::Unsigned => "it carries no code",
            Why::UnknownKey => "its code was made with a key that is not known here",
            Why::WrongCode => "its code does not fit its place and content",
            Why::Replayed => "it is an earlier message that was stored again",
        })
    }
}

impl Keys {
    /// Parses a text with a key on each line. Empty lines and lines that begin with `#` are
    /// skipped.
    pub fn parse(text: &str) -> Result<Self, BadKeys> {
        let mut keys: Vec<Key> = Vec::new();
        let mut problems = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Key::parse(line) {
                Ok(key) if keys.iter().any(|other| other.id == key.id) => {
                    problems.push(format!("line {number}: the key is there already"));
                }
                Ok(key) => keys.push(key),
                Err(reason) => problems.push(format!("line {number}: {reason}")),
            }
        }
        match keys.len() {
            0 if problems.is_empty() => problems.push("there is no key".into()),
            0..=MAX_KEYS => {}
            many => problems.push(format!("there are {many} keys, more than the {MAX_KEYS} allowed")),
        }
        if !problems.is_empty() {
            return Err(BadKeys { problems: problems.join("\n") });
        }
        Ok(Keys(Arc::new(Inner { keys, accepts_unsigned: false, refusals: Mutex::default() })))
    }

    /// The same keys, which also accept data without a code. For a deployment that begins to use
    /// keys.
    #[must_use]
    pub fn accepting_unsigned(self) -> Self {
        Keys(Arc::new(Inner {
            keys: self.0.keys.clone(),
            accepts_unsigned: true,
            refusals: Mutex::default(),
        }))
    }

    pub fn accepts_unsigned(&self) -> bool {
        self.0.accepts_unsigned
    }

    /// The key that signs.
    pub fn signing(&self) -> &Key {
        &self.0.keys[0]
    }

    /// The ids of all keys; the signing key comes first.
    pub fn ids(&self) -> Vec<String> {
        self.0.keys.iter().map(|key| key.id.clone()).collect()
    }

    /// The key with this id.
    pub fn find(&self, id: &str) -> Option<&Key> {
        self.0.keys.iter().find(|key| key.id == id)
    }

    /// Checks a code that [`Key::sign`] made of the same parts. `code`: none for data without a
    /// code.
    pub fn check(&self, code: Option<&str>, of: &str, parts: &[&[u8]]) -> Result<(), Why> {
        let Some(code) = code else {
            return if self.0.accepts_unsigned { Ok(()) } else { Err(Why::Unsigned) };
        };
        let (id, digits) = code.split_once(':').ok_or(Why::WrongCode)?;
        let key = self.find(id).ok_or(Why::UnknownKey)?;
        let code = bytes::<CODE_BYTES>(digits).ok_or(Why::WrongCode)?;
        // In constant time: the duration must not reveal how much of a guess was right.
        key.over(of, parts).verify_truncated_left(&code).map_err(|_| Why::WrongCode)
    }

    /// Notes a rejected message. It is logged, counted and reported once, however often it is read.
    pub fn refuse(&self, place: &str, number: u64, why: Why) {
        let mut refusals = self.refusals();
        if refusals.seen.len() >= REMEMBERED {
            refusals.seen.clear();
        }
        if !refusals.seen.insert((place.to_owned(), number)) {
            return;
        }
        refusals.count += 1;
        if refusals.untold.len() < UNTOLD {
            refusals.untold.push(ForgedMessage { place: place.to_owned(), number, why });
        }
        let is_one_of_many = refusals.untold.len() > LOGGED;
        drop(refusals);
        if is_one_of_many {
            tracing::debug!(place, number, reason = %why, "more stored data is not authentic; it is ignored");
            return;
        }
        tracing::warn!(place, number, reason = %why, "stored data is not authentic; it is ignored");
    }

    /// The number of rejections since the process started.
    pub fn refused(&self) -> u64 {
        self.refusals().count
    }

    /// The rejections since the last call.
    pub fn take_untold(&self) -> Vec<ForgedMessage> {
        std::mem::take(&mut self.refusals().untold)
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    fn parse(line: &str) -> Result<Self, String> {
        let Some(secret) = bytes::<{ KEY_DIGITS / 2 }>(line) else {
            let count = line.chars().count();
            return Err(if count == KEY_DIGITS {
                "it has a character that is not a hexadecimal digit".to_owned()
            } else {
                format!("it has {count} characters, and a key has {KEY_DIGITS}")
            });
        };
        let mac = Hmac::new_from_slice(&secret).expect("HMAC accepts a key of any length");
        let mut key = Key { id: String::new(), mac };
        // The id is made from the key's code of a constant, which reveals nothing of the key.
        key.id = digest::hex(&key.tag("id", &[]).to_be_bytes()[..4]);
        Ok(key)
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// A code of the parts, with the key's id. `of` is their kind: a code of one kind is invalid
    /// for another.
    pub fn sign(&self, of: &str, parts: &[&[u8]]) -> String {
        format!("{}:{}", self.id, digest::hex(&self.tag(of, parts).to_be_bytes()))
    }

    /// The code without the key's id, as a number.
    pub fn tag(&self, of: &str, parts: &[&[u8]]) -> u128 {
        let whole = self.over(of, parts).finalize().into_bytes();
        let code: [u8; CODE_BYTES] = whole[..CODE_BYTES].try_into().expect("a digest has 32 bytes");
        u128::from_be_bytes(code)
    }

    /// Each part is preceded by its length, so that different lists of parts never give the same
    /// bytes.
    fn over(&self, of: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        for part in [of.as_bytes()].iter().chain(parts) {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} keys", self.0.keys.len())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "key {}", self.id)
    }
}

/// Bytes from hexadecimal digits.
fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0101010101010101010101010101010101010101010101010101010101010101";
    const OTHER: &str = "f101010101010101010101010101010101010101010101010101010101010102";

    fn keys(text: &str) -> Keys {
        Keys::parse(text).unwrap()
    }

    #[test]
    fn s3_the_first_key_signs_and_all_verify() {
        let (one, both) = (keys(ONE), keys(&format!("# rotated\n{OTHER}\n\n{ONE}\n")));
        let code = one.signing().sign("test", &[b"a", b"b"]);
        assert_eq!(both.check(Some(&code), "test", &[b"a", b"b"]), Ok(()));
        let code = both.signing().sign("test", &[b"a", b"b"]);
        assert_eq!(one.check(Some(&code), "test", &[b"a", b"b"]), Err(Why::UnknownKey));
    }

    #[test]
    fn s3_a_code_holds_for_its_parts_alone() {
        let keys = keys(ONE);
        let code = keys.signing().sign("test", &[b"ab", b"c"]);
        assert_eq!(keys.check(Some(&code), "test", &[b"ab", b"c"]), Ok(()));
        let wrong = Err(Why::WrongCode);
        assert_eq!(keys.check(Some(&code), "other", &[b"ab", b"c"]), wrong);
        assert_eq!(keys.check(Some(&code), "test", &[b"a", b"bc"]), wrong);
        assert_eq!(keys.check(Some(&code), "test", &[b"ab"]), wrong);
        for text in ["", ":", "1", &code[..code.len() - 2], &format!("{code}00"), &code.replace(':', "")] {
            assert!(keys.check(Some(text), "test", &[b"ab", b"c"]).is_err(), "{text:?}");
        }
        assert_eq!(keys.check(None, "test", &[]), Err(Why::Unsigned));
        let lenient = keys.clone().accepting_unsigned();
        assert_eq!(lenient.check(None, "test", &[]), Ok(()));
        assert_eq!(
            lenient.check(Some(&code), "other", &[b"ab", b"c"]),
            wrong,
            "a wrong code is never accepted"
        );
    }

    #[test]
    fn s3_a_code_is_the_standards_of_the_key() {
        // RFC 4231 has no key of 32 bytes; this was made with `openssl dgst -sha256 -mac HMAC`.
        let tag = keys(ONE).signing().tag("x", &[]);
        assert_eq!(format!("{tag:032x}"), "e29dd9bf1f6eaabe56fdcc0733b71a3a");
    }

    #[test]
    fn s3_all_mistakes_are_named_and_no_key_is_shown() {
        let (short, odd) = (&ONE[..10], ONE.replace("01010101", "zz010101"));
        let text = format!("{ONE}\n{short}\n{odd}\n{ONE}\n");
        let error = Keys::parse(&text).unwrap_err().to_string();
        for part in ["line 2: it has 10 characters", "line 3: it has a character", "line 4: the key is there"]
        {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("0101"), "{error}");
        assert!(Keys::parse("# none\n").unwrap_err().to_string().starts_with("there is no key"));
        let many: Vec<String> = (0..9).map(|n| format!("{n}{}", &ONE[1..])).collect();
        assert!(Keys::parse(&many.join("\n")).unwrap_err().to_string().contains("more than the 8 allowed"));
        let shown = format!("{:?} {:?}", keys(ONE), keys(ONE).signing());
        assert!(!shown.contains("0101"), "{shown}");
    }

    #[test]
    fn s3_a_refusal_is_counted_and_logged_once() {
        let keys = keys(ONE);
        for number in [1, 2, 1] {
            keys.refuse("agent.event", number, Why::Unsigned);
        }
        assert_eq!(keys.refused(), 2);
        let told: Vec<u64> = keys.take_untold().iter().map(|refused| refused.number).collect();
        assert_eq!((told, keys.take_untold().len()), (vec![1, 2], 0));
    }
}
