//! `trellis doctor`: checks each server and process, with a hint for each problem. Read-only.

mod findings;
mod secrets;

use std::{path::Path, time::Duration};

use bus::{ClientBus, Topology, role};
use coordinator::store::{Durability, Store};
use domain::{ChildId, TraceId, subject::Subject, wording::with_causes};
use gateway::doctor::{self, Bounds, Findings, Level, shown};
use tokio::time::Instant;

use findings::{add_error, print};

use crate::{
    cluster::{access::DEFAULT_USER, connect::Servers, failure::unreachable, local_directory},
    input::parse,
    terminal::{ending::Ending, output::Output},
};

/// The time in which the collector must answer.
const COLLECTOR_WITHIN: Duration = Duration::from_secs(5);

/// Check the servers and processes of a cluster, with a hint for each problem.
///
/// NATS, Redis or both are checked, as they are named. A check that these credentials lack the permission for is left out, which is
/// not a failure; an observer has the most permissions.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 no check fails, 1 a check fails, 2 no server is named, 5 a server can't be reached."
)]
pub(crate) struct Args {
    /// Warn of a run without an event for this time that waits for no human, such as 10m.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse::duration)]
    stuck_after: Duration,
    /// Warn of a run that has not ended this long after its submission.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse::duration)]
    old_after: Duration,
}

impl Args {
    fn bounds(&self) -> Bounds {
        Bounds { stuck_after: self.stuck_after, old_after: self.old_after }
    }
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let mut findings = Findings::default();
    secrets::files(&servers.secret_files(), &mut findings);
    secrets::plain_connections([servers.url(), servers.redis_url()], &mut findings);
    let are_named = servers.nats_url().is_some() || servers.redis_url().is_some();
    if servers.url().is_some() || !are_named {
        if !servers.has_cluster() {
            // A default directory that does not exist is not a failed check, so this error ends the
            // command.
            servers.cluster().await?;
        }
        one_address(&args, servers, &mut findings).await;
        collector(&mut findings).await;
        return print(&findings, output);
    }
    match servers.nats_url() {
        Some(_) => nats(&args, servers, &mut findings).await,
        None => findings.add("nats", Level::Warn, "not checked", Some("set NATS_URL")),
    }
    match servers.redis_url() {
        Some(url) => redis(url, servers, &mut findings).await,
        None => findings.add("redis", Level::Warn, "not checked", Some("set REDIS_URL")),
    }
    collector(&mut findings).await;
    print(&findings, output)
}

/// Checks a cluster behind one address, which is a Trellis server or a directory, and its work.
async fn one_address(args: &Args, servers: &Servers, findings: &mut Findings) {
    let named = if servers.url().is_some() { "server" } else { "directory" };
    let asked = Instant::now();
    let bus = match servers.cluster().await {
        Ok(client) => client.bus().clone(),
        Err(error) => return add_error(findings, named, &error),
    };
    match (&bus, servers.directory()) {
        (ClientBus::Http(http), _) => match bus.ping().await {
            Ok(took) => {
                let found = format!("{} answers in {}", http.url(), shown(took));
                findings.add("server", Level::Ok, found, None);
                doctor::storage(&bus, findings).await;
                doctor::processes(&bus, &args.bounds(), findings).await;
                return;
            }
            Err(error) => return add_error(findings, "server", &unreachable(&error)),
        },
        (_, path) => {
            let path =
                path.map(Path::to_owned).or_else(local_directory::default_directory).unwrap_or_default();
            let found = format!(
                "{} opens in {}, and no other process has it open",
                path.display(),
                shown(asked.elapsed())
            );
            findings.add("directory", Level::Ok, found, None);
        }
    }
    doctor::examine_work(&bus, &args.bounds(), findings).await;
}

