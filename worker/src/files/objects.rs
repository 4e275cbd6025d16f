//! The object store: what is too large for a message. The names of a context's objects begin with its own
//! prefix: by that they are found and removed.

use bytes::Bytes;
use shared::{
    bus::{Bus, Error},
    digest::sha256,
    wire::{Failure, FailureKind, ObjectReference},
};

use crate::{attempt::Attempt, retry::Backoff};

/// A longer name does not fit the subject a server makes of it.
const MAX_PATH_BYTES: usize = 512;

/// What the names of an attempt's objects begin with: its context's prefix and its own number. An attempt
/// that was replaced without noticing overwrites nothing of its successor's.
pub(super) fn prefix(attempt: &Attempt) -> String {
    let context = ObjectReference::prefix(attempt.trace_id(), attempt.child_id());
    format!("{context}{}.", attempt.number())
}

/// Stores a file of this attempt, by its path beneath `outputs/`. If it can't be stored, the attempt ends.
pub(crate) async fn put_output(attempt: &Attempt, path: &str, bytes: Vec<u8>) -> ObjectReference {
    let prefix = prefix(attempt);
    let name = match path.len() {
        0..=MAX_PATH_BYTES => format!("{prefix}outputs/{path}"),
        _ => format!("{prefix}outputs/{}", sha256(path)),
    };
    match put(&attempt.bus, &name, bytes.into()).await {
        Ok(reference) => reference,
        Err(failure) => attempt.give_up(failure).await,
    }
}

/// Stores an object, or says how the attempt fails. Storing it twice under one name changes nothing.
pub(super) async fn put(bus: &Bus, name: &str, bytes: Bytes) -> Result<ObjectReference, Failure> {
    let (size_bytes, sha256) = (bytes.len() as u64, sha256(&bytes));
    let mut backoff = Backoff::default();
    while let Err(error) = bus.put_object(name, bytes.clone()).await {
        tracing::warn!(%error, name, "could not store an object yet");
        if lasts(&error) || backoff.wait_bounded().await.is_err() {
            return Err(not_stored(name, &error));
        }
    }
    Ok(ObjectReference { object: name.to_owned(), size_bytes, sha256 })
}

/// Whether the same error would come however often it is tried.
fn lasts(error: &Error) -> bool {
    match error {
        Error::TooLarge { .. } => true,
        Error::Connect { .. } | Error::TooOld { .. } | Error::Mismatch { .. } | Error::Failed { .. } => false,
    }
}

fn not_stored(name: &str, error: &Error) -> Failure {
    let lasts = lasts(error);
    let kind = if lasts { FailureKind::LimitExceeded } else { FailureKind::Agent };
    Failure { kind, message: format!("the object `{name}` could not be stored: {error}"), retryable: !lasts }
}

/// Fetches an object. An error is final: the object is gone, differs from what was stored, or could not be
/// fetched within the retry limit.
pub(crate) async fn get(bus: &Bus, reference: &ObjectReference) -> Result<Bytes, String> {
    let name = &reference.object;
    let mut backoff = Backoff::default();
    let found = loop {
        match bus.get_object(name).await {
            Ok(found) => break found,
            Err(error) => {
                tracing::warn!(%error, name, "could not fetch an object yet");
                if lasts(&error) || backoff.wait_bounded().await.is_err() {
                    return Err(format!("the object `{name}` can't be fetched: {error}"));
                }
            }
        }
    };
    let bytes = found.ok_or_else(|| format!("there is no object `{name}`"))?;
    if sha256(&bytes) != reference.sha256 {
        return Err(format!("the object `{name}` differs from what was stored"));
    }
    Ok(bytes)
}
