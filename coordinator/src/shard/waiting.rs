//! Asks for holds that wait in the queue of their trace. Each is decided again when its trace may
//! have free budget. After a moment it is answered with `wait`, so that its worker asks again. A
//! lost entry is harmless for the same reason.

use std::{collections::BTreeMap, time::Duration};

use domain::TraceId;
use tokio::time::Instant;

use super::{job::Job, reply::Reply};

/// The longest time that an ask waits here; well below the time after which a worker asks again on
/// its own.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Waiting(BTreeMap<TraceId, Vec<(Instant, Reply)>>);

impl Waiting {
    pub(super) fn keep(&mut self, reply: Reply) {
        self.0.entry(reply.job().trace_id).or_default().push((Instant::now(), reply));
    }

    /// Takes the asks of a trace, to be decided again.
    pub(super) fn of(&mut self, id: TraceId) -> impl Iterator<Item = Job> {
        self.0.remove(&id).into_iter().flatten().map(|(_, reply)| reply.into_job())
    }

    /// Takes the asks that have waited long enough.
    pub(super) fn overdue(&mut self) -> Vec<Reply> {
        let (mut overdue, now) = (Vec::new(), Instant::now());
        for asks in self.0.values_mut() {
            let (late, rest) =
                std::mem::take(asks).into_iter().partition(|(since, _)| now - *since >= LONGEST);
            *asks = rest;
            overdue.extend(Vec::from_iter::<Vec<(Instant, Reply)>>(late).into_iter().map(|(_, reply)| reply));
        }
        self.0.retain(|_, asks| !asks.is_empty());
        overdue
    }

    /// Takes all asks, when the shard ends.
    pub(super) fn all(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.0).into_values().flatten().map(|(_, reply)| reply).collect()
    }
}
