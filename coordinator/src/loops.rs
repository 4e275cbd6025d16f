//! The state that all loops of a coordinator share: bus, store, clock, configuration, and the
//! partition of a trace.

use std::sync::{Arc, atomic::AtomicU64};

use bus::Bus;
use domain::{
    Timestamp, TraceId,
    subject::{Home, Partition},
    time::millis,
};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use crate::{
    Config,
    clock::Clock,
    config::Delays,
    directory::Directory,
    epoch::Epoch,
    kept::Graphs,
    policy::{Policies, WorkerPolicies},
    schedules::Schedules,
    sealed::SealedStore,
    storage_headroom::Room,
    store::{self, Member, Members},
};

/// A larger message is read in a task of its own: a large graph may take a second to compile.
pub(crate) const LARGE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) config: Config,
    pub(crate) bus: Bus,
    pub(crate) store: SealedStore,
    pub(crate) clock: Clock,
    pub(crate) epoch: Epoch,
    pub(crate) room: Room,
    pub(crate) policies: Policies,
    pub(crate) worker_policies: WorkerPolicies,
    pub(crate) directory: Directory,
    pub(crate) schedules: Schedules,
    pub(crate) graphs: Graphs,
    pub(crate) started_at: Timestamp,
    /// Cancelled when another coordinator has used this coordinator's id for longer.
    pub(crate) twin: CancellationToken,
    /// Cancelled when a loop has panicked. The whole coordinator then ends, instead of running
    /// without one of its loops.
    pub(crate) panicked: CancellationToken,
    /// Cancelled when the coordinator is gone; every task that still runs is dropped at its next
    /// `.await`.
    pub(crate) gone: CancellationToken,
    /// How many times a stored trace could not be read as a trace.
    pub(crate) damaged: AtomicU64,
    /// One large message is read at a time.
    pub(crate) one_large: Semaphore,
    /// The limit of queries that are read at the same time.
    pub(crate) queries: Semaphore,
    /// The limit of submissions that wait for graphs by name at the same time.
    pub(crate) named: Semaphore,
    /// The limit of dead letters that are stored at the same time.
    pub(crate) letters: Arc<Semaphore>,
}

/// A loop holds a `Fuse`; if the loop panics, the drop of the fuse ends the coordinator.
#[derive(Debug)]
struct Fuse(CancellationToken);

impl Drop for Fuse {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

impl Handles {
    pub(crate) fn partition(&self, trace: TraceId) -> Partition {
        Partition::of(trace, self.config.topology.partitions)
    }

    /// Returns true if this coordinator owns the partition of the trace.
    pub(crate) fn owns(&self, trace: TraceId) -> bool {
        self.epoch.since(self.partition(trace)).is_some()
    }

    pub(crate) fn home(&self, trace: TraceId) -> Home {
        Home { namespace: self.bus.namespace().clone(), partition: self.partition(trace) }
    }

    /// Starts a loop of this coordinator. It never outlives the coordinator; if it panics, the
    /// coordinator ends.
    pub(crate) fn spawn(&self, tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        let (gone, fuse) = (self.gone.clone(), Fuse(self.panicked.clone()));
        let task = async move {
            tokio::select! {
                biased;
                () = gone.cancelled() => {}
                () = task => {}
            }
            drop(fuse);
        };
        // The log lines of the loop name the coordinator.
        tasks.spawn(task.in_current_span());
    }

    /// Reads a large message in a task of its own, so that later messages of the loop need not
    /// wait.
    pub(crate) fn beside(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.when_free(|handles| &handles.one_large, work);
    }

    /// Reads a submission that uses graphs by name in a task of its own, at the same time as
    /// others.
    pub(crate) fn beside_named(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.when_free(|handles| &handles.named, work);
    }

    /// Reads a query in a task of its own, at the same time as a few others.
    pub(crate) fn beside_others(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.when_free(|handles| &handles.queries, work);
    }

    fn when_free(
        self: &Arc<Self>,
        places: fn(&Handles) -> &Semaphore,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let handles = self.clone();
        self.spawn(&TaskTracker::new(), async move {
            let _one = places(&handles).acquire().await;
            work.await;
        });
    }

    pub(crate) fn delays(&self) -> Delays {
        let copy_after = self.config.copy_after.min(self.config.topology.keep_logs / 2);
        Delays { resend_ms: self.resend_ms(), copy_ms: millis(copy_after) }
    }

    pub(crate) fn resend_ms(&self) -> u64 {
        millis(self.config.resend_after)
    }

    pub(crate) fn retention_ms(&self) -> u64 {
        self.policies.holds().retention_ms
    }

    /// This coordinator as its heartbeats describe it to the other coordinators.
    pub(crate) fn member(&self) -> Member {
        Member { id: self.config.id.clone(), says: self.policies.said() }
    }

    /// Sends a heartbeat of this coordinator, and returns the coordinators that are alive.
    pub(crate) async fn heartbeat(&self) -> Result<Members, store::Error> {
        let members = self.store.heartbeat(&self.member(), millis(self.config.heartbeat_ttl)).await?;
        self.policies.heard(members.alive.iter().chain(&members.silent));
        self.policies.compare_keys(&members);
        Ok(members)
    }
}
