//! `trellis doctor`: checks each server and process, and says what to do. Changes nothing.

use std::time::Duration;

use coordinator::store::{Durability, Store};
use serde::Serialize;
use serde_json::json;
use shared::{
    ChildId, TraceId,
    bus::{self, Backlog, Bus, Consumer, Fill, Storage, Stream, Topology},
    clock::Clock,
    role,
    subject::{Filter, Subject},
    telemetry,
    text::{count, size, with_causes},
    wire::{Policy, Query, QueryAnswer, WorkerState},
};
use tokio::time::Instant;

use crate::{
    cluster::{
        client,
        connect::{Denied, Servers, Unreachable},
    },
    command::workers,
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

/// From here on coordinators refuse new runs.
const REFUSED_FROM_PERCENT: u64 = coordinator::MARK_PERCENT;
/// What waits for so long is worth a warning.
const LONG_SECONDS: u64 = 60;
/// A dead letter that is younger is worth a warning.
const RECENT_MINUTES: u64 = 60;
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
pub(crate) struct Args {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    /// These credentials may not ask.
    NotChecked,
    Warn,
    Fail,
    /// The server could not be reached.
    Unreachable,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &'static str, level: Level, found: impl Into<String>, hint: Option<&str>) {
        self.0.push(Finding { check, level, found: found.into(), hint: hint.map(str::to_owned) });
    }

    fn not_checked(&mut self, check: &'static str) {
        self.add(check, Level::NotChecked, "not checked: this role may not ask", None);
    }

    /// An error of a command: its text, and the hint after it.
    fn add_error(&mut self, check: &'static str, error: &anyhow::Error) {
        if error.is::<Denied>() {
            return self.not_checked(check);
        }
        let said = format!("{error:#}");
        let (found, hint) = said.split_once("\n\nhint: ").unwrap_or((&said, ""));
        let level = if error.is::<Unreachable>() { Level::Unreachable } else { Level::Fail };
        self.add(check, level, found, (!hint.is_empty()).then_some(hint));
    }
}

pub(crate) async fn run(_: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    if servers.nats_url().is_none() && servers.redis_url().is_none() {
        anyhow::bail!(
            "no server is named\n\nhint: set NATS_URL and REDIS_URL, or give --nats-url and --redis-url; \
             `trellis run` needs neither"
        );
    }
    let mut findings = Findings::default();
    match servers.nats_url() {
        Some(_) => nats(servers, &mut findings).await,
        None => findings.add("nats", Level::Warn, "not checked", Some("set NATS_URL")),
    }
    match servers.redis_url() {
        Some(url) => redis(url, servers, &mut findings).await,
        None => findings.add("redis", Level::Warn, "not checked", Some("set REDIS_URL")),
    }
    collector(&mut findings).await;
    print(&findings.0, output)
}

