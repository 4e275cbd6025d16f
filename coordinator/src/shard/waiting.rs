//! Asks for holds that wait in the line of their trace. Each is decided again when its trace may have room for it,
//! and answered with `wait` after a moment, so that its worker asks again. What is kept here may be lost.

use std::{collections::BTreeMap, time::Duration};

use domain::TraceId;
use tokio::time::Instant;

use super::{job::Job, reply::Reply};

/// How long an ask waits here; well below the time after which a worker asks again by itself.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Waiting(BTreeMap<TraceId, Vec<(Instant, Reply)>>);

impl Waiting {
    pub(super) fn keep(&mut self, reply: Reply) {
        self.0.entry(reply.job().trace_id).or_default().push((Instant::now(), reply));
    }

    /// The asks of a trace, to be decided again.
    pub(super) fn of(&mut self, id: TraceId) -> impl Iterator<Item = Job> {
        self.0.remove(&id).into_iter().flatten().map(|(_, reply)| reply.into_job())
    }

    /// The asks that have waited long enough.
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

    /// All of them, when the shard ends.
    pub(super) fn all(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.0).into_values().flatten().map(|(_, reply)| reply).collect()
    }
}
