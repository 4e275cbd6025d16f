//! The code of an outbox, stored in its text: outboxes are added and cleared without a change of
//! the trace.

use bus::keys::{Keys, Why};
use domain::TraceId;

use crate::store::OutboxKey;

/// The kind of data that these codes sign.
const OUTBOX: &str = "outbox";
/// The code is the first member of the object; a reader of the other members ignores it.
const BEGIN: &str = r#"{"mac":""#;
const END: &str = r#"","#;

/// Adds the code to the text of an outbox.
pub(super) fn seal(keys: &Keys, namespace: &str, id: TraceId, key: OutboxKey, text: &mut String) {
    let code = over(namespace, id, key, text, |parts| keys.signing().sign(OUTBOX, parts));
    if let Some(rest) = text.strip_prefix('{') {
        *text = format!("{BEGIN}{code}{END}{rest}");
    }
}

/// Checks the code and removes it from the text.
pub(super) fn open(
    keys: &Keys,
    namespace: &str,
    id: TraceId,
    key: OutboxKey,
    text: &mut String,
) -> Result<(), Why> {
    let code = strip(text);
    over(namespace, id, key, text, |parts| keys.check(code.as_deref(), OUTBOX, parts))
}

/// Removes the code from the text.
pub(super) fn strip(text: &mut String) -> Option<String> {
    let (code, rest) = text.strip_prefix(BEGIN)?.split_once(END)?;
    let (code, rest) = (code.to_owned(), format!("{{{rest}"));
    *text = rest;
    Some(code)
}

fn over<T>(namespace: &str, id: TraceId, key: OutboxKey, text: &str, then: impl FnOnce(&[&[u8]]) -> T) -> T {
    let (id, version, made) = (id.as_u128().to_be_bytes(), key.version.to_be_bytes(), key.made.to_be_bytes());
    then(&[namespace.as_bytes(), &id, &version, &made, text.as_bytes()])
}
