//! Sends each job to the shard of its trace. The sender waits while the shard's queue is full, so
//! that messages wait in the bus and not in memory.

use domain::TraceId;
use tokio::sync::mpsc;

use super::job::Job;

/// The most jobs that wait for one shard.
pub(crate) const QUEUE_LENGTH: usize = 2048;

#[derive(Debug, Clone)]
pub(crate) struct Dispatch(Vec<mpsc::Sender<Job>>);

impl Dispatch {
    pub(crate) fn new(shards: Vec<mpsc::Sender<Job>>) -> Self {
        Dispatch(shards)
    }

    pub(crate) async fn give(&self, job: Job) {
        let shard = self.shard(job.trace_id);
        // A shard without a receiver has stopped; the message is delivered again to another
        // coordinator.
        self.0[shard].send(job).await.ok();
    }

    fn shard(&self, trace: TraceId) -> usize {
        let mixed = (trace.as_u128() ^ (trace.as_u128() >> 67)) % self.0.len() as u128;
        usize::try_from(mixed).expect("less than the number of shards")
    }
}
