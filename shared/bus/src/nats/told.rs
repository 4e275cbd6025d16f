//! Logs failures of the server. Without a connection every operation fails, and `hear` in `connect`
//! logs that once for all of them.

use async_nats::connection::State;
use domain::{subject::Filter, wording::with_causes};
use telemetry::Outage;

use super::{Error, Nats, PublishError, PublishReceipt, Stream};

impl Nats {
    /// Reports the failure of a loop. Without a connection it is only logged at debug level,
    /// because every loop fails then.
    pub(crate) fn failed(&self, outage: &mut Outage, error: &Error) {
        if self.is_connected() {
            outage.failed(&with_causes(error));
        } else {
            tracing::debug!(%error, "without a connection to NATS");
        }
    }

    /// Records the results of publishing to these subjects, as outages of their streams.
    pub(super) fn tell_published<'a>(
        &self,
        results: impl Iterator<Item = (&'a str, &'a Result<PublishReceipt, PublishError>)>,
    ) {
        let mut streams = self.0.outages.streams();
        for (subject, result) in results {
            let cause = match result {
                Ok(_) if streams.is_empty() => continue,
                Ok(_) => None,
                Err(PublishError::WrongSequence | PublishError::Denied(_)) => continue,
                Err(
                    error @ (PublishError::Full(_) | PublishError::Unacknowledged | PublishError::Other(_)),
                ) => Some(error),
            };
            let parsed = self.namespace().parse(subject).ok();
            let Some(stream) = parsed.and_then(|subject| Stream::of(&Filter::One(subject))) else { continue };
            match cause {
                None => {
                    if let Some(mut outage) = streams.remove(stream.name()) {
                        outage.ended();
                    }
                }
                Some(error) if self.is_connected() => {
                    let outage = streams.entry(stream.name()).or_insert_with(|| Outage::new(stream.name()));
                    outage.failed(&error.to_string());
                }
                Some(_) => {}
            }
        }
    }

    fn is_connected(&self) -> bool {
        self.0.client.connection_state() == State::Connected
    }
}
