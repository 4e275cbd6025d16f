//! The thread that writes. It applies all changes that wait in one transaction, and tells whoever waits when that is on the
//! disk, or that it is not. It ends when nobody can hand in more.

use tokio::sync::mpsc;

use super::{database::Database, job::Job};

/// Changes of one transaction. More of them cost little more than one; whoever waits for the first waits for all.
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
            Ok(()) if fails => tracing::info!("the disk takes what is written again"),
            Err(error) if !fails => tracing::error!(%error, "the disk does not take what is written"),
            Ok(()) | Err(_) => {}
        }
        fails = committed.is_err();
        for job in together {
            job.answer(committed.clone());
        }
    }
}
