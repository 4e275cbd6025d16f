//! Addresses of the servers, read once from the command line and the environment, and connections
//! to them. A command uses the first of these that is named: a Trellis server, NATS servers, or a
//! directory. It reaches a directory through the process that has it open, or else opens the
//! directory itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bus::{Bus, ClientBus, Connect, Http, Nats};
use client::Client;
use coordinator::store::{Redis, Store};
use domain::{TraceId, agent_policy::AgentPolicy, subject::Namespace, wording::with_causes};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::cluster::{
    credentials::{Credentials, check_argument},
    embedded::{Deployment, NotOpened, Shape},
    failure::{Unreachable, unreachable},
    local_directory::{self, Door},
    process_id,
};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Servers {
    /// A Trellis server (`trellis dev` or `trellis gateway`), such as http://127.0.0.1:7420. It takes precedence over --nats-url.
    #[arg(long, global = true, value_name = "URL", env = "TRELLIS_URL", hide_env_values = true)]
    url: Option<String>,
    /// The NATS servers of the cluster, separated by commas.
    #[arg(long, global = true, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    nats_url: Option<String>,
    /// The Redis server, for coordinators only.
    #[arg(long, global = true, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    redis_url: Option<String>,
    /// The directory in which `run` and `dev` store runs, for commands without a server. By default, trellis in XDG_DATA_HOME, or
    /// ~/.local/share/trellis. If another process has the directory open, commands connect to that process.
    #[arg(long, global = true, value_name = "DIR", env = "TRELLIS_DATA", hide_env_values = true, value_parser = local_directory::file())]
    data: Option<PathBuf>,
    /// Prefix of every subject, stream and key, so that deployments can share servers.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "TRELLIS_NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    namespace: Namespace,
    /// The address of a run in a trace viewer, with `{trace_id}` in it.
    #[arg(long, global = true, value_name = "TEMPLATE", env = "TRELLIS_TRACE_URL", hide = true)]
    trace_url: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
    /// The cluster that this command opened in the directory.
    #[arg(skip)]
    opened: Mutex<Option<Deployment>>,
}

/// The place where a command runs a task.
#[derive(Debug)]
pub(crate) enum RunTarget {
    /// A cluster of other processes.
    Cluster(ClientBus),
    /// A `trellis dev` of this user that has the directory open.
    Dev(ClientBus),
    /// In this process, in a directory or in memory.
    Here(Option<PathBuf>),
}

/// The result of starting a cluster in this process.
#[derive(Debug)]
pub(crate) enum EmbeddedCluster {
    /// The cluster is running. The text says why its directory could not be used, if nothing is
    /// stored.
    Here(Deployment, Option<String>),
    /// No cluster was started: a `trellis dev` has the directory open, and this is its bus.
    Dev(ClientBus),
}

/// The address at which Jaeger shows a trace.
const JAEGER: &str = "http://localhost:16686/trace/{trace_id}";

/// The timeout of one request of a command.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);
/// The time for which a request is retried while no coordinator listens. A coordinator may be
/// restarting, and an embedded one starts at the same time as the command.
const PATIENCE: Duration = Duration::from_secs(5);

/// The client of a command. Its administrative messages carry the user's name.
pub(crate) fn client_of(bus: impl Into<ClientBus>) -> Client {
    Client::new(bus, "cli").sent_by(process_id::user()).with_timeout(REQUEST).with_patience(PATIENCE)
}

impl Servers {
    /// Restores addresses that contain a login. [`worker::hide_keys`] removed them from the
    /// environment.
    pub(crate) fn take_handed(&mut self) {
        for (url, variable) in [(&mut self.nats_url, "NATS_URL"), (&mut self.redis_url, "REDIS_URL")] {
            *url = url.take().or_else(|| worker::own_variable(variable));
        }
    }

    /// The files with the secrets of the connections, each with the name that logs show in place of
    /// its value.
    pub(crate) fn secret_files(&self) -> Vec<(String, PathBuf)> {
        self.credentials.secret_files()
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The id of a run, with its address in a trace viewer if one is configured or spans are
    /// exported.
    pub(crate) fn trace_link(&self, trace_id: TraceId, is_exported: bool) -> String {
        let named = self.trace_url.as_deref().filter(|url| !url.is_empty());
        match named.or(is_exported.then_some(JAEGER)) {
            Some(template) => {
                format!("{trace_id}  {}", template.replace("{trace_id}", &trace_id.to_string()))
            }
            None => trace_id.to_string(),
        }
    }

    /// The NATS address. An empty variable is treated as unset, because shells and compose files
    /// unset variables that way.
    pub(crate) fn nats_url(&self) -> Option<&str> {
        self.nats_url.as_deref().filter(|url| !url.is_empty())
    }

    pub(crate) fn redis_url(&self) -> Option<&str> {
        self.redis_url.as_deref().filter(|url| !url.is_empty())
    }

    /// The directory of a cluster of one process.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.data.as_deref().filter(|path| !path.as_os_str().is_empty())
    }

    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    /// True if the options or the environment name a cluster.
    pub(crate) fn has_cluster(&self) -> bool {
        self.url().is_some() || self.nats_url().is_some() || self.directory().is_some()
    }

