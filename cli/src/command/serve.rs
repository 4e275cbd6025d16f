//! `trellis coordinator` and `trellis worker`: the long-running processes of a cluster. The first
//! signal drains the process, the second ends it at once.

use std::{error::Error, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use bus::{ExistingLimits, Topology};
use domain::{
    Usd, WorkerId, decode, id::PoolName, limits::Settings, subject::Partition, wording::with_causes,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{
        connect::Servers,
        failure::{MORE_ROOM, unreachable},
        process_id,
    },
    command::webhooks::WebhookFile,
    input::{
        file::read_value,
        log_keys::LogKeys,
        parse,
        worker_config::{WorkerConfig, hide_keys, read_policy},
    },
    terminal::{
        ending::{EXIT_CODES, Ending},
        output,
        signals::Signals,
    },
};

/// Run a coordinator, which decides about budgets, contexts and graphs.
///
/// It requires NATS with JetStream, and Redis. Any number of coordinators can run, and any can be killed. On SIGTERM or Ctrl-C, it
/// finishes its current messages and ends.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "Examples:\n  NATS_URL=nats://127.0.0.1:4222 REDIS_URL=redis://127.0.0.1:6379 trellis coordinator\n\n{EXIT_CODES}"
))]
pub(crate) struct CoordinatorArgs {
    /// Its name in the cluster; by default, from the host name.
    #[arg(long)]
    id: Option<WorkerId>,
    #[command(flatten)]
    streams: StreamArgs,
    /// Address for health checks, such as 0.0.0.0:8080.
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// Limits and times of every run: YAML, JSON or TOML.
    ///
    /// A missing field has its default.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// The highest cost limit of a run, in dollars.
    ///
    /// It bounds the limits of submissions and agent profiles.
    #[arg(long, value_name = "USD", value_parser = parse::ceiling, allow_hyphen_values = true)]
    max_cost_usd: Option<Usd>,
    /// The policy of agent profiles, the same file as that of the workers.
    ///
    /// A profile that violates it is refused when it is applied. Workers refuse it in any case.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    webhooks: WebhookFile,
    #[command(flatten)]
    keys: LogKeys,
    /// Accept unsigned messages.
    ///
    /// Only for the time in which a deployment with live runs begins to use a key.
    #[arg(long, hide_short_help = true)]
    accept_unsigned: bool,
    /// Trust the sender that the NATS server writes into administrative messages (`Nats-Request-Info`).
    ///
    /// Only for administrators in another NATS account than the coordinators: within one account, any client can write it.
    #[arg(long, hide_short_help = true)]
    trust_request_info: bool,
    /// Abort on purpose, to test failures: after a message was `received`, `decided`, `committed`, `sent` or
    /// `acknowledged` for the N-th time.
    #[arg(long, hide_short_help = true, value_name = "POINT[:N]")]
    crash_at: Option<coordinator::Crash>,
}

/// The streams of a deployment: the same options for every coordinator, and for `provision`.
#[derive(Debug, clap::Args)]
pub(crate) struct StreamArgs {
    /// Number of partitions of the runs. It can't be changed later.
    #[arg(long, value_name = "N", default_value_t = Topology::default().partitions)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(Partition::MAX_COUNT)))]
    partitions: u16,
    /// Number of NATS servers that keep a copy of each stream.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Size limit of a queue, such as 512MiB.
    ///
    /// NATS reserves it for each of three queues.
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    max_queue_bytes: Option<i64>,
    /// Size limit of a log, such as 2GiB.
    ///
    /// NATS reserves it for each of three logs, and for the outputs.
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    max_log_bytes: Option<i64>,
    /// Size limit of all journals; by default, --max-log-bytes.
    ///
    /// If 80 % are used, new runs are refused.
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    max_journal_bytes: Option<i64>,
    /// Size limit of all outputs; by default, --max-log-bytes.
    ///
    /// If 80 % are used, new runs are refused.
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    max_output_bytes: Option<i64>,
    /// Pools whose queues are made at the start, separated by commas.
    ///
    /// The queue of another pool is made with its first work.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "default")]
    pools: Vec<PoolName>,
    /// The time for which ended runs are stored, such as 7d.
    ///
    /// Their journals and outputs are stored for the same time.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "7d")]
    retention: Duration,
}

