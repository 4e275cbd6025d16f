//! Where the servers are, and how to reach them. Read once, from the command line and the environment.

use std::{fmt, path::PathBuf};

use coordinator::store::{Redis, Store};
use shared::{
    bus::{self, Bus, Connect, Nats},
    subject::Namespace,
    text::with_causes,
};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Servers {
    /// The NATS servers of the cluster; more than one with commas.
    #[arg(long, global = true, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    nats_url: Option<String>,
    /// A credentials file for NATS.
    #[arg(long, global = true, value_name = "FILE", env = "NATS_CREDS")]
    nats_creds: Option<PathBuf>,
    /// The Redis server; only coordinators need it.
    #[arg(long, global = true, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    redis_url: Option<String>,
    /// What stands before every subject, stream and key, so that deployments can share servers.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "TRELLIS_NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    namespace: Namespace,
}

/// A server or coordinator that could not be reached: the process ends with a code of its own.
#[derive(Debug)]
pub(crate) struct Unreachable(pub(crate) String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

impl Servers {
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// An empty variable is none: that is how a shell or a compose file unsets one.
    pub(crate) fn nats_url(&self) -> Option<&str> {
        self.nats_url.as_deref().filter(|url| !url.is_empty())
    }

    pub(crate) fn redis_url(&self) -> Option<&str> {
        self.redis_url.as_deref().filter(|url| !url.is_empty())
    }

    /// The bus of a cluster, for commands that make no sense without one.
    pub(crate) async fn cluster(&self) -> anyhow::Result<Bus> {
        let Some(url) = self.nats_url() else {
            anyhow::bail!(
                "this command talks to a cluster, and no NATS server is named\n\nhint: set NATS_URL or give \
                 --nats-url, such as nats://127.0.0.1:4222; `trellis run` and `trellis dev` work without"
            );
        };
        let name = format!("trellis {}", env!("CARGO_PKG_VERSION"));
        let creds = self.nats_creds.clone().filter(|path| !path.as_os_str().is_empty());
        let to = Connect { url: url.into(), creds, namespace: self.namespace.clone(), name };
        Nats::connect(&to).await.map(Bus::Nats).map_err(|error| unreachable(&error))
    }

    /// Where coordinators keep traces.
    pub(crate) async fn store(&self, partitions: u16) -> anyhow::Result<Store> {
        let Some(url) = self.redis_url() else {
            anyhow::bail!(
                "a coordinator keeps its traces in Redis, and no Redis server is named\n\nhint: set REDIS_URL or \
                 give --redis-url, such as redis://127.0.0.1:6379"
            );
        };
        let store = Redis::connect(url, self.namespace.clone(), partitions).await.map(Store::Redis);
        store.map_err(|error| {
            let said = with_causes(&error);
            Unreachable(format!(
                "{said}\n\nhint: is Redis running there? `trellis doctor` looks at each server"
            ))
            .into()
        })
    }
}

/// What went wrong with the bus, with what to do about it; a connection has its own exit code.
pub(crate) fn unreachable(error: &bus::Error) -> anyhow::Error {
    let hint = match error {
        bus::Error::Connect { .. } => {
            "is nats-server running there, with JetStream (`nats-server -js`)? `trellis doctor` looks at each server"
        }
        bus::Error::TooOld { .. } => "install a newer nats-server; streams and data are kept",
        bus::Error::Mismatch { .. } => {
            "another version or configuration made it; change it with the `nats` tool, or use another --namespace"
        }
        bus::Error::TooLarge { .. } => "objects of that size are not meant to be: who stored it?",
        bus::Error::Failed { .. } => "`trellis doctor` looks at each server",
    };
    Unreachable(format!("{error}\n\nhint: {hint}")).into()
}
