//! The object store, for data that is too large for a message. The names of a context's objects
//! begin with the context's prefix, by which they are found and removed.

use bus::{Bus, Error};
use bytes::Bytes;
use domain::{
    digest::sha256,
    wire::{Failure, FailureKind, ObjectReference},
};

use crate::{attempt::Attempt, retry::Backoff};

/// A longer name does not fit into the subject that the server derives from it.
const MAX_PATH_BYTES: usize = 512;

/// The prefix of an attempt's objects: its context's prefix and its own number. The number keeps an
/// attempt that has not noticed its replacement from overwriting objects of its successor.
pub(super) fn prefix(attempt: &Attempt) -> String {
    let context = ObjectReference::prefix(attempt.trace_id(), attempt.child_id());
    format!("{context}{}.", attempt.number())
}

/// Stores a file of this attempt, by its path beneath `outputs/`. If it can't be stored, the
/// attempt ends.
pub(crate) async fn put_output(attempt: &Attempt, path: &str, bytes: Vec<u8>) -> ObjectReference {
    put_file(attempt, "outputs", path, bytes).await
}

/// Like [`put_output`], beneath another directory. A later output with the same path does not
/// overwrite these objects.
pub(crate) async fn put_file(
    attempt: &Attempt,
    directory: &str,
    path: &str,
    bytes: Vec<u8>,
) -> ObjectReference {
    let (prefix, path) = (prefix(attempt), attempt.redactor.text(path.to_owned()));
    let name = match path.len() {
        0..=MAX_PATH_BYTES => format!("{prefix}{directory}/{path}"),
        _ => format!("{prefix}{directory}/{}", sha256(&path)),
    };
    let bytes = attempt.redactor.bytes(bytes).into_owned();
    match put(&attempt.bus, &name, bytes.into()).await {
        Ok(reference) => reference,
        Err(failure) => attempt.give_up(failure).await,
    }
}

/// Stores an object, or returns the failure of the attempt. Storing it twice under one name changes
/// nothing.
pub(super) async fn put(bus: &Bus, name: &str, bytes: Bytes) -> Result<ObjectReference, Failure> {
    let (size_bytes, sha256) = (bytes.len() as u64, sha256(&bytes));
    let mut backoff = Backoff::default();
    while let Err(error) = bus.put_object(name, bytes.clone()).await {
        tracing::debug!(%error, name, "could not store an object yet");
        if is_permanent(&error) || backoff.wait_bounded().await.is_err() {
            return Err(not_stored(name, &error));
        }
    }
    Ok(ObjectReference { object: name.to_owned(), size_bytes, sha256 })
}

/// Returns true if every retry would fail with the same error.
fn is_permanent(error: &Error) -> bool {
    match error {
        Error::TooLarge { .. } | Error::Denied(_) => true,
        Error::Connect { .. }
        | Error::TooOld { .. }
        | Error::Mismatch { .. }
        | Error::Unreached { .. }
        | Error::NoRoom { .. }
        | Error::Lower { .. }
        | Error::Failed { .. } => false,
    }
}

fn not_stored(name: &str, error: &Error) -> Failure {
    let is_permanent = is_permanent(error);
    let kind = if is_permanent { FailureKind::LimitExceeded } else { FailureKind::Agent };
    Failure {
        kind,
        message: format!("the object `{name}` could not be stored: {error}"),
        retryable: !is_permanent,
    }
}

/// Fetches an object. An error is final: the object is missing, differs from the stored one, or
/// could not be fetched within the retry limit.
pub(crate) async fn get(bus: &Bus, reference: &ObjectReference) -> Result<Bytes, String> {
    let name = &reference.object;
    let mut backoff = Backoff::default();
    let found = loop {
        match bus.get_content(name, &reference.sha256).await {
            Ok(found) => break found,
            Err(error) => {
                tracing::debug!(%error, name, "could not fetch an object yet");
                if is_permanent(&error) || backoff.wait_bounded().await.is_err() {
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
