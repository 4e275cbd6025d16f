//! Codes of messages that are read back (S3): which logs carry them, and what each code binds.
//!
//! A code binds a message to its content and to its subject, with the namespace. In logs where the
//! last message of a subject is the current state, the code also binds the message to its
//! predecessor. So an earlier message can't be stored again after later ones.

use std::collections::HashMap;

use domain::{
    digest,
    span::Headers,
    subject::{Namespace, Subject},
};

use super::message::{Outgoing, StoredMessage};
use crate::keys::{Keys, Why};

/// The header with the code: the id of the key, the code, and for chained subjects the sequence of
/// the message before it.
const HEADER: &str = "Trellis-Mac";
/// The kinds of content that a code is made of: `MESSAGE`, `LARGE_MESSAGE` and `ID`.
const MESSAGE: &str = "message";
/// The header with the SHA-256 of a payload that is too large for a message. The code is then made
/// of this digest, so it can be checked before the payload is fetched.
const DIGEST: &str = "Trellis-Digest";
const LARGE_MESSAGE: &str = "large message";
const ID: &str = "message id";

/// How the messages of a subject are authenticated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No code: no state is rebuilt from these messages, or their writers have no keys.
    Unsigned,
    /// Messages may arrive twice and in any order.
    Signed,
    /// The last message of the subject is the current state.
    Chained,
}

fn kind(subject: &Subject) -> Kind {
    match subject {
        Subject::Event(..) | Subject::Outcome(..) | Subject::Question(..) | Subject::Audit(_) => Kind::Signed,
        Subject::Profile(_) | Subject::Schedule(_) | Subject::Ticks(_) | Subject::Kept(_) => Kind::Chained,
        Subject::Spawn
        | Subject::Graph
        | Subject::Cancel
        | Subject::Input
        | Subject::Submit
        | Subject::Steer
        | Subject::Query(_)
        | Subject::Admin(_)
        | Subject::Worker
        | Subject::Execute(_)
        | Subject::Ask(..)
        | Subject::Stop(_)
        | Subject::Result(..)
        | Subject::Cost(..)
        | Subject::History(..)
        | Subject::Stream(..)
        | Subject::Span(..)
        | Subject::Webhook(..)
        | Subject::Drain
        | Subject::Dead(_) => Kind::Unsigned,
    }
}

/// Signs a message, if its subject is signed. A message that was read and is stored again gets a
/// new code. `fits`: the payload is sent within the message.
pub(super) fn sign(keys: &Keys, namespace: &Namespace, message: &mut Outgoing, fits: bool) {
    let after = match kind(&message.subject) {
        Kind::Unsigned => return,
        Kind::Signed => None,
        Kind::Chained => Some(message.expect_last.unwrap_or_default()),
    };
    let subject = namespace.subject(&message.subject);
    if let (Kind::Signed, Some(id)) = (kind(&message.subject), &mut message.id) {
        // An attacker that knows an id in advance could store any message under it; the server
        // would then drop the real message as a duplicate. So the id carries a code that only a
        // key's owner can compute.
        let code = keys.signing().tag(ID, &[subject.as_bytes(), id.as_bytes()]);
        *id = format!("{id}.{code:032x}");
    }
    let place = after.map(|after| after.to_string()).unwrap_or_default();
    message.headers.remove(DIGEST);
    let (of, content) = if fits {
        (MESSAGE, message.payload.clone())
    } else {
        let digest = digest::sha256(&message.payload);
        message.headers.insert(DIGEST.to_owned(), digest.clone());
        (LARGE_MESSAGE, digest.into())
    };
    let code = keys.signing().sign(of, &[subject.as_bytes(), place.as_bytes(), &content]);
    let header = after.map_or(code.clone(), |after| format!("{code}:{after}"));
    message.headers.insert(HEADER.to_owned(), header);
}

/// The id of the key in a message's header, with which it claims to be signed.
pub(super) fn signer(headers: &Headers) -> Option<String> {
    headers.get(HEADER)?.split_once(':').map(|(key, _)| key.to_owned())
}

/// Returns true if a message whose payload is stored as an object may fetch it: it was signed for
/// its subject, by the digest of the payload. The check comes before the fetch, so that no payload
/// of an attacker is fetched.
pub(super) fn may_fetch(keys: &Keys, namespace: &Namespace, subject: &Subject, headers: &Headers) -> bool {
    let verifier = Verifier::new(keys.clone(), namespace.clone());
    let is_unsigned =
        kind(subject) == Kind::Unsigned || keys.accepts_unsigned() && !headers.contains_key(HEADER);
    is_unsigned || headers.contains_key(DIGEST) && verifier.code(subject, headers, b"").is_ok()
}