async fn nats(servers: &Servers, findings: &mut Findings) {
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
    storage(&bus, findings).await;
    let hint = "set `sync_interval: always` in nats-server's jetstream block, or run three replicas";
    findings.add("nats-sync", Level::Warn, "NATS does not tell clients how it syncs to disk", Some(hint));
    let asked = Instant::now();
    match client::query(&bus, &Query::Coordinators).await {
        Ok(QueryAnswer::Coordinators { coordinators, policies }) => {
            let names: Vec<&str> = coordinators.iter().map(|id| id.as_str()).collect();
            let found =
                format!("{} alive, answer in {}: {}", names.len(), shown(asked.elapsed()), names.join(", "));
            findings.add("coordinators", Level::Ok, found, None);
            differences(&policies, findings);
        }
        Ok(other) => findings.add(
            "coordinators",
            Level::Fail,
            format!("gave an answer that does not fit the query: {other:?}"),
            None,
        ),
        Err(error) if error.is::<Denied>() => findings.not_checked("coordinators"),
        Err(_) => findings.add(
            "coordinators",
            Level::Fail,
            "none answers",
            Some("start one: `trellis coordinator`"),
        ),
    }
    let workers = client::workers(&bus).await;
    queues(&bus, workers.as_deref().unwrap_or_default(), findings).await;
    dead_letters(&bus, findings).await;
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

/// Checks that the streams exist. Their configuration is checked by every coordinator when it starts; it does not
/// start if it differs.
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

/// Whether somebody takes the work that waits, and whether spans are exported.
async fn queues(bus: &Bus, workers: &[WorkerState], findings: &mut Findings) {
    let now = Clock::default().now();
    let waited = |backlog: &Backlog| backlog.oldest.map_or(0, |oldest| now.millis_since(oldest) / 1_000);
    let subjects = match bus.subjects(&Filter::Executes).await {
        Ok(subjects) => subjects,
        Err(bus::Error::Denied(_)) => return findings.not_checked("queues"),
        // Said already: the streams don't exist.
        Err(_) => return,
    };
    let mut waiting = 0;
    for subject in subjects {
        let Subject::Execute(pool) = subject else { continue };
        let Ok(backlog) = bus.backlog(&Consumer::Execute(pool.clone())).await else { continue };
        waiting += backlog.pending;
        let served = workers.iter().any(|worker| worker.pool == pool);
        if backlog.pending > 0 && !served {
            let found = format!(
                "{} in the queue of the pool `{pool}`, and no worker of it answers",
                count(backlog.pending, "task")
            );
            let hint = format!("start one: `trellis worker --pool {pool}`");
            findings.add("queues", Level::Fail, found, Some(&hint));
        } else if waited(&backlog) >= LONG_SECONDS {
            let found = format!(
                "{} in the queue of the pool `{pool}`, the oldest for {} s",
                count(backlog.pending, "task"),
                waited(&backlog)
            );
            findings.add("queues", Level::Warn, found, Some("start more workers, or give them more --slots"));
        }
    }
    if !findings.0.iter().any(|finding| finding.check == "queues") {
        findings.add(
            "queues",
            Level::Ok,
            format!("{} in the queues of workers", count(waiting, "task")),
            None,
        );
    }
    if let Ok(backlog) = bus.backlog(&Consumer::Span).await
        && waited(&backlog) >= LONG_SECONDS
    {
        let found = format!(
            "those of {} wait to be exported, the oldest for {} s",
            count(backlog.pending, "context"),
            waited(&backlog)
        );
        let hint = "start the coordinators with OTEL_EXPORTER_OTLP_ENDPOINT, or see in their log why the collector can't be reached";
        findings.add("spans", Level::Warn, found, Some(hint));
    }
}

/// Whether messages were refused lately.
async fn dead_letters(bus: &Bus, findings: &mut Findings) {
    match bus.last(&Filter::Dead).await {
        Ok(Some(stored)) => {
            let minutes = Clock::default().now().millis_since(stored.at) / 60_000;
            let level = if minutes < RECENT_MINUTES { Level::Warn } else { Level::Ok };
            let hint =
                "a dead letter says what was refused and why: read the stream AGENT_DEAD (docs/protocol.md)";
            let found = format!("the newest is {} old, on `{}`", count(minutes, "minute"), stored.subject);
            findings.add("dead-letters", level, found, Some(hint).filter(|_| level == Level::Warn));
        }
        Ok(None) => findings.add("dead-letters", Level::Ok, "there are none", None),
        Err(bus::Error::Denied(_)) => findings.not_checked("dead-letters"),
        // Said already: the streams don't exist.
        Err(_) => {}
    }
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
        findings.add(
            "storage",
            Level::Ok,
            format!("{}; {} reserved", words(&|_| true), size(reserved)),
            None,
        );
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

fn print(findings: &[Finding], output: Output) -> anyhow::Result<Ending> {
    match output {
        Output::Json => output::print_json(&json!(findings))?,
        Output::Text => {
            for Finding { check, level, found, hint } in findings {
                let word = match level {
                    Level::Ok => "ok",
                    Level::NotChecked => "-",
                    Level::Warn => "warn",
                    Level::Fail | Level::Unreachable => "fail",
                };
                let hint = hint.as_ref().map_or_else(String::new, |hint| format!("      hint: {hint}\n"));
                output::print(&format!("{word:<5} {check}: {found}\n{hint}"))?;
            }
        }
    }
    let any = |wanted: Level| findings.iter().any(|finding| finding.level == wanted);
    Ok(match (any(Level::Unreachable), any(Level::Fail)) {
        (true, _) => Ending::Unreachable,
        (false, true) => Ending::Failed,
        (false, false) => Ending::Completed,
    })
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
