//! `trellis doctor`: checks each server and process, and says what to do. Changes nothing.

mod findings;
mod secrets;
mod work;

use std::{path::Path, time::Duration};

use coordinator::store::{Durability, Store};
use shared::{
    ChildId, TraceId,
    bus::{self, Bus, Fill, Storage, Stream, Topology},
    role,
    subject::Subject,
    telemetry,
    text::{size, with_causes},
    wire::{Policy, Query, QueryAnswer, WorkerState},
};
use tokio::time::Instant;

use findings::{Findings, Level};

use crate::{
    cluster::{
        client,
        connect::{Denied, Servers, unreachable},
        place,
    },
    command::workers,
    input::parse,
    terminal::{ending::Ending, output::Output},
};

/// From here on coordinators refuse new runs.
const REFUSED_FROM_PERCENT: u64 = coordinator::MARK_PERCENT;
/// How long the collector may take to answer.
const COLLECTOR_WITHIN: Duration = Duration::from_secs(5);
/// A log that drops its oldest is about to.
const DROPS_FROM_PERCENT: u64 = 95;

/// Check the servers and processes of a cluster, with a hint for each problem.
///
/// Checks the servers that are named: NATS, Redis, or both. What the role of these credentials may not ask is not checked, which is
/// no failure: an observer may ask the most.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 no check fails, 1 a check fails, 2 no server is named, 5 a server can't be reached."
)]
pub(crate) struct Args {
    /// Warn of a run in which nothing has happened for so long, and that does not wait for a human, such as 90s, 10m, 2h.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse::duration)]
    stuck_after: Duration,
    /// Warn of a run that has not ended so long after its submission, whatever it waits for.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse::duration)]
    old_after: Duration,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let mut findings = Findings::default();
    secrets::files(&servers.secret_files(), &mut findings);
    secrets::plain_connections([servers.url(), servers.redis_url()], &mut findings);
    let are_named = servers.nats_url().is_some() || servers.redis_url().is_some();
    if servers.url().is_some() || !are_named {
        if !servers.has_cluster() {
            // What nobody named and is not there can't be ill.
            servers.cluster().await?;
        }
        one_address(&args, servers, &mut findings).await;
        collector(&mut findings).await;
        return findings.print(output);
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
    findings.print(output)
}

/// A cluster that is one address for us: a server of Trellis, or a directory, and the work in it.
async fn one_address(args: &Args, servers: &Servers, findings: &mut Findings) {
    let named = if servers.url().is_some() { "server" } else { "directory" };
    let asked = Instant::now();
    let bus = match servers.cluster().await {
        Ok(bus) => bus,
        Err(error) => return findings.add_error(named, &error),
    };
    match (&bus, servers.directory()) {
        (Bus::Http(http), _) => match bus.ping().await {
            Ok(took) => {
                let found = format!("{} answers in {}", http.url(), shown(took));
                findings.add("server", Level::Ok, found, None);
                storage(&bus, findings).await;
                processes(&bus, args, findings).await;
                return;
            }
            Err(error) => return findings.add_error("server", &unreachable(&error)),
        },
        (_, path) => {
            let path = path.map(Path::to_owned).or_else(place::default_directory).unwrap_or_default();
            let found = format!(
                "{} opens in {}, and nobody else has it open",
                path.display(),
                shown(asked.elapsed())
            );
            findings.add("directory", Level::Ok, found, None);
        }
    }
    storage(&bus, findings).await;
    work::dead_letters(&bus, findings).await;
    work::stuck_runs(&bus, args.stuck_after, findings).await;
    work::old_runs(&bus, args.old_after, findings).await;
}

async fn nats(args: &Args, servers: &Servers, findings: &mut Findings) {
    let bus = match servers.cluster().await {
        Ok(bus) => bus,
        Err(error) => return findings.add_error("nats", &error),
    };
    match bus.ping().await {
        Ok(took) => {
            findings.add("nats", Level::Ok, format!("answers in {}, and is new enough", shown(took)), None)
        }
        Err(error) => findings.add("nats", Level::Fail, error.to_string(), None),
    }
    role(&bus, findings).await;
    streams(&bus, findings).await;
    stream_settings(&bus, findings).await;
    storage(&bus, findings).await;
    let hint = "set `sync_interval: always` in nats-server's jetstream block, or run three replicas";
    findings.add("nats-sync", Level::Warn, "NATS does not tell clients how it syncs to disk", Some(hint));
    processes(&bus, args, findings).await;
}

/// Coordinators, workers, and what they work on.
async fn processes(bus: &Bus, args: &Args, findings: &mut Findings) {
    let asked = Instant::now();
    match client::query(bus, &Query::Coordinators).await {
        Ok(QueryAnswer::Coordinators { coordinators, policies }) => {
            let names: Vec<&str> = coordinators.iter().map(|id| id.as_str()).collect();
            let found =
                format!("{} alive, answer in {}: {}", names.len(), shown(asked.elapsed()), names.join(", "));
            findings.add("coordinators", Level::Ok, found, None);
            differences(&policies, findings);
        }
        Ok(QueryAnswer::Refused(refusal)) => {
            let hint = "their log says why; if Redis is away, `redis` below says so";
            findings.add(
                "coordinators",
                Level::Fail,
                format!("answer, but refuse: {}", refusal.message),
                Some(hint),
            );
        }
        Ok(_) => {
            let hint = "they may have another version than this command: `trellis --version`";
            findings.add(
                "coordinators",
                Level::Fail,
                "gave an answer that does not fit the query",
                Some(hint),
            );
        }
        Err(error) if error.is::<Denied>() => findings.not_checked("coordinators"),
        Err(_) => findings.add(
            "coordinators",
            Level::Fail,
            "none answers",
            Some("start one: `trellis coordinator`"),
        ),
    }
    let workers = client::workers(bus).await;
    work::queues(bus, workers.as_deref().unwrap_or_default(), findings).await;
    work::dead_letters(bus, findings).await;
    work::stuck_runs(bus, args.stuck_after, findings).await;
    work::old_runs(bus, args.old_after, findings).await;
    match workers {
        Ok(found) if found.is_empty() => {
            findings.add("workers", Level::Fail, "none answers", Some("start one: `trellis worker`"));
        }
        Ok(found) => {
            let slots: u32 = found.iter().map(|worker| worker.slots).sum();
            let running: u32 = found.iter().map(|worker| worker.running).sum();
            let said = format!("{} alive, {running} of {slots} slots in use", found.len());
            findings.add("workers", Level::Ok, said, None);
            worker_clocks(&found, findings);
            work::dropped_spans(&found, findings);
            work::twins(&found, findings);
            work::unknown_tools(bus, &found, findings).await;
            for apart in workers::policies_apart(&found) {
                let hint = "start all workers of a pool with the same --policy; `trellis workers list` shows them, `trellis admin-log` since when";
                findings.add("worker-policies", Level::Warn, apart, Some(hint));
            }
        }
        Err(error) => findings.add_error("workers", &error),
    }
}

/// Who we are, and whether that is more than anybody needs.
async fn role(bus: &Bus, findings: &mut Findings) {
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
        let found =
            "these credentials may do everything: forge events, delete streams, read the answers to others";
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

/// A wrong clock does not harm a run, but the times in its journal and spans.
fn worker_clocks(workers: &[WorkerState], findings: &mut Findings) {
    let wrong = |worker: &WorkerState| {
        let ahead = worker.clock_ahead_ms? / 1000;
        let side = if ahead < 0 { "behind" } else { "ahead" };
        Some(format!("{} {} s {side}", worker.worker_id, ahead.unsigned_abs()))
    };
    let wrong: Vec<String> = workers.iter().filter_map(wrong).collect();
    if !wrong.is_empty() {
        let said = format!("differ from the coordinators': {}", wrong.join(", "));
        findings.add("worker-clocks", Level::Warn, said, Some("set them by NTP"));
    }
}

/// Whether all coordinators were started with the same options.
fn differences(policies: &[Policy], findings: &mut Findings) {
    let Some((first, others)) = policies.split_first() else { return };
    if policies.iter().any(|one| policies.iter().any(|other| other.keys_are_apart(one))) {
        let found =
            "have different keys: what one writes, another does not believe, and decides nothing about it";
        let hint = "give all of them the same --log-key-file; docs/authenticity.md says in which order keys are changed";
        findings.add("log-keys", Level::Warn, found.to_owned(), Some(hint));
    }
    let same =
        |other: &Policy| (other.retention_ms, other.max_cost_usd) == (first.retention_ms, first.max_cost_usd);
    if others.iter().all(same) {
        return;
    }
    let holds = others.iter().fold(first.clone(), |all, other| all.and(other));
    let retention = Duration::from_millis(holds.retention_ms);
    let maximum = holds.max_cost_usd.map_or("none".to_owned(), |usd| usd.to_string());
    let found = format!(
        "were started with different options; what holds: --retention {}s, --max-cost-usd {maximum}",
        retention.as_secs()
    );
    let hint = "start all of them with the same --retention and --max-cost-usd; the longest retention and the lowest maximum hold";
    findings.add("options", Level::Warn, found, Some(hint));
}

/// Whether somebody changed the streams. A coordinator that runs goes on with them; one that starts may not.
async fn stream_settings(bus: &Bus, findings: &mut Findings) {
    let Ok(differences) = bus.differences().await else { return };
    if !differences.is_empty() {
        let hint = "`trellis provision` sets what can be changed, given the sizes and replicas that the coordinators were started \
                    with; a stream whose retention, storage or discard differs must be made anew, and no coordinator starts before";
        findings.add("stream-settings", Level::Warn, differences.join("; "), Some(hint));
    }
}

/// Checks that the streams exist.
async fn streams(bus: &Bus, findings: &mut Findings) {
    let (mut missing, mut hidden, mut why) = (Vec::new(), 0, None);
    for stream in Stream::ALL {
        for filter in stream.filters().iter().take(1) {
            match bus.last(filter).await {
                Ok(_) => {}
                // Of this role.
                Err(bus::Error::Denied(_)) => hidden += 1,
                Err(error) => {
                    missing.push(stream.name());
                    why = Some(error.to_string());
                }
            }
        }
    }
    if hidden == Stream::ALL.len() {
        return findings.not_checked("streams");
    }
    let Some(why) = why else {
        let found = match hidden {
            0 => format!("all {} exist", Stream::ALL.len()),
            _ => format!("all {} that this role may read exist", Stream::ALL.len() - hidden),
        };
        return findings.add("streams", Level::Ok, found, None);
    };
    let hint = format!(
        "the first coordinator creates them, or `trellis provision`; nats-server needs {} of storage for them, or less with smaller sizes \
         (--max-log-bytes, --max-queue-bytes)",
        size(Topology::default().reserved_bytes())
    );
    findings.add("streams", Level::Fail, format!("can't read {}: {why}", missing.join(", ")), Some(&hint));
}

/// Whether the collector takes spans, if the environment names one here.
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
            findings.add("collector", Level::Fail, "does not take spans; runs go on without", Some(hint));
        }
    }
}

