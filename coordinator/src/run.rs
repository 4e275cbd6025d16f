//! Runs a coordinator from start to drain: sets up its bus and store and starts its loops. On
//! shutdown the coordinator takes no more work, finishes the jobs that it has, and leaves the
//! cluster.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use bus::{Bus, Consumer, ExistingLimits, Service};
use domain::{
    WorkerId,
    subject::{Action, Subject, Topic},
    wording::with_causes,
};
use futures_util::{FutureExt, future::BoxFuture};
use telemetry::{Outage, metrics};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use crate::{
    Config, audit,
    clock::Clock,
    dead_letter,
    directory::{self, Directory},
    epoch::Epoch,
    health::{self, Pulse},
    inbound::intake::Intake,
    kept::Graphs,
    loops::Handles,
    ownership::{copies, mark, membership::Membership, queues, retention, schedules, signing, sweep, timer},
    policy::Policies,
    schedules::Schedules,
    sealed::SealedStore,
    shard::{
        Shard,
        dispatch::{Dispatch, QUEUE_LENGTH},
    },
    spans,
    storage_headroom::Room,
    store::{self, DefaultUser, Store},
    webhooks,
};

/// The longest time a stopping coordinator takes to finish its work.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How many submissions may wait at the same time for the graphs that they use by name.
const NAMED_AT_ONCE: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the message bus can't be used")]
    Bus(#[from] bus::Error),
    #[error("the store can't be used")]
    Store(#[from] store::Error),
    #[error("the agent profiles can't be read")]
    Profiles(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("could not listen on {address} for health checks")]
    Health {
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("a loop of the coordinator panicked; the log shows where")]
    Panicked,
    #[error("another coordinator is alive under the id `{0}`; give each an --id of its own, or none")]
    Twin(WorkerId),
}

impl From<directory::Error> for Error {
    fn from(error: directory::Error) -> Self {
        Error::Profiles(Box::new(error))
    }
}

/// Runs until `shutdown`, or until one of its loops panics.
pub async fn run(
    config: Config,
    bus: Bus,
    store: Store,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    boxed(config, bus, store, Box::pin(shutdown)).await
}

/// Boxes the future, so that everything beneath has one type. A generic function is compiled again,
/// with all that it awaits, in each crate that calls it.
fn boxed(
    config: Config,
    bus: Bus,
    store: Store,
    shutdown: BoxFuture<'_, ()>,
) -> BoxFuture<'_, Result<(), Error>> {
    let span = tracing::error_span!("coordinator", coordinator_id = %config.id);
    Box::pin(run_until(config, bus, store, shutdown).instrument(span))
}

async fn run_until(config: Config, bus: Bus, store: Store, shutdown: BoxFuture<'_, ()>) -> Result<(), Error> {
    metrics::begin();
    bus.set_up_as(&config.topology, ExistingLimits::Keep).await?;
    let bus = match &config.keys {
        Some(keys) => bus.with_keys(keys.clone()),
        None => bus,
    };
    let store = SealedStore::new(store, config.keys.clone(), bus.namespace());
    store.settle_partitions(config.topology.partitions).await?;
    warn_of_default_user(&store).await;
    let clock = Clock::new(config.clock, store.time().await?);
    let directory = Directory::new(store.clone(), bus.clone(), config.crash.clone());
    directory.refresh().await?;
    let policies = Policies::new(&config, clock.now());
    let schedules = Schedules::new(bus.clone());
    let graphs = Graphs::new(bus.clone());
    let handles = Arc::new(Handles {
        config,
        bus,
        store,
        started_at: clock.now(),
        clock,
        epoch: Epoch::new(),
        room: Room::default(),
        policies,
        worker_policies: Default::default(),
        directory,
        schedules,
        graphs,
        twin: CancellationToken::new(),
        panicked: CancellationToken::new(),
        gone: CancellationToken::new(),
        damaged: Default::default(),
        one_large: Semaphore::new(1),
        queries: Semaphore::new(4),
        named: Semaphore::new(NAMED_AT_ONCE),
        letters: Arc::new(Semaphore::new(dead_letter::AT_ONCE)),
    });
    // Stops all loops of this coordinator, also if this future is dropped.
    let _gone = handles.gone.clone().drop_guard();
    // The heartbeat comes before the first admission: other coordinators may have been started with
    // a lower maximum, which is valid for all.
    handles.heartbeat().await?;
    if let Err(error) = handles.room.measure(&handles.bus).await {
        tracing::warn!(%error, "the storage can't be measured yet");
    }
    if let Err(error) = audit::keep_policy(&handles).await {
        tracing::warn!(%error, "the options of this coordinator could not be recorded");
    }
    let listener = health_listener(&handles).await?;
    let (shards, dispatch) = start_shards(&handles);
    let readers = Readers::start(handles.clone(), dispatch, listener).await?;
    let (exporting, exported) = (TaskTracker::new(), CancellationToken::new());
    handles.spawn(&exporting, spans::run(handles.clone(), exported.clone()));
    handles.spawn(&exporting, webhooks::run(handles.clone(), exported.clone()));
    exporting.close();
    tracing::info!(partitions = handles.config.topology.partitions, "coordinator is up");

    let ended = tokio::select! {
        biased;
        () = shutdown => Ok(()),
        () = handles.panicked.cancelled() => Err(Error::Panicked),
        () = handles.twin.cancelled() => Err(Error::Twin(handles.config.id.clone())),
    };
    tracing::info!("coordinator is stopping");
    // Readers stop first; the shards then finish the jobs that the readers gave them.
    readers.stop.cancel();
    let drained = async {
        readers.tasks.wait().await;
        shards.wait().await;
        // The exporters stop last, because the shards publish how their last contexts ended.
        exported.cancel();
        exporting.wait().await;
    };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("not all work was finished in time; its messages will be delivered again");
    }
    ended
}

