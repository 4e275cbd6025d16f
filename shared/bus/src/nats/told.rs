//! What the log is told of what failed at the server. Without a connection everything fails, and that is told once, by `hear` in
//! `connect`.

use async_nats::connection::State;
use domain::{subject::Filter, wording::with_causes};
use telemetry::Outage;

use super::{Error, Nats, PublishError, PublishReceipt, Stream};

impl Nats {
    /// A loop could not do what it does. Without a connection none can, and that is told once for all.
    pub(crate) fn failed(&self, outage: &mut Outage, error: &Error) {
        if self.is_connected() {
            outage.failed(&with_causes(error));
        } else {
            tracing::debug!(%error, "without a connection to NATS");
        }
    }

    /// How publishing to these subjects went.
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
