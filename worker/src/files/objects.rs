//! What is too large for a message, put aside in the object store. The names of a context's objects
//! begin with its own: they are found, and removed, by that.

use bytes::Bytes;
use sha2::{Digest, Sha256};
pub(crate) use shared::wire::ObjectReference;
use shared::{
    ChildId, TraceId,
    bus::{Bus, Error},
    wire::{Failure, FailureKind},
};

use crate::{agent::Run, attempt::coordinator::Backoff};

/// A longer name does not fit the subject a server makes of it.
const MAX_PATH_BYTES: usize = 512;

/// What the names of a context's objects begin with; those of one attempt, if that is named. An attempt
/// that was replaced without noticing writes over nothing of its successor's.
pub(crate) fn prefix(trace_id: TraceId, child_id: &ChildId, attempt: Option<u32>) -> String {
    match attempt {
        Some(attempt) => format!("{}{attempt}.", prefix(trace_id, child_id, None)),
        None => ObjectReference::prefix(trace_id, child_id),
    }
}

/// Stores a file of this attempt, by its path beneath `outputs/`.
pub(crate) async fn put_output(run: &Run<'_>, path: &str, bytes: Vec<u8>) -> ObjectReference {
    let prefix = prefix(run.work.trace_id, &run.work.child_id, Some(run.attempt()));
    let name = match path.len() {
        0..=MAX_PATH_BYTES => format!("{prefix}outputs/{path}"),
        _ => format!("{prefix}outputs/{}", sha256(path.as_bytes())),
    };
    match put(run.bus, &name, bytes.into()).await {
        Ok(reference) => reference,
        Err(failure) => run.give_up(failure).await,
    }
}

/// Stores an object; how the attempt fails if that can't be done. Stored twice under one name, it is the
/// same.
pub(crate) async fn put(bus: &Bus, name: &str, bytes: Bytes) -> Result<ObjectReference, Failure> {
    let (size_bytes, sha256) = (bytes.len() as u64, sha256(&bytes));
    let mut pause = Backoff::default();
    while let Err(error) = bus.put_object(name, bytes.clone()).await {
        tracing::warn!(%error, name, "an object could not be stored yet");
        if lasts(&error) || pause.wait_a_while().await.is_err() {
            return Err(not_stored(name, &error));
        }
    }
    Ok(ObjectReference { object: name.to_owned(), size_bytes, sha256 })
}

/// Whether it comes again however often it is tried.
fn lasts(error: &Error) -> bool {
    match error {
        Error::TooLarge { .. } => true,
        Error::Connect { .. } | Error::TooOld { .. } | Error::Mismatch { .. } | Error::Failed { .. } => false,
    }
}

fn not_stored(name: &str, error: &Error) -> Failure {
    let lasts = lasts(error);
    let kind = if lasts { FailureKind::LimitExceeded } else { FailureKind::Agent };
    Failure { kind, message: format!("`{name}` could not be stored: {error}"), retryable: !lasts }
}

/// Fetches an object. What is gone, is not what was stored or is not to be had for a minute will not come
/// by asking again: why, for people.
pub(crate) async fn get(bus: &Bus, reference: &ObjectReference) -> Result<Bytes, String> {
    let name = &reference.object;
    let mut pause = Backoff::default();
    let found = loop {
        match bus.get_object(name).await {
            Ok(found) => break found,
            Err(error) => {
                tracing::warn!(%error, name, "an object can't be fetched yet");
                if lasts(&error) || pause.wait_a_while().await.is_err() {
                    return Err(format!("the object `{name}` can't be fetched: {error}"));
                }
            }
        }
    };
    let bytes = found.ok_or_else(|| format!("there is no object `{name}`"))?;
    if sha256(&bytes) != reference.sha256 {
        return Err(format!("the object `{name}` is not what was stored"));
    }
    Ok(bytes)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
