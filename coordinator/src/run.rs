//! A coordinator, from start to drain: sets up its bus and store, starts its loops, and when told to
//! stop takes no more, finishes what it has, and leaves.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use shared::{
    bus::{self, Bus, Consumer, Service},
    subject::Subject,
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Config,
    clock::Clock,
    directory::Directory,
    dispatch::{Dispatch, WAITING},
    epoch::Epoch,
    ground::Ground,
    health::{self, Pulse},
    intake::Intake,
    partition::Membership,
    shard::Shard,
    store::{self, Store},
    sweep, timer,
};

/// How long a stopping coordinator may take to finish what it has.
const DRAIN: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the bus is not usable")]
    Bus(#[from] bus::Error),
    #[error("the store is not usable")]
    Store(#[from] store::Error),
    #[error("could not listen on {address} for health checks")]
    Health {
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("a loop of the coordinator panicked; the log says where")]
    Panicked,
}

pub async fn run(
    config: Config,
    bus: Bus,
    store: Store,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    boxed(config, bus, store, Box::pin(shutdown)).await
}

/// The one type of it: a generic function is compiled again, with all it awaits, in each crate that calls it.
fn boxed(
    config: Config,
    bus: Bus,
    store: Store,
    shutdown: BoxFuture<'_, ()>,
) -> BoxFuture<'_, Result<(), Error>> {
    Box::pin(run_until(config, bus, store, shutdown))
}

async fn run_until(config: Config, bus: Bus, store: Store, shutdown: BoxFuture<'_, ()>) -> Result<(), Error> {
    bus.set_up(&config.topology).await?;
    store.settle_partitions(config.topology.partitions).await?;
    let now = store.now().await?;
    let directory = Directory::open(store.clone()).await?;
    let ground = Arc::new(Ground {
        config,
        bus,
        store,
        clock: Clock::new(now),
        epoch: Epoch::new(),
        started_at: now,
        panicked: CancellationToken::new(),
    });
    let listener = match ground.config.health {
        None => None,
        Some(address) => {
            let listener = TcpListener::bind(address).await;
            Some(listener.map_err(|source| Error::Health { address, source })?)
        }
    };

    let shards = TaskTracker::new();
    let mut senders = Vec::new();
    for _ in 0..ground.config.shards.max(1) {
        let (sender, jobs) = mpsc::channel(WAITING);
        senders.push(sender);
        let (shard, fuse) = (Shard::new(ground.clone(), jobs), ground.fuse());
        shards.spawn(async move {
            shard.run().await;
            drop(fuse);
        });
    }
    shards.close();
    let dispatch = Dispatch::new(senders);

    // Readers stop first; the shards finish what the readers gave them.
    let readers = TaskTracker::new();
    let stop = CancellationToken::new();
    let pulse = Pulse::new();
    let intake = Intake { ground: ground.clone(), directory: directory.clone(), dispatch: dispatch.clone() };
    let queue = ground.bus.consume(&Consumer::Intake).await?;
    let requests = ground.bus.offer(&service()).await?;
    let reader = |future: futures_util::future::BoxFuture<'static, ()>| {
        let (stop, fuse) = (stop.clone(), ground.fuse());
        readers.spawn(async move {
            stop.run_until_cancelled(future).await;
            drop(fuse);
        });
    };
    reader(intake.clone().consume(queue, pulse.clone()).boxed());
    reader(intake.serve(requests).boxed());
    let (owned, watched) = watch::channel(Arc::default());
    reader(timer::run(ground.clone(), dispatch.clone(), watched).boxed());
    reader(sweep::run(ground.clone(), dispatch.clone()).boxed());
    if let Some(listener) = listener {
        let (ground, pulse, stopped) = (ground.clone(), pulse.clone(), stop.clone());
        let ready = move || {
            let (ground, pulse) = (ground.clone(), pulse.clone());
            async move { health::ready(&ground, &pulse).await }.boxed()
        };
        readers.spawn(async move {
            let served = shared::health::serve(listener, ready, stopped.cancelled_owned()).await;
            served.unwrap_or_else(|error| tracing::error!(%error, "health checks are not answered"));
        });
    }
    let membership = Membership {
        ground: ground.clone(),
        directory,
        dispatch,
        owned,
        tasks: readers.clone(),
        serving: HashMap::new(),
    };
    let leaving = stop.clone();
    let fuse = ground.fuse();
    readers.spawn(async move {
        membership.run(leaving).await;
        drop(fuse);
    });
    readers.close();
    tracing::info!(id = %ground.config.id, partitions = ground.config.topology.partitions, "coordinator is up");

    let panicked = tokio::select! {
        () = shutdown => false,
        () = ground.panicked.cancelled() => true,
    };
    tracing::info!(id = %ground.config.id, "coordinator is stopping");
    stop.cancel();
    let drained = async {
        readers.wait().await;
        shards.wait().await;
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("not everything could be finished; it comes again elsewhere");
    }
    if panicked { Err(Error::Panicked) } else { Ok(()) }
}

fn service() -> Service {
    Service {
        name: "trellis",
        version: env!("CARGO_PKG_VERSION"),
        description: "Runs trees of agents within a budget: submit a goal or a task graph, ask about runs.",
        subjects: vec![Subject::Submit, Subject::Query],
    }
}
