//! A cluster in this process: a coordinator, and a worker if there is work to do. Its bus and store
//! are in memory and end with the command, or in a directory, which outlives it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use bus::{Bus, Topology};
use client::Client;
use coordinator::store::{Memory, Store};
use disk::Disk;
use domain::{agent_policy::AgentPolicy, subject::Namespace};
use host::webhook::Webhooks;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::cluster::{connect::client_of, local_directory::Door, process_id};

/// The most agents that run at once in this process. They mostly wait for models and tools.
const SLOTS: usize = 64;
/// The retention of ended runs, their logs and journals.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// The interval at which the coordinator marks how much of a directory's log is in its store. The
/// next process reads the log only from the last mark on.
const MARK_EVERY: Duration = Duration::from_millis(500);
/// The time that open requests get to finish when the command ends.
const CLIENTS_END: Duration = Duration::from_secs(2);
/// The longest pause between two requests of one client command. After it, the client is taken to
/// be done.
const QUIET: Duration = Duration::from_millis(200);
/// The time that running agents get to finish when the command ends.
const DRAIN: Duration = Duration::from_secs(5);

/// The error of opening a directory.
#[derive(Debug)]
pub(crate) struct NotOpened {
    why: String,
    /// Another process has it open.
    pub(crate) in_use: bool,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for NotOpened {}

/// The configuration of a cluster in this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape<'d> {
    /// The directory with the bus and the store; without one they are in memory.
    pub(crate) directory: Option<&'d Path>,
    /// Address for health checks.
    pub(crate) health: Option<SocketAddr>,
    /// True if this process starts the runs of schedules when they are due. Only a process that
    /// stays up does.
    pub(crate) schedules: bool,
    /// The receivers of outcomes and questions.
    pub(crate) webhooks: Webhooks,
    pub(crate) crashes: Crashes,
}

/// Where to abort on purpose, to test recovery.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Crashes {
    #[arg(long, hide = true, value_name = "POINT[:N]")]
    crash_coordinator_at: Option<coordinator::Crash>,
    #[arg(long, hide = true, value_name = "POINT[:N]")]
    crash_worker_at: Option<worker::Crash>,
}

#[derive(Debug)]
pub(crate) struct Deployment {
    bus: Bus,
    /// The coordinator and the worker in this process.
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    /// Stops the worker, which returns unfinished work while the coordinator still answers.
    drain: CancellationToken,
    /// Cancelled when the worker, if there is one, has ended.
    drained: Option<CancellationToken>,
    /// The directory that publishes the address of this process to other commands.
    door: Option<PathBuf>,
    /// The time of the last HTTP request from another process.
    seen: Option<gateway::LastRequest>,
    /// Lets the page kill the worker in this process.
    playground: gateway::Playground,
    /// Starts the worker when it is cancelled.
    begin: CancellationToken,
}

impl Deployment {
    fn of(bus: Bus, tasks: JoinSet<anyhow::Result<()>>, stop: CancellationToken) -> Self {
        let drain = CancellationToken::new();
        let playground = gateway::Playground::default();
        Deployment {
            bus,
            tasks,
            stop,
            drain,
            drained: None,
            door: None,
            seen: None,
            playground,
            begin: CancellationToken::new(),
        }
    }

    /// Starts a coordinator and a worker in this process, in a directory or in memory. The worker
    /// waits for [`Deployment::begin`].
    pub(crate) async fn embedded(
        namespace: &Namespace,
        shape: Shape<'_>,
        settings: worker::Settings,
        policy: Option<AgentPolicy>,
    ) -> anyhow::Result<Self> {
        let crash = shape.crashes.crash_worker_at.clone().unwrap_or_default();
        let mut deployment = Self::coordinated(namespace, shape, true).await?;
        let config = worker::Config {
            slots: SLOTS,
            drain: DRAIN,
            crash,
            settings,
            // The default policy permits everything: the same user starts this worker and writes
            // its profiles, and only that user has the token.
            policy: policy.unwrap_or_else(AgentPolicy::everything),
            sandbox: Some(worker::OWN_EXECUTABLE.into()),
            ..worker::Config::new(process_id::fresh("worker"))
        };
        let (bus, drain, playground) =
            (deployment.bus.clone(), deployment.drain.clone(), deployment.playground.clone());
        let drained = deployment.drained.insert(CancellationToken::new()).clone().drop_guard();
        let begin = deployment.begin();
        deployment.tasks.spawn(async move {
            let _drained = drained;
            tokio::select! {
                () = begin.cancelled() => {}
                () = drain.cancelled() => return Ok(()),
            }
            loop {
                let id = process_id::fresh("worker");
                let config = worker::Config { id, ..config.clone() };
                tokio::select! {
                    ended = worker::run(config, bus.clone(), drain.clone().cancelled_owned()) => {
                        return ended.context("the worker in this process failed");
                    }
                    // The killed worker's attempts are dropped, as by a power cut: their leases
                    // expire.
                    () = playground.kills_worker() => tracing::warn!("the worker was killed on the playground; another one starts"),
                }
            }
        });
        Ok(deployment)
    }

    /// Starts a coordinator without a worker in this process, which answers about the runs of a
    /// directory. No agent works on them, and no time passes in them.
    pub(crate) async fn of_directory(namespace: &Namespace, directory: &Path) -> anyhow::Result<Self> {
        Self::coordinated(namespace, Shape { directory: Some(directory), ..Shape::default() }, false).await
    }

