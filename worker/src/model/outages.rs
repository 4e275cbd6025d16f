//! The log lines about failing providers (X8): a provider's name and how calls end, never its
//! texts. A provider that answers some calls and refuses others is away until no call has failed
//! for a while.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use telemetry::Outage;
use tokio::time::Instant;

use super::request::{Completion, Error};

/// A provider is back after this time without a failed call.
const QUIET_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<BTreeMap<String, Failing>>);

#[derive(Debug)]
struct Failing {
    outage: Outage,
    last: Instant,
}

impl Outages {
    /// Records the end of a call. A permanent refusal is not an outage: the caller gets the reason.
    pub(super) fn heard(&self, provider: &str, answer: &Result<Completion, Error>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let how = match answer {
            Ok(_) | Err(Error::Refused { retryable: false, .. }) => {
                let is_back = |failing: &mut Failing| failing.last.elapsed() >= QUIET_FOR;
                if failing.get_mut(provider).is_some_and(is_back)
                    && let Some(mut back) = failing.remove(provider)
                {
                    back.outage.ended();
                }
                return;
            }
            Err(Error::Refused { .. }) => "it refuses calls for now",
            Err(Error::Unknown { .. }) => "its answers are missing, or break off",
        };
        let fresh = || Failing { outage: Outage::new("a model provider"), last: Instant::now() };
        let of_it = failing.entry(provider.to_owned()).or_insert_with(fresh);
        of_it.last = Instant::now();
        of_it.outage.failed(&format!("{provider}: {how}"));
    }
}
