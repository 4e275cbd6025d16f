//! Moves work on large values to another thread, so that it does not block other tasks of the
//! runtime.

use bus::StoredMessage;

use crate::Error;

/// Values up to this size are processed on the current thread, which takes a few milliseconds.
const LARGE_BYTES: usize = 256 << 10;

/// Runs `work`, on another thread if it processes more than [`LARGE_BYTES`].
pub(crate) async fn off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    if bytes <= LARGE_BYTES {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(Error::Interrupted)
}

/// The bytes of stored messages.
pub(crate) fn size_of(stored: &[StoredMessage]) -> usize {
    stored.iter().map(|message| message.payload.len()).sum()
}