    async fn coordinated(namespace: &Namespace, shape: Shape<'_>, has_worker: bool) -> anyhow::Result<Self> {
        let Shape { directory, health, schedules, webhooks, crashes } = shape;
        let topology =
            Topology { partitions: 4, keep_logs: KEPT, keep_journals: KEPT, ..Topology::default() };
        let (bus, store) = match directory {
            Some(directory) => kept(namespace, directory, topology.partitions).await?,
            None => {
                let bus = Bus::Memory(bus::Memory::new(namespace.clone()));
                (bus, Store::Memory(Memory::new(topology.partitions)))
            }
        };
        bus.set_up(&topology).await?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut config = coordinator::Config::new(process_id::fresh("coordinator"));
        config.topology = topology;
        config.health = health;
        config.timers = has_worker;
        config.schedules = schedules;
        config.webhooks = webhooks;
        config.crash = crashes.crash_coordinator_at.unwrap_or_default();
        config.retention = KEPT;
        if directory.is_some() {
            // A directory does not lose acknowledged writes, so the store always has what the log
            // has, and a mark needs no lag. Commands that only read end before a delayed mark would
            // be written.
            config.mark_every = MARK_EVERY;
            config.mark_lag = Duration::ZERO;
        }
        let ended = coordinator::run(config, bus.clone(), store, stop.clone().cancelled_owned());
        tasks.spawn(async { ended.await.context("the coordinator in this process failed") });
        Ok(Self::of(bus, tasks, stop))
    }

    /// Serves other processes over HTTP until the deployment is closed. Returns the address, and
    /// the code that signs the owner in to the page if a sign-in is needed.
    pub(crate) async fn serve(
        &mut self,
        mut config: gateway::Config,
    ) -> Result<(SocketAddr, Option<gateway::SignIn>), gateway::Error> {
        // The end of this process waits for its clients, so the wait is short.
        config.limits.stop_within = CLIENTS_END;
        let server = gateway::Server::bind(config, self.bus.clone()).await?;
        let told = (server.address(), server.sign_in());
        self.seen = Some(server.seen());
        let serving = server.serve(self.stop.clone().cancelled_owned());
        self.tasks.spawn(async { serving.await.context("the HTTP server in this process failed") });
        Ok(told)
    }

    /// Publishes the address of this process in the directory, for processes that would open it.
    pub(crate) fn tell(
        &mut self,
        directory: &Path,
        address: SocketAddr,
        token: Option<String>,
        is_open: bool,
    ) -> std::io::Result<()> {
        let url = url_of(address);
        Door { url, token, is_open }.put(directory)?;
        self.door = Some(directory.to_owned());
        Ok(())
    }

    /// The token that starts the worker when it is cancelled. Until then no agent runs.
    pub(crate) fn begin(&self) -> CancellationToken {
        self.begin.clone()
    }

    /// The page's control over the worker of this process.
    pub(crate) fn playground(&self) -> gateway::Playground {
        self.playground.clone()
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.bus
    }

    pub(crate) fn client(&self) -> Client {
        client_of(self.bus.clone())
    }

    /// Runs `work`. Fails if the coordinator or the worker in this process ends before it.
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

    /// Stops the coordinator and the worker in this process. Returns false if they did not end in
    /// time.
    #[must_use]
    pub(crate) async fn close(mut self) -> bool {
        if let Some(directory) = self.door.take() {
            Door::remove(&directory);
            // A client that just connected sends several requests, so the server stays up until
            // they pause. New clients no longer find the address.
            let until = Instant::now() + CLIENTS_END;
            while Instant::now() < until && self.seen.as_ref().is_some_and(|seen| seen.within(QUIET)) {
                sleep(QUIET / 4).await;
            }
        }
        self.drain.cancel();
        if let Some(drained) = &self.drained {
            // The worker gives running agents `DRAIN`, and returns the rest to the coordinator.
            tokio::time::timeout(2 * DRAIN, drained.cancelled()).await.ok();
        }
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(2 * DRAIN, all).await.is_ok()
    }
}

/// Opens the bus and the store of a directory.
async fn kept(namespace: &Namespace, directory: &Path, partitions: u16) -> anyhow::Result<(Bus, Store)> {
    let disk = Disk::open(directory).map_err(|error| {
        let in_use = matches!(error, disk::Error::InUse { .. });
        let hint = match error {
            disk::Error::InUse { .. } => "wait for it or end it, or give another directory with --data",
            disk::Error::Corrupt { .. } => {
                "the directory is unchanged: restore it from a backup, or give another directory with --data"
            }
            disk::Error::Full { .. }
            | disk::Error::Failed { .. }
            | disk::Error::Open { .. }
            | disk::Error::Stopped => "set --data or TRELLIS_DATA to a directory that this user can write to",
        };
        NotOpened { why: format!("{error}\n\nhint: {hint}"), in_use }
    })?;
    let bus = bus::Disk::open(&disk, namespace.clone()).await?;
    let store = coordinator::store::Disk::new(disk, partitions);
    Ok((Bus::Disk(bus), Store::Disk(store)))
}

/// The address at which programs on the server's machine reach it.
pub(crate) fn url_of(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}
