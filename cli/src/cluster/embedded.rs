//! A cluster in this process: a coordinator, and a worker if there is work to be done, on a bus and a store in memory, which end with
//! the command, or in a directory, which outlives it.

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

/// Agents that run at once in this process. They mostly wait for models and tools.
const SLOTS: usize = 64;
/// How long ended runs are kept.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// How often it is noted how much of the log of a directory is in its store: the next process looks only at what is behind.
const MARK_EVERY: Duration = Duration::from_millis(500);
/// How long requests may go on when the command ends.
const CLIENTS_END: Duration = Duration::from_secs(2);
/// For so long a client may think between two requests of a command.
const QUIET: Duration = Duration::from_millis(200);
/// How long running agents may take to end when the command ends.
const DRAIN: Duration = Duration::from_secs(5);

/// A directory could not be opened.
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

/// How a cluster in this process is begun.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape<'d> {
    /// Where everything is kept; nowhere, if there is none.
    pub(crate) directory: Option<&'d Path>,
    /// Address for health checks.
    pub(crate) health: Option<SocketAddr>,
    /// Whether the runs of schedules are begun when they are due: by who stays.
    pub(crate) schedules: bool,
    /// Who is told of outcomes and questions.
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
    /// Stops the worker: it hands back what it has not done while the coordinator still answers.
    drain: CancellationToken,
    /// Tells that the worker has ended, if there is one.
    drained: Option<CancellationToken>,
    /// The directory that says how others reach this process.
    door: Option<PathBuf>,
    /// When others asked it last.
    seen: Option<gateway::LastRequest>,
    /// Where the worker in this process may be killed.
    playground: gateway::Playground,
    /// Lets the worker begin.
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

    /// A coordinator and a worker in this process, in a directory or in memory. The worker begins when it is let.
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
            // Whoever runs it here gives it the profiles as well: nobody else has the token.
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
                    // All that it was at is dropped, as by a power cut: its leases expire.
                    () = playground.kills_worker() => tracing::warn!("the worker was killed on the playground; another one begins"),
                }
            }
        });
        Ok(deployment)
    }

    /// A coordinator in this process, which answers about the runs of a directory; nobody works on them, and no time passes in them.
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
            // What the directory has acknowledged it keeps, so what is in the log is in the store; and commands that only look do not live
            // long enough for a mark that waits.
            config.mark_every = MARK_EVERY;
            config.mark_lag = Duration::ZERO;
        }
        let ended = coordinator::run(config, bus.clone(), store, stop.clone().cancelled_owned());
        tasks.spawn(async { ended.await.context("the coordinator in this process failed") });
        Ok(Self::of(bus, tasks, stop))
    }

    /// Serves others over HTTP until it is closed. Returns the address, and what signs its owner in to the page, if that is needed.
    pub(crate) async fn serve(
        &mut self,
        mut config: gateway::Config,
    ) -> Result<(SocketAddr, Option<gateway::SignIn>), gateway::Error> {
        // Whoever waits for the end of this process waits for its clients, too.
        config.limits.stop_within = CLIENTS_END;
        let server = gateway::Server::bind(config, self.bus.clone()).await?;
        let told = (server.address(), server.sign_in());
        self.seen = Some(server.seen());
        let serving = server.serve(self.stop.clone().cancelled_owned());
        self.tasks.spawn(async { serving.await.context("the HTTP server in this process failed") });
        Ok(told)
    }

    /// Tells those who would open the directory how to reach this process instead.
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

    /// What lets the worker begin, when it is cancelled: until then nothing is run.
    pub(crate) fn begin(&self) -> CancellationToken {
        self.begin.clone()
    }

    /// What the page of this process may do to its worker.
    pub(crate) fn playground(&self) -> gateway::Playground {
        self.playground.clone()
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.bus
    }

    pub(crate) fn client(&self) -> Client {
        client_of(self.bus.clone())
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
        if let Some(directory) = self.door.take() {
            Door::remove(&directory);
            // Whoever has just come in asks more than once; nobody comes any more.
            let until = Instant::now() + CLIENTS_END;
            while Instant::now() < until && self.seen.as_ref().is_some_and(|seen| seen.within(QUIET)) {
                sleep(QUIET / 4).await;
            }
        }
        self.drain.cancel();
        if let Some(drained) = &self.drained {
            // It gives running agents DRAIN, and tells the coordinator of the rest.
            tokio::time::timeout(2 * DRAIN, drained.cancelled()).await.ok();
        }
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(2 * DRAIN, all).await.is_ok()
    }
}

/// The bus and the store of a directory.
async fn kept(namespace: &Namespace, directory: &Path, partitions: u16) -> anyhow::Result<(Bus, Store)> {
    let disk = Disk::open(directory).map_err(|error| {
        let in_use = matches!(error, disk::Error::InUse { .. });
        let hint = match error {
            disk::Error::InUse { .. } => "wait for it or end it, or give another directory with --data",
            disk::Error::Corrupt { .. } => {
                "nothing in it was changed: restore it from a copy, or give another directory with --data"
            }
            disk::Error::Full { .. }
            | disk::Error::Failed { .. }
            | disk::Error::Open { .. }
            | disk::Error::Stopped => {
                "--data, or TRELLIS_DATA, names a directory that this user may write to"
            }
        };
        NotOpened { why: format!("{error}\n\nhint: {hint}"), in_use }
    })?;
    let bus = bus::Disk::open(&disk, namespace.clone()).await?;
    let store = coordinator::store::Disk::new(disk, partitions);
    Ok((Bus::Disk(bus), Store::Disk(store)))
}

/// The address of a server for whoever is on its machine.
pub(crate) fn url_of(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}
