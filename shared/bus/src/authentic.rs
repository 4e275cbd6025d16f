//! Codes of messages that are read back (S3): which logs carry them, and what they bind. A code binds a message to its
//! subject, with the namespace, and to its content. In logs whose last message counts, it also binds it to the message before
//! it: so none can be stored again behind those that came after it.

use std::collections::HashMap;

use domain::{
    digest,
    span::Headers,
    subject::{Namespace, Subject},
};

use super::message::{Outgoing, StoredMessage};
use crate::keys::{Keys, Why};

/// The header with the code: the id of the key, the code, and, where it is bound, the sequence of the message before it.
const HEADER: &str = "Trellis-Mac";
/// What the codes are of.
const MESSAGE: &str = "message";
/// The header with the SHA-256 of a payload that is too large for a message. The code is then of this: so it can be checked
/// before the payload is fetched.
const DIGEST: &str = "Trellis-Digest";
const LARGE_MESSAGE: &str = "large message";
const ID: &str = "message id";

/// How the messages of a subject are authenticated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Not at all: nobody rebuilds anything from them, or their writers have no keys.
    Unsigned,
    /// They may come twice, and in any order.
    Signed,
    /// The last one counts.
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

/// Signs a message, if those of its subject are signed. One that was read and is stored again gets another code. `fits`: it
/// goes with its payload.
pub(super) fn sign(keys: &Keys, namespace: &Namespace, message: &mut Outgoing, fits: bool) {
    let after = match kind(&message.subject) {
        Kind::Unsigned => return,
        Kind::Signed => None,
        Kind::Chained => Some(message.expect_last.unwrap_or_default()),
    };
    let subject = namespace.subject(&message.subject);
    if let (Kind::Signed, Some(id)) = (kind(&message.subject), &mut message.id) {
        // Whoever knows an id before its message is stored has only to store something under it: the server would take the
        // message for the same.
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

/// The id of the key that a message says it was signed with.
pub(super) fn signer(headers: &Headers) -> Option<String> {
    headers.get(HEADER)?.split_once(':').map(|(key, _)| key.to_owned())
}

/// Whether a message that is too large for the server, and says where its payload is, was signed for its place: before the
/// payload is fetched. Whoever fetches it for the others would fetch what a stranger has put there.
pub(super) fn may_fetch(keys: &Keys, namespace: &Namespace, subject: &Subject, headers: &Headers) -> bool {
    let verifier = Verifier::new(keys.clone(), namespace.clone());
    let is_unsigned =
        kind(subject) == Kind::Unsigned || keys.accepts_unsigned() && !headers.contains_key(HEADER);
    is_unsigned || headers.contains_key(DIGEST) && verifier.code(subject, headers, b"").is_ok()
}

/// Reads a log, oldest message first.
#[derive(Debug)]
pub(super) struct Verifier {
    keys: Keys,
    namespace: Namespace,
    /// The last authentic message of each subject whose last one counts.
    last: HashMap<Subject, Last>,
}

/// Where a message is, and which one it was signed to stand behind. Whoever signs one has seen all before it: so of two that
/// are authentic, the one that stands behind the later was signed later, wherever they are stored.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    sequence: u64,
    behind: u64,
}

impl Verifier {
    pub(super) fn new(keys: Keys, namespace: Namespace) -> Self {
        Verifier { keys, namespace, last: HashMap::new() }
    }

    /// Whether a message counts. One that does not is noted.
    pub(super) fn takes(&mut self, stored: &StoredMessage) -> bool {
        self.judge(stored).is_ok()
    }

    /// The same, with the reason.
    pub(super) fn judge(&mut self, stored: &StoredMessage) -> Result<(), Why> {
        self.weigh(stored).map_err(|(why, _)| {
            self.refuse(stored, why);
            why
        })
    }

    /// The same, without noting it. If it seems to have been stored again: the sequence that it was stored behind.
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

    /// It counts, and is the last of its subject. A sequence that went back is of a log that was made anew.
    pub(super) fn took(&mut self, stored: &StoredMessage, after: u64) {
        let last = self.last.entry(stored.subject.clone()).or_default();
        let behind = if stored.sequence > last.sequence { last.behind.max(after) } else { after };
        *last = Last { sequence: stored.sequence, behind };
    }

    pub(super) fn refuse(&self, stored: &StoredMessage, why: Why) {
        self.keys.refuse(&self.namespace.subject(&stored.subject), stored.sequence, why);
    }

    /// Checks the code of a message. Returns the sequence that it was stored behind, where that counts.
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

    /// Checks the code that is in the headers: of the payload, or of its digest, which is there too.
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