/// How full each stream and the bucket are. Full journals and objects refuse new runs, full queues messages; full logs drop
/// their oldest.
async fn storage(bus: &Bus, findings: &mut Findings) {
    let fills = match bus.fill().await {
        Ok(fills) => fills,
        // Said already: the streams don't exist.
        Err(_) => return,
    };
    let word = |fill: &Fill| format!("{} {} %", fill.storage.name(), fill.percent());
    let words = |wanted: &dyn Fn(&Fill) -> bool| {
        fills.iter().filter(|fill| wanted(fill)).map(word).collect::<Vec<_>>().join(", ")
    };
    let refusing = words(&|fill| fill.storage.is_kept_for_runs() && fill.percent() >= REFUSED_FROM_PERCENT);
    let is_dropping = |fill: &Fill| fill.storage.drops_the_oldest() && fill.percent() >= DROPS_FROM_PERCENT;
    let dropping = words(&is_dropping);
    if !refusing.is_empty() {
        let hint = "delete runs (`trellis runs delete`), or give the coordinators a shorter --retention or larger sizes \
                    (--max-journal-bytes, --max-output-bytes)";
        findings.add("storage", Level::Fail, format!("new runs are refused: {refusing}"), Some(hint));
    }
    if !dropping.is_empty() {
        let hint = hint_for_full_logs(fills.iter().filter(|fill| is_dropping(fill)).map(|fill| fill.storage));
        findings.add(
            "storage",
            Level::Warn,
            format!("the oldest messages are dropped: {dropping}"),
            Some(&hint),
        );
    }
    let queue = |fill: &Fill| !fill.storage.is_kept_for_runs() && !fill.storage.drops_the_oldest();
    let queued = words(&|fill| queue(fill) && fill.percent() >= REFUSED_FROM_PERCENT);
    if !queued.is_empty() {
        let hint = "start more workers or coordinators, or raise --max-queue-bytes of the coordinators";
        findings.add(
            "storage",
            Level::Warn,
            format!("messages wait, with little room left: {queued}"),
            Some(hint),
        );
    }
    if refusing.is_empty() && dropping.is_empty() && queued.is_empty() {
        let reserved: u64 = fills.iter().filter_map(|fill| fill.max_bytes).sum();
        // Only a server of NATS sets space aside; a directory grows.
        let most = match bus {
            Bus::Nats(_) => format!("{} reserved", size(reserved)),
            Bus::Memory(_) | Bus::Disk(_) | Bus::Http(_) => format!("at most {}", size(reserved)),
        };
        findings.add("storage", Level::Ok, format!("{}; {most}", words(&|_| true)), None);
    }
}