    /// The bus of the server that the options name, or `None` without one.
    async fn named(&self) -> anyhow::Result<Option<ClientBus>> {
        if let Some(url) = self.url() {
            let of_directory = || {
                let directory =
                    self.directory().map(Path::to_owned).or_else(local_directory::default_directory);
                Door::read_of(&directory?).filter(|door| door.url == url.trim_end_matches('/'))?.token
            };
            let token = self.credentials.token()?.or_else(of_directory);
            let http = Http::new(url, token.as_deref(), self.namespace.clone());
            return http.map(|http| Some(http.into())).map_err(|error| unreachable(&error));
        }
        match self.nats_url() {
            Some(_) => self.nats().await.map(|bus| Some(bus.into())),
            None => Ok(None),
        }
    }

    /// A client of the cluster, for commands that need one.
    pub(crate) async fn cluster(&self) -> anyhow::Result<Client> {
        self.bus().await.map(client_of)
    }

    /// The bus for a command: of the named servers, of the process that has the directory open, or
    /// of the directory itself. This command opens the directory and holds it until
    /// [`Servers::close`].
    async fn bus(&self) -> anyhow::Result<ClientBus> {
        if let Some(bus) = self.named().await? {
            return Ok(bus);
        }
        let mut opened = self.opened.lock().await;
        if let Some(deployment) = &*opened {
            return Ok(deployment.bus().clone().into());
        }
        let of_user = || local_directory::default_directory().filter(|directory| directory.is_dir());
        let Some(directory) = self.directory().map(Path::to_owned).or_else(of_user) else {
            anyhow::bail!(
                "this command needs a server or a directory of runs: no server is named, no `trellis dev` runs, and no run is \
                stored here\n\nhint: start with `trellis run` or `trellis dev`, or set TRELLIS_URL, NATS_URL or --data"
            );
        };
        if !directory.is_dir() {
            anyhow::bail!(
                "the directory {} does not exist\n\nhint: `trellis run --data` and `trellis dev --data` create it",
                directory.display()
            );
        }
        let began = Instant::now();
        loop {
            if let Some((_, bus)) = Door::of(&directory, &self.namespace).await? {
                return Ok(bus);
            }
            match Deployment::of_directory(&self.namespace, &directory).await {
                Ok(deployment) => {
                    let bus = deployment.bus().clone();
                    *opened = Some(deployment);
                    return Ok(bus.into());
                }
                Err(error) if is_in_use(&error) && began.elapsed() < IN_USE => sleep(AGAIN).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// An error for a directory that only this command has open: it names the command that
    /// continues its runs.
    pub(crate) fn nobody_serves(&self, client: &Client) -> Option<Unreachable> {
        let ClientBus::Direct(Bus::Disk(_)) = client.bus() else { return None };
        let named = self.directory().map(|directory| format!(" --data {}", directory.display()));
        let named = named.unwrap_or_default();
        Some(Unreachable(format!(
            "no process serves this directory: `trellis dev{named}` continues its runs"
        )))
    }

    /// The place where a task runs: an existing cluster, or this process. With `keep`, a run in
    /// this process is stored in a directory.
    pub(crate) async fn home(&self, keep: bool) -> anyhow::Result<RunTarget> {
        if let Some(bus) = self.named().await? {
            return Ok(RunTarget::Cluster(bus));
        }
        if !keep {
            return Ok(RunTarget::Here(None));
        }
        let directory = self.directory().map(Path::to_owned).or_else(local_directory::default_directory);
        let Some(directory) = directory else { return Ok(RunTarget::Here(None)) };
        match Door::of(&directory, &self.namespace).await? {
            Some((door, bus)) if door.is_open => Ok(RunTarget::Dev(bus)),
            Some(_) | None => Ok(RunTarget::Here(Some(directory))),
        }
    }

    /// Starts a cluster in this process, in a directory or in memory, with a worker of these
    /// settings. If the default directory can't be opened, the cluster runs in memory, and the text
    /// says why. A directory that the user named must open.
    pub(crate) async fn embedded(
        &self,
        directory: Option<&Path>,
        settings: worker::Settings,
        policy: Option<AgentPolicy>,
    ) -> anyhow::Result<EmbeddedCluster> {
        let shape = Shape { directory, ..Shape::default() };
        match self.once_free(&shape, &settings, policy.as_ref()).await {
            Ok(deployment) => Ok(EmbeddedCluster::Here(deployment, None)),
            Err((_, Some(bus))) => Ok(EmbeddedCluster::Dev(bus)),
            Err((error, None)) if self.directory().is_none() && error.is::<NotOpened>() => {
                let shape = Shape::default();
                let deployment = Deployment::embedded(&self.namespace, shape, settings, policy).await?;
                Ok(EmbeddedCluster::Here(deployment, Some(error.to_string())))
            }
            Err((error, None)) => Err(error),
        }
    }

    /// Starts a cluster in this process. While another command has the directory open, the start is
    /// retried for [`IN_USE`]. A `trellis dev` does not give the directory back soon, so the error
    /// then comes with its bus.
    pub(crate) async fn once_free(
        &self,
        shape: &Shape<'_>,
        settings: &worker::Settings,
        policy: Option<&AgentPolicy>,
    ) -> Result<Deployment, (anyhow::Error, Option<ClientBus>)> {
        let began = Instant::now();
        loop {
            let (settings, policy) = (settings.clone(), policy.cloned());
            let begun = Deployment::embedded(&self.namespace, shape.clone(), settings, policy).await;
            let error = match (begun, shape.directory) {
                (Ok(deployment), _) => return Ok(deployment),
                (Err(error), Some(directory)) if is_in_use(&error) => {
                    match Door::of(directory, &self.namespace).await {
                        Ok(Some((door, bus))) if door.is_open => return Err((error, Some(bus))),
                        Ok(_) | Err(_) => error,
                    }
                }
                (Err(error), _) => return Err((error, None)),
            };
            if began.elapsed() >= IN_USE {
                return Err((error, None));
            }
            sleep(AGAIN).await;
        }
    }

    /// Ends the cluster that [`Servers::cluster`] opened, so that other processes can open the
    /// directory. All acknowledged writes are stored. Returns false if the cluster did not end in
    /// time.
    #[must_use]
    pub(crate) async fn close(&self) -> bool {
        match self.opened.lock().await.take() {
            Some(deployment) => deployment.close().await,
            None => true,
        }
    }

    /// The bus of NATS servers, for commands that are part of a cluster.
    pub(crate) async fn nats(&self) -> anyhow::Result<Bus> {
        let Some(url) = self.nats_url() else {
            anyhow::bail!(
                "this command needs a NATS server, and none is named\n\nhint: set NATS_URL or --nats-url, such as \
                nats://127.0.0.1:4222; `trellis dev` needs no servers"
            );
        };
        let name = format!("trellis {}", env!("CARGO_PKG_VERSION"));
        check_argument(url, "--nats-url", "NATS_URL")?;
        let to = Connect {
            login: self.credentials.nats()?,
            tls: self.credentials.nats_tls()?,
            inbox: self.credentials.inbox()?,
            js_api: self.credentials.js_api(),
            ..Connect::new(url, self.namespace.clone(), name)
        };
        Nats::connect(&to).await.map(Bus::Nats).map_err(|error| unreachable(&error))
    }

    /// The store of the coordinators' traces.
    pub(crate) async fn store(&self, partitions: u16) -> anyhow::Result<Store> {
        let Some(url) = self.redis_url() else {
            anyhow::bail!(
                "a coordinator stores its runs in Redis, and no Redis server is named\n\nhint: set REDIS_URL or give \
                --redis-url, such as redis://127.0.0.1:6379"
            );
        };
        let store = self.redis(url, partitions).await?;
        store.map(Store::Redis).map_err(|error| {
            let said = with_causes(&error);
            let hint = match said.contains("NOAUTH") || said.contains("WRONGPASS") || said.contains("NOPERM")
            {
                true => {
                    "give REDIS_USER, and REDIS_PASSWORD_FILE or REDIS_PASSWORD, as the server's ACL has them"
                }
                false => "check that Redis runs there; `trellis doctor` checks each server",
            };
            Unreachable(format!("{said}\n\nhint: {hint}")).into()
        })
    }

    /// A connection to Redis with our credentials. The outer error is a mistake in the credentials,
    /// the inner one a failure of the connection.
    pub(crate) async fn redis(
        &self,
        url: &str,
        partitions: u16,
    ) -> anyhow::Result<Result<Redis, coordinator::store::Error>> {
        check_argument(url, "--redis-url", "REDIS_URL")?;
        let login = self.credentials.redis()?;
        Ok(Redis::connect_as(url, &login, self.namespace.clone(), partitions).await)
    }

    /// True if Redis answers a client that sends no login.
    pub(crate) async fn redis_is_open(&self, url: &str, partitions: u16) -> anyhow::Result<bool> {
        let nobody =
            coordinator::store::Login { user: None, password: None, tls: self.credentials.redis()?.tls };
        let url = url.split(',').map(|server| worker::without_login(server).0).collect::<Vec<_>>().join(",");
        match Redis::connect_as(&url, &nobody, self.namespace.clone(), partitions).await {
            Ok(redis) => Ok(Store::Redis(redis).ping().await.is_ok()),
            Err(_) => Ok(false),
        }
    }
}

/// The time for which opening is retried while another process has the directory open. A command
/// that only reads has it for a moment.
const IN_USE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

fn is_in_use(error: &anyhow::Error) -> bool {
    error.downcast_ref::<NotOpened>().is_some_and(|not_opened| not_opened.in_use)
}
