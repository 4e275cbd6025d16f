//! `trellis doctor`: checks each server and process, and says what to do. Changes nothing.

use std::time::Duration;

use coordinator::store::{Durability, Redis, Store};
use serde::Serialize;
use serde_json::json;
use shared::{
    bus::{Bus, Fill, Stream, Topology},
    text::with_causes,
    wire::{Policy, Query, QueryAnswer, WorkerState},
};
use tokio::time::Instant;

use crate::{
    cluster::{
        client,
        connect::{Servers, Unreachable},
    },
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

/// From here on coordinators refuse new runs.
const REFUSED_FROM_PERCENT: u64 = coordinator::MARK_PERCENT;
/// A log that drops its oldest is about to.
const DROPS_FROM_PERCENT: u64 = 95;

/// Check the servers and processes of a cluster, with a hint for each problem.
///
/// Checks the servers that are named: NATS, Redis, or both.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 no check fails, 1 a check fails, 2 no server is named, 5 a server can't be reached."
)]
pub(crate) struct Args {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
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

    /// An error of a command: its text, and the hint after it.
    fn add_error(&mut self, check: &'static str, error: &anyhow::Error) {
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
        Err(_) => findings.add(
            "coordinators",
            Level::Fail,
            "none answers",
            Some("start one: `trellis coordinator`"),
        ),
    }
    match client::workers(&bus).await {
        Ok(found) if found.is_empty() => {
            findings.add("workers", Level::Fail, "none answers", Some("start one: `trellis worker`"));
        }
        Ok(found) => {
            let slots: u32 = found.iter().map(|worker| worker.slots).sum();
            let running: u32 = found.iter().map(|worker| worker.running).sum();
            let said = format!("{} alive, {running} of {slots} slots in use", found.len());
            findings.add("workers", Level::Ok, said, None);
            worker_clocks(&found, findings);
        }
        Err(error) => findings.add_error("workers", &error),
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
    if others.iter().all(|other| other == first) {
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
    let (mut missing, mut why) = (Vec::new(), None);
    for stream in Stream::ALL {
        for filter in stream.filters().iter().take(1) {
            if let Err(error) = bus.last(filter).await {
                missing.push(stream.name());
                why = Some(error.to_string());
            }
        }
    }
    let Some(why) = why else {
        return findings.add("streams", Level::Ok, format!("all {} exist", Stream::ALL.len()), None);
    };
    let hint = "the first coordinator creates them: `trellis coordinator`";
    findings.add("streams", Level::Fail, format!("can't read {}: {why}", missing.join(", ")), Some(hint));
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
    let dropping = words(&|fill| fill.storage.drops_the_oldest() && fill.percent() >= DROPS_FROM_PERCENT);
    if !refusing.is_empty() {
        let hint = "delete runs (`trellis runs delete`), or give the coordinators a shorter --retention or larger sizes \
                    (--max-journal-bytes, --max-output-bytes)";
        findings.add("storage", Level::Fail, format!("new runs are refused: {refusing}"), Some(hint));
    }
    if !dropping.is_empty() {
        let hint = "raise --max-log-bytes of the coordinators";
        findings.add(
            "storage",
            Level::Warn,
            format!("the oldest messages are dropped: {dropping}"),
            Some(hint),
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
        findings.add("storage", Level::Ok, words(&|_| true), None);
    }
}

async fn redis(url: &str, servers: &Servers, findings: &mut Findings) {
    // Any number will do: nothing is written, and no trace is read.
    let partitions = Topology::default().partitions;
    let store = match Redis::connect(url, servers.namespace().clone(), partitions).await {
        Ok(redis) => Store::Redis(redis),
        Err(error) => {
            let hint = Some("check that Redis runs there");
            return findings.add("redis", Level::Unreachable, with_causes(&error), hint);
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
