//! Logs failed operations. Outages of Redis or NATS, and full streams, are logged once, by the
//! connection and by the loop that measures the storage. Failures that follow from an outage are
//! logged at debug level only (X8).

use std::error::Error;

use bus::PublishError;
use domain::{TraceId, wording::with_causes};

use crate::store;

/// Logs that an operation failed, for a trace or without one.
pub(crate) fn tell(error: &(dyn Error + 'static), trace_id: Option<TraceId>, what: &'static str) {
    let trace_id = trace_id.map(tracing::field::display);
    if is_told(error) {
        tracing::debug!(trace_id, error = with_causes(error), "{what}");
    } else {
        tracing::warn!(trace_id, error = with_causes(error), "{what}");
    }
}

fn is_told(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let of_bus = matches!(error.downcast_ref(), Some(bus::Error::Failed { .. }));
        if of_bus || error.is::<PublishError>() || store::is_outage(error) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the profiles can't be read")]
    struct Above(#[source] store::Error);

    #[test]
    fn x8_failures_because_of_an_outage_are_not_logged_again() {
        let source = || Box::new(std::io::Error::other("connection refused"));
        let outage = || store::Error::Unavailable { doing: "commit", source: source() };
        assert!(is_told(&outage()));
        assert!(is_told(&PublishError::Unacknowledged));
        assert!(is_told(&bus::Error::Failed { doing: "reading".into(), reason: "timed out".into() }));
        let corrupt = || store::Error::Corrupt { doing: "commit", found: "nothing".into() };
        assert!(!is_told(&corrupt()));
        assert!(is_told(&Above(outage())) && !is_told(&Above(corrupt())));
    }
}
