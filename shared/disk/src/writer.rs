//! The writer thread. It applies all waiting changes in one transaction, and answers each once the
//! transaction is on disk or has failed. It ends when no more changes can be submitted.

use tokio::sync::mpsc;

use super::{database::Database, job::Job};

/// The most changes of one transaction. Many changes cost little more than one, but each waits for
/// all of them.
const MAX_TOGETHER: usize = 1024;

pub(super) fn run(database: &Database, mut waiting: mpsc::Receiver<Box<dyn Job>>) {
    let mut fails = false;
    while let Some(first) = waiting.blocking_recv() {
        let mut together = vec![first];
        while together.len() < MAX_TOGETHER
            && let Ok(job) = waiting.try_recv()
        {
            together.push(job);
        }
        let committed = database.write(|rows| together.iter_mut().try_for_each(|job| job.apply(rows)));
        match &committed {
            Ok(()) if fails => tracing::info!("writes to the disk succeed again"),
            Err(error) if !fails => tracing::error!(%error, "writes to the disk fail"),
            Ok(()) | Err(_) => {}
        }
        fails = committed.is_err();
        for job in together {
            job.answer(committed.clone());
        }
    }
}
