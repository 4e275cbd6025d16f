//! Measures the time of calls to the store, for metrics.

use std::future::Future;

use telemetry::metrics;
use tokio::time::Instant;

use super::Error;

pub(super) async fn measured<T>(
    op: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    if !metrics::is_on() {
        return work.await;
    }
    let began = Instant::now();
    let answer = work.await;
    metrics::store(op, began.elapsed(), answer.is_err());
    answer
}