impl StreamArgs {
    fn topology(&self) -> Topology {
        let default = Topology::default();
        Topology {
            partitions: self.partitions,
            replicas: usize::from(self.replicas),
            max_queue_bytes: self.max_queue_bytes.unwrap_or(default.max_queue_bytes),
            max_log_bytes: self.max_log_bytes.unwrap_or(default.max_log_bytes),
            max_journal_bytes: self.max_journal_bytes,
            max_object_bytes: self.max_output_bytes,
            keep_journals: default.keep_journals.max(self.retention),
            pools: self.pools.clone(),
            ..default
        }
    }
}

/// Create the streams and queues of a deployment, or change their limits.
///
/// Coordinators create missing streams, and keep the limits of existing ones. On NATS servers on which they lack that permission, this
/// command needs the credentials of the role `provisioner` (`trellis auth`). A repetition changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ProvisionArgs {
    #[command(flatten)]
    streams: StreamArgs,
    /// Also lower limits of existing streams, which deletes their oldest messages or their replicas.
    #[arg(long)]
    allow_lower: bool,
}

/// Run a worker, which runs the agents of a pool.
///
/// It requires NATS. On SIGTERM or Ctrl-C, it finishes or hands back its contexts and ends.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct WorkerArgs {
    /// Its name in the cluster; by default, from the host name.
    #[arg(long)]
    id: Option<WorkerId>,
    /// Run the agents whose profiles name this pool.
    #[arg(long, default_value = "default")]
    pool: PoolName,
    /// Number of agents that run at the same time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    slots: u16,
    /// Address for health checks, such as 0.0.0.0:8081.
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// The time for running agents after a signal; then they are handed back.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "20s")]
    drain: Duration,
    /// Abort on purpose, to test failures: after money was `held`, a model `answered`, its answer was
    /// `written` to the journal, a tool was `called`, or a result was `finished` or `reported`, for the N-th
    /// time.
    #[arg(long, hide_short_help = true, value_name = "POINT[:N]")]
    crash_at: Option<worker::Crash>,
    /// Allow the built-in `crash` agent to end this process. For tests.
    #[arg(long, hide_short_help = true)]
    allow_crash: bool,
    #[command(flatten)]
    config: WorkerConfig,
}

pub(crate) async fn coordinator(args: CoordinatorArgs, servers: &Servers) -> anyhow::Result<Ending> {
    hide_keys(&worker::Settings::default());
    let mut config = coordinator::Config::new(args.id.unwrap_or_else(|| process_id::fresh("coordinator")));
    config.topology = args.streams.topology();
    config.retention = args.streams.retention;
    config.health = args.health;
    config.trust_request_info = args.trust_request_info;
    config.crash = args.crash_at.unwrap_or_default();
    if let Some(path) = &args.settings {
        let read = read_value(path).and_then(|document| {
            decode::value::<Settings>(&document.value).map_err(|problems| document.wrong(problems))
        });
        match read {
            Ok(settings) => config.settings = settings,
            Err(unusable) => return Ok(unusable.explain_as(path, "a valid settings file of a deployment")),
        }
    }
    if let Some(path) = &args.policy {
        match read_policy(path) {
            Ok(policy) => config.agent_policy = Some(policy),
            Err(ending) => return Ok(ending),
        }
    }
    config.webhooks = match args.webhooks.read() {
        Ok(webhooks) => webhooks,
        Err(ending) => return Ok(ending),
    };
    if args.max_cost_usd.is_some() {
        config.settings.maximum.max_cost_usd = args.max_cost_usd;
    }
    config.keys = match args.keys.read() {
        Ok(keys) => keys,
        Err(ending) => return Ok(ending),
    };
    worker::hide_in_log(&args.keys.secret_file().into_iter().collect::<Vec<_>>());
    match (&config.keys, args.accept_unsigned) {
        (None, true) => {
            output::error("--accept-unsigned needs a key\n\nhint: give --log-key-file too");
            return Ok(Ending::Unreadable);
        }
        (None, false) => tracing::warn!(
            "no key of the deployment is given: any client that can write to NATS or Redis can change the costs and \
                decisions of runs. Give --log-key-file (docs/authenticity.md)"
        ),
        (Some(_), false) => {}
        (Some(keys), true) => {
            tracing::warn!(
                "unsigned messages are accepted: restart without --accept-unsigned as soon as possible"
            );
            config.keys = Some(keys.clone().accepting_unsigned());
        }
    }
    // A missing Redis address is reported before the connection to NATS.
    if servers.redis_url().is_none() && servers.nats_url().is_some() {
        servers.store(args.streams.partitions).await?;
    }
    let bus = servers.nats().await?;
    let store = servers.store(args.streams.partitions).await?;
    until_signal(|stop| async move { coordinator::run(config, bus, store, stop.cancelled_owned()).await })
        .await
}

