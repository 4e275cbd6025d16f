//! Jobs that were decided with outdated agent profiles get the latest profiles, and are decided
//! again.

use domain::TraceId;

use super::{Shard, job::Job, reply::Reply};
use crate::{directory::Directory, error_log};

/// Reads the profiles again before a refusal is final. Returns true if they differ from those of
/// the decision; the job then has the later ones.
pub(super) async fn takes_later_profiles(directory: &Directory, job: &mut Job) -> bool {
    let Some(revision) = job.profiles() else { return false };
    match directory.renew(Some(revision)).await {
        Ok(differs) => {
            take_profiles(directory, job);
            differs && job.profiles() != Some(revision)
        }
        Err(error) => {
            error_log::tell(
                &error,
                None,
                "the agent profiles can't be read again; using those already known",
            );
            false
        }
    }
}

fn take_profiles(directory: &Directory, job: &mut Job) {
    for order in job.work.orders_mut() {
        if let Some((names, agents)) = order.command.named() {
            *agents = directory.known_of(&names);
        }
    }
}

impl Shard {
    /// Handles a commit that the store rejected because later profiles exist.
    pub(super) async fn decide_with_later_profiles(&mut self, id: TraceId, seen: u64, replies: Vec<Reply>) {
        let mut jobs: Vec<Job> = replies.into_iter().map(Reply::into_job).collect();
        match self.handles.directory.compare(seen).await {
            Ok(()) => {
                jobs.iter_mut().for_each(|job| take_profiles(&self.handles.directory, job));
                self.jobs_again(id, jobs).await;
            }
            Err(error) => {
                error_log::tell(
                    &error,
                    None,
                    "the agent profiles can't be read; the jobs are answered as unavailable",
                );
                self.cache.remove(id);
                for job in jobs {
                    self.unavailable(job).await;
                }
            }
        }
    }
}