/// Logs users of Redis whose settings lose commits at a restart of Redis. The coordinator starts in
/// any case: it can rebuild traces from the event log.
async fn warn_of_default_user(store: &Store) {
    match store.default_user().await.map(DefaultUser::problem) {
        Ok(None) => {}
        Ok(Some(problem)) => tracing::error!(
            hint = "write the users of Redis again with `trellis auth init`, see docs/upgrade.md",
            "{problem}"
        ),
        Err(error) => tracing::warn!(error = with_causes(&error), "the users of Redis can't be checked"),
    }
}

async fn health_listener(handles: &Handles) -> Result<Option<TcpListener>, Error> {
    let Some(address) = handles.config.health else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    Ok(Some(listener.map_err(|source| Error::Health { address, source })?))
}

/// Starts the loops that decide. They end when every sender of jobs is dropped.
fn start_shards(handles: &Arc<Handles>) -> (TaskTracker, Dispatch) {
    let shards = TaskTracker::new();
    let mut senders = Vec::new();
    for _ in 0..handles.config.shards.max(1) {
        let (sender, jobs) = mpsc::channel(QUEUE_LENGTH);
        senders.push(sender);
        handles.spawn(&shards, Shard::new(handles.clone(), jobs).run());
    }
    shards.close();
    (shards, Dispatch::new(senders))
}

/// The loops that give jobs to the shards, and the health endpoints. All of them end with `stop`.
struct Readers {
    handles: Arc<Handles>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Readers {
    async fn start(
        handles: Arc<Handles>,
        dispatch: Dispatch,
        listener: Option<TcpListener>,
    ) -> Result<Self, Error> {
        let readers = Readers { handles, tasks: TaskTracker::new(), stop: CancellationToken::new() };
        let handles = &readers.handles;
        let pulse = Pulse::new();
        let queue = handles.bus.consume(&Consumer::Intake).await?;
        let requests = handles.bus.offer(&service()).await?;
        let intake = Intake { handles: handles.clone(), dispatch: dispatch.clone() };
        readers.spawn(intake.clone().consume(queue, pulse.clone()));
        readers.spawn(intake.serve(requests));
        let (owned, watched) = watch::channel(Arc::default());
        if handles.config.timers {
            readers.spawn(timer::run(handles.clone(), dispatch.clone(), watched.clone()));
        }
        readers.spawn(copies::run(handles.clone(), dispatch.clone(), watched.clone()));
        readers.spawn(signing::run(handles.clone(), dispatch.clone(), watched.clone()));
        readers.spawn(handles.schedules.clone().follow());
        if handles.config.schedules {
            readers.spawn(schedules::run(handles.clone(), watched.clone()));
        }
        readers.spawn(retention::run(handles.clone(), watched));
        let measured = handles.clone();
        readers.spawn(async move { measured.room.watch(&measured.bus).await });
        if let Some(keys) = handles.config.keys.clone() {
            let bus = handles.bus.clone();
            readers.spawn(async move { dead_letter::tell_refused(&bus, &keys).await });
        }
        readers.spawn(mark::run(handles.clone()));
        if listener.is_some() || metrics::is_on() {
            readers.spawn(queues::run(handles.clone()));
        }
        readers.spawn(sweep::run(handles.clone(), dispatch.clone()));
        if let Some(listener) = listener {
            readers.serve_health(listener, pulse);
        }
        let membership = Membership {
            handles: handles.clone(),
            dispatch,
            owned,
            tasks: readers.tasks.clone(),
            serving: BTreeMap::new(),
            began: handles.config.clock.mark(),
            beaten: handles.config.clock.mark(),
            silent: Default::default(),
            outage: Outage::new("the queue of a partition"),
            counted: metrics::tell_partitions(),
        };
        handles.spawn(&readers.tasks, membership.run(readers.stop.clone()));
        readers.tasks.close();
        Ok(readers)
    }

    fn spawn(&self, reader: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.handles.spawn(&self.tasks, async move {
            stop.run_until_cancelled(reader).await;
        });
    }

    fn serve_health(&self, listener: TcpListener, pulse: Pulse) {
        let (handles, stopped) = (self.handles.clone(), self.stop.clone());
        let ready = move || {
            let (handles, pulse) = (handles.clone(), pulse.clone());
            async move { health::ready(&handles, &pulse).await }.boxed()
        };
        self.handles.spawn(&self.tasks, async move {
            let served = telemetry::health::serve(listener, ready, stopped.cancelled_owned()).await;
            served.unwrap_or_else(|error| tracing::error!(%error, "the health endpoints have stopped"));
        });
    }
}

fn service() -> Service {
    Service {
        name: "trellis",
        version: env!("CARGO_PKG_VERSION"),
        description: "Runs trees of agents within a budget: submit a goal or a task graph, ask about runs.",
        subjects: [Subject::Submit, Subject::Steer]
            .into_iter()
            .chain(Topic::ALL.map(Subject::Query))
            .chain(Action::REQUESTS.map(Subject::Admin))
            .collect(),
    }
}
