//! Runs long synchronous work outside the async threads.

use crate::problem::{ApiResult, ProblemDetails};

/// Runs `work` on the pool for blocking calls, so that other requests do not wait for it.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ProblemDetails::internal("the answer could not be made", &error))
}