/// What helps where logs drop their oldest messages.
fn hint_for_full_logs(full: impl Iterator<Item = Storage>) -> String {
    let (audit, others): (Vec<Storage>, Vec<Storage>) =
        full.partition(|storage| *storage == Storage::Stream(Stream::Audit));
    let raise = (!others.is_empty()).then_some("raise --max-log-bytes of the coordinators");
    let keep = (!audit.is_empty()).then_some(
        "AGENT_AUDIT never has more than 64 MiB, whatever --max-log-bytes says: store what `trellis admin-log -o json` shows elsewhere, in time",
    );
    raise.into_iter().chain(keep).collect::<Vec<_>>().join("; ")
}

async fn redis(url: &str, servers: &Servers, findings: &mut Findings) {
    // Any number will do: nothing is written, and no trace is read.
    let partitions = Topology::default().partitions;
    let connected = match servers.redis(url, partitions).await {
        Ok(connected) => connected,
        Err(error) => return findings.add_error("redis", &error),
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
    match servers.redis_is_open(url, partitions).await {
        Ok(true) => findings.add(
            "redis-users",
            Level::Warn,
            "answers without a login: whoever reaches it may read and change every run",
            Some("name the file of `trellis auth init` as its `aclfile`: it turns the default user off"),
        ),
        Ok(false) => findings.add("redis-users", Level::Ok, "nobody gets in without a login", None),
        Err(error) => findings.add_error("redis-users", &error),
    }
}

/// What the settings of Redis guarantee, with the name of the profile that they fit.
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

fn shown(took: Duration) -> String {
    format!("{}.{:03} ms", took.as_millis(), took.subsec_micros() % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_full_log_of_administrators_is_not_told_to_make_it_larger() {
        let hint = |streams: &[Stream]| hint_for_full_logs(streams.iter().copied().map(Storage::Stream));
        assert_eq!(hint(&[Stream::Event, Stream::Dead]), "raise --max-log-bytes of the coordinators");
        let audit = hint(&[Stream::Audit]);
        assert!(audit.contains("admin-log") && !audit.contains("raise"), "{audit}");
        assert_eq!(hint(&[Stream::Event, Stream::Audit]), format!("{}; {audit}", hint(&[Stream::Event])));
    }
}
