//! Addresses of the servers, read once from the command line and the environment, and connections to them.

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
    /// The NATS servers of the cluster, separated by commas.
    #[arg(long, global = true, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    nats_url: Option<String>,
    /// A credentials file for NATS.
    #[arg(long, global = true, value_name = "FILE", env = "NATS_CREDS")]
    nats_creds: Option<PathBuf>,
    /// The Redis server; only coordinators need it.
    #[arg(long, global = true, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    redis_url: Option<String>,
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
}

/// A server or coordinator could not be reached. It has an exit code of its own.
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

    /// An empty variable counts as unset: shells and compose files unset variables that way.
    pub(crate) fn nats_url(&self) -> Option<&str> {
        self.nats_url.as_deref().filter(|url| !url.is_empty())
    }

    pub(crate) fn redis_url(&self) -> Option<&str> {
        self.redis_url.as_deref().filter(|url| !url.is_empty())
    }

    /// The bus of a cluster, for commands that need one.
    pub(crate) async fn cluster(&self) -> anyhow::Result<Bus> {
        let Some(url) = self.nats_url() else {
            anyhow::bail!(
                "this command needs a cluster, and no NATS server is named\n\nhint: set NATS_URL or give \
                 --nats-url, such as nats://127.0.0.1:4222; `trellis run` and `trellis dev` need no server"
            );
        };
        let name = format!("trellis {}", env!("CARGO_PKG_VERSION"));
        let creds = self.nats_creds.clone().filter(|path| !path.as_os_str().is_empty());
        let to = Connect { url: url.into(), creds, namespace: self.namespace.clone(), name };
        Nats::connect(&to).await.map(Bus::Nats).map_err(|error| unreachable(&error))
    }

    /// The store in which coordinators keep traces.
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
                "{said}\n\nhint: check that Redis runs there; `trellis doctor` checks each server"
            ))
            .into()
        })
    }
}

/// An error of the bus with a hint, as an error that ends the command with the exit code for "cannot connect".
pub(crate) fn unreachable(error: &bus::Error) -> anyhow::Error {
    let hint = match error {
        bus::Error::Connect { .. } => {
            "check that nats-server runs there with JetStream (`nats-server -js`); `trellis doctor` checks each server"
        }
        bus::Error::TooOld { .. } => "install a newer nats-server; its streams and data stay",
        bus::Error::Mismatch { .. } => {
            "another version or configuration created it; change it with the `nats` tool, or use another --namespace"
        }
        bus::Error::TooLarge { .. } => "Trellis stores no objects of that size; find out which program did",
        bus::Error::Failed { .. } => "`trellis doctor` checks each server",
    };
    Unreachable(format!("{error}\n\nhint: {hint}")).into()
}
