//! Where a command's work is done: in a cluster, or by a coordinator and a worker in this process, on a bus and a
//! store in memory. Nothing in this process outlives the command.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, anyhow};
use coordinator::store::{Memory, Store};
use shared::{
    agent_policy::AgentPolicy,
    bus::{self, Bus, Topology},
    subject::Namespace,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::{connect::Servers, process_id};

/// Agents that run at once in this process. They mostly wait for models and tools.
const SLOTS: usize = 64;
/// How long running agents may take to end when the command ends.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) struct Deployment {
    bus: Bus,
    /// The coordinator and the worker in this process; empty for a cluster.
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Deployment {
    /// The cluster that the command line names, or one in this process whose worker has these settings.
    pub(crate) async fn open(
        servers: &Servers,
        settings: worker::Settings,
        policy: Option<AgentPolicy>,
    ) -> anyhow::Result<Self> {
        match servers.nats_url() {
            Some(_) => Ok(Deployment {
                bus: servers.cluster().await?,
                tasks: JoinSet::new(),
                stop: CancellationToken::new(),
            }),
            None => Self::embedded(servers.namespace(), None, settings, policy).await,
        }
    }

    pub(crate) async fn embedded(
        namespace: &Namespace,
        health: Option<SocketAddr>,
        settings: worker::Settings,
        policy: Option<AgentPolicy>,
    ) -> anyhow::Result<Self> {
        let topology = Topology { partitions: 4, ..Topology::default() };
        let bus = Bus::Memory(bus::Memory::new(namespace.clone()));
        bus.set_up(&topology).await?;
        let store = Store::Memory(Memory::new(topology.partitions));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut config = coordinator::Config::new(process_id::fresh("coordinator"));
        config.topology = topology;
        config.health = health;
        let ended = coordinator::run(config, bus.clone(), store, stop.clone().cancelled_owned());
        tasks.spawn(async { ended.await.context("the coordinator in this process failed") });
        let config = worker::Config {
            slots: SLOTS,
            drain: DRAIN,
            settings,
            // Whoever runs it here gives it the profiles as well: nobody else can.
            policy: policy.unwrap_or_else(AgentPolicy::everything),
            sandbox: Some(worker::OWN_EXECUTABLE.into()),
            ..worker::Config::new(process_id::fresh("worker"))
        };
        let ended = worker::run(config, bus.clone(), stop.clone().cancelled_owned());
        tasks.spawn(async { ended.await.context("the worker in this process failed") });
        Ok(Deployment { bus, tasks, stop })
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Does the work; fails if the coordinator or the worker in this process ends before it.
    pub(crate) async fn while_up<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            Some(ended) = self.tasks.join_next() => match ended {
                Ok(Ok(())) => Err(anyhow!("the coordinator or the worker in this process ended unexpectedly")),
                Ok(Err(error)) => Err(error),
                Err(panicked) => Err(anyhow!("the coordinator or the worker in this process panicked: {panicked}")),
            },
        }
    }

    /// Stops the coordinator and the worker in this process; false if they did not end in time.
    #[must_use]
    pub(crate) async fn close(mut self) -> bool {
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(2 * DRAIN, all).await.is_ok()
    }
}