pub(crate) async fn provision(args: ProvisionArgs, servers: &Servers) -> anyhow::Result<Ending> {
    let bus = servers.nats().await?;
    let existing = if args.allow_lower { ExistingLimits::Change } else { ExistingLimits::Raise };
    bus.set_up_as(&args.streams.topology(), existing).await.map_err(|error| unreachable(&error))?;
    output::note("the streams and queues exist");
    Ok(Ending::Completed)
}

pub(crate) async fn worker(args: WorkerArgs, servers: &Servers) -> anyhow::Result<Ending> {
    let (settings, policy) = match args.config.read() {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    if worker::runs_as_root() {
        output::note(
            "warning: this worker runs as root, so a program that breaks out of its sandbox is root too\n\nhint: run it as an \
             ordinary user, as the Dockerfile does",
        );
    }
    let bus = servers.nats().await?;
    let config = worker::Config {
        pool: args.pool,
        slots: usize::from(args.slots),
        drain: args.drain,
        may_crash: args.allow_crash,
        crash: args.crash_at.unwrap_or_default(),
        health: args.health,
        settings,
        secret_files: servers.secret_files(),
        policy: policy.unwrap_or_default(),
        sandbox: Some(worker::OWN_EXECUTABLE.into()),
        ..worker::Config::new(args.id.unwrap_or_else(|| process_id::fresh("worker")))
    };
    until_signal(|stop| async move {
        worker::tell_layers(&config).await;
        worker::run(config, bus, stop.cancelled_owned()).await
    })
    .await
}

/// Runs until the first signal, then drains. The second signal ends the process at once.
pub(crate) async fn until_signal<E: Error + 'static, F: Future<Output = Result<(), E>>>(
    process: impl FnOnce(CancellationToken) -> F,
) -> anyhow::Result<Ending> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let stop = CancellationToken::new();
    let running = process(stop.clone());
    let second_signal = async {
        signals.next().await;
        output::note("draining; a second signal ends the process at once");
        stop.cancel();
        signals.next().await;
    };
    tokio::select! {
        ended = running => match ended {
            Ok(()) => Ok(Ending::Completed),
            Err(error) => {
                output::error(&format!("{}\n\nhint: {}", with_causes(&error), hint(&error)));
                Ok(Ending::Failed)
            }
        },
        () = second_signal => {
            output::note("ended at once; other processes take over its work");
            Ok(Ending::Failed)
        }
    }
}

fn hint(error: &(dyn Error + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(bus::Error::NoRoom { .. }) = error.downcast_ref() {
            return MORE_ROOM;
        }
        cause = error.source();
    }
    "`trellis doctor` checks each server"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_enough_storage_fails_with_a_hint() {
        let no_room = || bus::Error::NoRoom { name: "AGENT_EVENT".into(), bytes: 1, all: 2 };
        let worker = "w1".parse().unwrap();
        assert_eq!(hint(&coordinator::Error::from(no_room())), MORE_ROOM);
        assert_eq!(hint(&worker::Error::Bus { worker, doing: "start", source: no_room() }), MORE_ROOM);
        let other = bus::Error::Failed { doing: "reserve 1 GiB of storage".into(), reason: "no".into() };
        assert_ne!(hint(&coordinator::Error::from(other)), MORE_ROOM);
    }
}
