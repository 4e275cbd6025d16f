//! Work that takes long, where nothing else waits for it.

use crate::problem::{ApiResult, ProblemDetails};

/// Does what takes long where nothing else waits for it.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ProblemDetails::internal("the answer could not be made", &error))
}
