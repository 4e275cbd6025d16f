//! The state of a shard, and the two ways in which every stage of a turn can hand back a job: have
//! it decided again, or answer that it can't be decided now.

use std::{collections::BTreeMap, sync::Arc};

use domain::TraceId;
use futures_util::{future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{
    batch::Batch, cache::Cache, job::Job, reply::Reply, shard_gauges::Tally, upload::Uploads,
    waiting::Waiting,
};
use crate::{
    loops::Handles,
    store::{OutboxKey, SentOutboxes},
};

/// The most decisions of one job, because another coordinator may commit first each time.
const MAX_TRIES: u32 = 50;

pub(crate) struct Shard {
    pub(super) handles: Arc<Handles>,
    pub(super) jobs: mpsc::Receiver<Job>,
    pub(super) cache: Cache,
    pub(super) epoch: u64,
    pub(super) sending: FuturesUnordered<BoxFuture<'static, Batch>>,
    pub(super) uploads: Uploads,
    /// Outboxes that were sent and have to be cleared, by trace.
    pub(super) sent: BTreeMap<TraceId, Vec<OutboxKey>>,
    /// The timers of traces that were woken although nothing was due.
    pub(super) retimed: BTreeMap<TraceId, SentOutboxes>,
    /// Jobs to be decided again on the stored state.
    pub(super) again: Vec<Job>,
    pub(super) waiting: Waiting,
    /// Replies that report a version which is not in the log yet.
    pub(super) untold: BTreeMap<TraceId, Vec<(u64, Reply)>>,
    pub(super) tally: Tally,
}

impl Shard {
    pub(crate) fn new(handles: Arc<Handles>, jobs: mpsc::Receiver<Job>) -> Self {
        let cache = Cache::new(handles.config.cached_bytes / handles.config.shards.max(1));
        let epoch = handles.epoch.number();
        let sending = FuturesUnordered::new();
        Shard {
            handles,
            jobs,
            cache,
            epoch,
            sending,
            uploads: Uploads::default(),
            sent: BTreeMap::new(),
            retimed: BTreeMap::new(),
            again: Vec::new(),
            waiting: Waiting::default(),
            untold: BTreeMap::new(),
            tally: Tally::new(),
        }
    }

    /// Another coordinator committed first: load its state and decide again.
    pub(super) async fn decide_again(&mut self, id: TraceId, replies: Vec<Reply>) {
        self.jobs_again(id, replies.into_iter().map(Reply::into_job).collect()).await;
    }

    pub(super) async fn jobs_again(&mut self, id: TraceId, jobs: Vec<Job>) {
        self.cache.remove(id);
        for mut job in jobs {
            job.tries += 1;
            if job.tries < MAX_TRIES {
                self.again.push(job);
            } else {
                self.unavailable(job).await;
            }
        }
    }

    /// B13: no decision without the store. The caller is asked to try again.
    pub(super) async fn unavailable(&mut self, job: Job) {
        Reply::unavailable(job).finish(&self.handles.bus).await;
    }

    /// S3: no decision on data that no coordinator of this deployment wrote. Published messages
    /// stay queued until an operator has repaired the data.
    pub(super) async fn not_authentic(&mut self, job: Job) {
        Reply::not_authentic(job).finish(&self.handles.bus).await;
    }
}
