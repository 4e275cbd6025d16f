//! What is too large for a message, put aside in the object store.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use shared::{bus::Bus, wire::ObjectReference};

use crate::coordinator::Backoff;

/// Stores an object, however long that takes: the lease of the attempt bounds it. Stored twice under
/// one name, it is the same.
pub(crate) async fn put(bus: &Bus, name: &str, bytes: Bytes) -> ObjectReference {
    let mut pause = Backoff::default();
    while let Err(error) = bus.put_object(name, bytes.clone()).await {
        tracing::warn!(%error, name, "an object could not be stored yet");
        pause.wait().await;
    }
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    ObjectReference { object: name.to_owned(), size_bytes: bytes.len() as u64, sha256 }
}