async fn nats(args: &Args, servers: &Servers, findings: &mut Findings) {
    let bus = match servers.cluster().await {
        Ok(client) => client.bus().clone(),
        Err(error) => return add_error(findings, "nats", &error),
    };
    match bus.ping().await {
        Ok(took) => {
            findings.add("nats", Level::Ok, format!("answers in {}, and is new enough", shown(took)), None)
        }
        Err(error) => findings.add("nats", Level::Fail, error.to_string(), None),
    }
    role(&bus, findings).await;
    doctor::streams(&bus, findings).await;
    doctor::stream_settings(&bus, findings).await;
    doctor::storage(&bus, findings).await;
    let hint = "set `sync_interval: always` in nats-server's jetstream block, or run three replicas";
    findings.add("nats-sync", Level::Warn, "clients of NATS can't see how it syncs to disk", Some(hint));
    doctor::processes(&bus, &args.bounds(), findings).await;
}

/// Reports the role of these credentials, and permissions that no role needs.
async fn role(bus: &ClientBus, findings: &mut Findings) {
    let identity = match bus.identity().await {
        Ok(Some(identity)) => identity,
        Ok(None) => return,
        Err(error) => return findings.add("nats-role", Level::Warn, error.to_string(), None),
    };
    if !identity.encrypted {
        let hint = "add a `tls` block to the configuration of nats-server, and NATS_TLS=required to every process, unless all run \
                    on one machine";
        findings.add("nats-tls", Level::Warn, "the server takes connections without TLS", Some(hint));
    }
    let hint = "give each process a role of its own: `trellis auth init`, see docs/security.md";
    let (Some(publish), Some(subscribe)) = (&identity.publish, &identity.subscribe) else {
        let found = "these credentials have all permissions: forging events, deleting streams, reading the answers to others";
        return findings.add("nats-role", Level::Warn, found, Some(hint));
    };
    let known = role::recognised(bus.namespace(), publish);
    let event = bus
        .namespace()
        .form(&Subject::Event(TraceId::from_u128(1).expect("not zero"), ChildId::whole_trace()), None);
    let decides = known.as_ref().is_some_and(|role| role.kind == role::Kind::Coordinator);
    let mut wide = Vec::new();
    for (subject, what) in
        [(event.as_str(), "forge events"), ("$JS.API.STREAM.DELETE.AGENT_EVENT", "delete streams")]
    {
        if !decides && publish.iter().any(|form| role::covers(form, subject)) {
            wide.push(what);
        }
    }
    if subscribe.iter().any(|form| role::covers(form, "_INBOX.x.y")) {
        wide.push("read the answers to others");
    }
    let who = match known {
        Some(role::Role { kind, pool: Some(pool), .. }) => format!("{kind} of the pool `{pool}`"),
        Some(role::Role { kind, .. }) => kind.to_string(),
        None => format!("`{}`, no role of Trellis", identity.user),
    };
    let found = format!("{who}, in the account {}: {} subjects to send to", identity.account, publish.len());
    match wide.is_empty() {
        true => findings.add("nats-role", Level::Ok, found, None),
        false => {
            let found = format!("{found}; these credentials may {}", wide.join(", "));
            findings.add("nats-role", Level::Warn, found, Some(hint));
        }
    }
}

/// Checks that the collector accepts spans, if the environment names one.
async fn collector(findings: &mut Findings) {
    if !telemetry::is_on() {
        return;
    }
    let asked = Instant::now();
    match tokio::time::timeout(COLLECTOR_WITHIN, telemetry::export(Vec::new())).await {
        Ok(Ok(())) => {
            let found = format!("takes spans, answers in {}", shown(asked.elapsed()));
            findings.add("collector", Level::Ok, found, None);
        }
        Ok(Err(_)) | Err(_) => {
            let hint = "check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_PROTOCOL: http/protobuf is on port 4318 as a rule, grpc on 4317";
            findings.add(
                "collector",
                Level::Fail,
                "does not accept spans; runs continue without them",
                Some(hint),
            );
        }
    }
}