/// Verifies the messages of a log, which it receives oldest first.
#[derive(Debug)]
pub(super) struct Verifier {
    keys: Keys,
    namespace: Namespace,
    /// The last valid message of each chained subject.
    last: HashMap<Subject, Last>,
}

/// The sequence of a message, and the sequence that it was signed to follow. A signer has seen all
/// messages before its own. So of two valid messages, the one that follows the later sequence was
/// signed later, wherever each is stored.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    sequence: u64,
    behind: u64,
}

impl Verifier {
    pub(super) fn new(keys: Keys, namespace: Namespace) -> Self {
        Verifier { keys, namespace, last: HashMap::new() }
    }

    /// Returns true if a message is valid. An invalid message is noted.
    pub(super) fn takes(&mut self, stored: &StoredMessage) -> bool {
        self.judge(stored).is_ok()
    }

    /// Like `takes`, with the reason.
    pub(super) fn judge(&mut self, stored: &StoredMessage) -> Result<(), Why> {
        self.weigh(stored).map_err(|(why, _)| {
            self.refuse(stored, why);
            why
        })
    }

    /// Like `judge`, without noting the message. If the message seems to be an earlier one that was
    /// stored again, the error has the sequence that it was signed to follow.
    pub(super) fn weigh(&mut self, stored: &StoredMessage) -> Result<(), (Why, Option<u64>)> {
        let Some(after) = self.check(stored).map_err(|why| (why, None))? else { return Ok(()) };
        if after >= stored.sequence {
            // It was signed for another log.
            return Err((Why::Replayed, None));
        }
        let last = self.last.get(&stored.subject).copied().unwrap_or_default();
        if after < last.sequence && after <= last.behind && stored.sequence > last.sequence {
            return Err((Why::Replayed, Some(after)));
        }
        self.took(stored, after);
        Ok(())
    }

    /// Records a message as valid and as the last of its subject. A sequence that went back belongs
    /// to a log that was recreated.
    pub(super) fn took(&mut self, stored: &StoredMessage, after: u64) {
        let last = self.last.entry(stored.subject.clone()).or_default();
        let behind = if stored.sequence > last.sequence { last.behind.max(after) } else { after };
        *last = Last { sequence: stored.sequence, behind };
    }

    pub(super) fn refuse(&self, stored: &StoredMessage, why: Why) {
        self.keys.refuse(&self.namespace.subject(&stored.subject), stored.sequence, why);
    }

    /// Checks the code of a message. Returns the sequence that the message was signed to follow,
    /// for chained subjects.
    pub(super) fn check(&self, stored: &StoredMessage) -> Result<Option<u64>, Why> {
        if kind(&stored.subject) == Kind::Unsigned {
            return Ok(None);
        }
        let after = self.code(&stored.subject, &stored.headers, &stored.payload)?;
        match stored.headers.get(DIGEST) {
            Some(digest) if *digest != digest::sha256(&stored.payload) => Err(Why::WrongCode),
            Some(_) | None => Ok(after),
        }
    }

    /// Checks the code in the headers against the payload or, if the headers have one, the digest.
    fn code(&self, subject: &Subject, headers: &Headers, payload: &[u8]) -> Result<Option<u64>, Why> {
        let name = self.namespace.subject(subject);
        let header = headers.get(HEADER).map(String::as_str);
        let (code, after) = match (kind(subject), header) {
            (Kind::Chained, Some(header)) => {
                let (code, after) = header.rsplit_once(':').ok_or(Why::WrongCode)?;
                (Some(code), Some(after.parse::<u64>().map_err(|_| Why::WrongCode)?))
            }
            (Kind::Unsigned | Kind::Signed | Kind::Chained, header) => (header, None),
        };
        let place = after.map(|after| after.to_string()).unwrap_or_default();
        let (of, content) =
            headers.get(DIGEST).map_or((MESSAGE, payload), |digest| (LARGE_MESSAGE, digest.as_bytes()));
        self.keys.check(code, of, &[name.as_bytes(), place.as_bytes(), content])?;
        Ok(after)
    }
}
