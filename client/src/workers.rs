//! The workers of a cluster. Coordinators have no list of them, so they are found by a broadcast.

use std::time::Duration;

use domain::{
    subject::Subject,
    wire::{WorkerCall, WorkerState},
};

use crate::{Client, Error};

/// The time that workers have to answer a broadcast.
pub const WORKERS_ANSWER: Duration = Duration::from_millis(500);

impl Client {
    /// The workers that answer within [`WORKERS_ANSWER`], sorted by name.
    pub async fn workers(&self) -> Result<Vec<WorkerState>, Error> {
        let call = serde_json::to_vec(&WorkerCall::Describe).map_err(Error::Message)?;
        let answers = self.bus().gather(&Subject::Worker, call.into(), WORKERS_ANSWER).await?;
        let mut workers: Vec<WorkerState> =
            answers.iter().filter_map(|answer| serde_json::from_slice(answer).ok()).collect();
        workers.sort_by(|one, other| one.worker_id.cmp(&other.worker_id));
        Ok(workers)
    }
}
