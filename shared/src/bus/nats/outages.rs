//! What the log says while the server can't be reached, or one of its streams takes nothing: each once for the whole process, however
//! many loops notice it (X8).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_nats::connection::State;

use super::{Error, Nats, PublishError, Published, Stream};
use crate::{subject::Filter, telemetry::Outage};

#[derive(Debug)]
pub(super) struct Outages {
    connection: Mutex<Outage>,
    /// Those that go on, by the name of the stream.
    streams: Mutex<BTreeMap<&'static str, Outage>>,
}

impl Default for Outages {
    fn default() -> Self {
        Outages { connection: Mutex::new(Outage::new("NATS")), streams: Mutex::default() }
    }
}

/// Never held over an await.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outages {
    pub(super) fn disconnected(&self, cause: &str) {
        locked(&self.connection).failed(cause);
    }

    pub(super) fn connected(&self) {
        locked(&self.connection).ended();
    }
}

impl Nats {
    /// A loop could not do what it does. Without a connection none can, and that is told once for all.
    pub(super) fn failed(&self, outage: &mut Outage, error: &Error) {
        if self.is_connected() {
            outage.failed(&error.to_string());
        } else {
            tracing::debug!(%error, "without a connection to NATS");
        }
    }

    /// How publishing to these subjects went.
    pub(super) fn tell_published<'a>(
        &self,
        results: impl Iterator<Item = (&'a str, &'a Result<Published, PublishError>)>,
    ) {
        let mut streams = locked(&self.0.outages.streams);
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