async fn redis(url: &str, servers: &Servers, findings: &mut Findings) {
    // Any number of partitions will do: nothing is written, and no trace is read.
    let partitions = Topology::default().partitions;
    let connected = match servers.redis(url, partitions).await {
        Ok(connected) => connected,
        Err(error) => return add_error(findings, "redis", &error),
    };
    let store = match connected {
        Ok(redis) => Store::Redis(redis),
        Err(error) => {
            let said = with_causes(&error);
            let hint = match said.contains("NOAUTH") || said.contains("WRONGPASS") {
                true => "give REDIS_USER=doctor and REDIS_PASSWORD_FILE, as `trellis auth` wrote them",
                false => "check that Redis runs there",
            };
            return findings.add("redis", Level::Unreachable, said, Some(hint));
        }
    };
    let asked = Instant::now();
    if let Err(error) = store.ping().await {
        return findings.add(
            "redis",
            Level::Unreachable,
            with_causes(&error),
            Some("check that Redis runs there"),
        );
    }
    let took = asked.elapsed();
    match store.durability().await {
        Ok(durability) => {
            let version = durability.version.as_deref().unwrap_or("of unknown version");
            findings.add("redis", Level::Ok, format!("{version}, answers in {}", shown(took)), None);
            judge(&durability, findings);
        }
        Err(error) => findings.add("redis-durability", Level::Warn, with_causes(&error), None),
    }
    replay(&store, findings).await;
    match servers.redis_is_open(url, partitions).await {
        Ok(true) => findings.add(
            "redis-users",
            Level::Warn,
            "answers without a login: any client that reaches it can read and change every run",
            Some("set the file of `trellis auth init` as its `aclfile`: it disables the default user"),
        ),
        Ok(false) => findings.add("redis-users", Level::Ok, "a login is required", None),
        Err(error) => add_error(findings, "redis-users", &error),
    }
}

/// Reports a Redis user `default` whose permissions make a restart drop commits.
async fn replay(store: &Store, findings: &mut Findings) {
    let check = "redis-replay";
    match store.default_user().await {
        Ok(user) => match user.problem() {
            None => {
                let found = "the user `default` has all permissions, so a restart replays every commit";
                findings.add(check, Level::Ok, found, None);
            }
            Some(problem) => {
                let hint = format!(
                    "`trellis auth init DIR` writes the ACL file again, with `{DEFAULT_USER}`; restart Redis with it before it rewrites \
                     its append-only file, which still has the commits: docs/upgrade.md"
                );
                findings.add(check, Level::Fail, problem, Some(&hint));
            }
        },
        Err(error) => findings.add(check, Level::Warn, with_causes(&error), None),
    }
}

/// Reports the guarantees of the Redis settings, with the name of the matching profile.
fn judge(durability: &Durability, findings: &mut Findings) {
    let check = "redis-durability";
    let always = "for `single`: appendonly yes, appendfsync always; for `ha`, replicas as well";
    match (durability.appendonly.as_deref(), durability.appendfsync.as_deref()) {
        (Some("yes"), Some("always")) => {
            let found = "profile `single`: nothing acknowledged is lost (`ha` if there are replicas, which are not checked)";
            findings.add(check, Level::Ok, found, None);
        }
        (Some("yes"), fsync) => {
            let found = format!(
                "profile `dev`: with appendfsync {}, a crash may lose a second or more",
                fsync.unwrap_or("unknown")
            );
            findings.add(check, Level::Warn, found, Some(always));
        }
        (Some(_), _) => {
            let found =
                "profile `dev`: no append-only file; after a loss, traces are rebuilt from the event log";
            findings.add(check, Level::Warn, found, Some(always));
        }
        (None, _) => findings.add(
            check,
            Level::Warn,
            "the server does not show its settings",
            Some("allow CONFIG GET"),
        ),
    }
    match durability.maxmemory_policy.as_deref() {
        Some("noeviction") | None => {}
        Some(policy) => {
            let hint = "set maxmemory-policy noeviction: an evicted trace is lost";
            findings.add(
                "redis-eviction",
                Level::Fail,
                format!("keys may be evicted ({policy})"),
                Some(hint),
            );
        }
    }
}
