//! What all loops of a coordinator share: its bus, store, clock and configuration, and which partition a
//! trace belongs to.

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

/// Larger messages are read beside the loop that takes them: a large graph may take a second to compile.
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
    /// Cancelled when another coordinator has had this one's id for longer.
    pub(crate) twin: CancellationToken,
    /// Cancelled when a loop has panicked. The whole coordinator then ends, rather than go on without one
    /// of its loops.
    pub(crate) panicked: CancellationToken,
    /// Cancelled when the coordinator is gone: whatever it was still doing ends where it stands.
    pub(crate) gone: CancellationToken,
    /// How often a stored trace was found that can't be read as one.
    pub(crate) damaged: AtomicU64,
    /// One large message is read at a time.
    pub(crate) one_large: Semaphore,
    /// So many queries are read at a time.
    pub(crate) queries: Semaphore,
    /// So many submissions wait for graphs that they use by name at a time.
    pub(crate) named: Semaphore,
    /// So many dead letters are stored at a time.
    pub(crate) letters: Arc<Semaphore>,
}

/// Held by a loop; if the loop panics, the coordinator ends.
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

    pub(crate) fn home(&self, trace: TraceId) -> Home {
        Home { namespace: self.bus.namespace().clone(), partition: self.partition(trace) }
    }

    /// Starts a loop of this coordinator. It never outlives the coordinator; if it panics, the coordinator ends.
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
        // Its lines name the coordinator.
        tasks.spawn(task.in_current_span());
    }

    /// Reads a large message beside the loop that took it, so that those behind it do not wait.
    pub(crate) fn beside(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.when_free(|handles| &handles.one_large, work);
    }

    /// Reads a submission that uses graphs by name beside the loop that took it, and beside others.
    pub(crate) fn beside_named(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.when_free(|handles| &handles.named, work);
    }

    /// Reads a query beside the loop that took it, and beside a few others.
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

    /// This coordinator, as the others see it.
    pub(crate) fn member(&self) -> Member {
        Member { id: self.config.id.clone(), says: self.policies.said() }
    }

    /// Tells the others that this coordinator is alive, and hears who else is.
    pub(crate) async fn heartbeat(&self) -> Result<Members, store::Error> {
        let members = self.store.heartbeat(&self.member(), millis(self.config.heartbeat_ttl)).await?;
        self.policies.heard(members.alive.iter().chain(&members.silent));
        self.policies.compare_keys(&members);
        Ok(members)
    }
}
