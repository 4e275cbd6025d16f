//! Examines a deployment: whether its processes answer, whether work progresses, and whether there
//! is storage left. It changes nothing. `trellis doctor` and the page show the findings.

mod ask;
mod findings;
mod work;

use std::{collections::BTreeMap, time::Duration};

use bus::{Bus, ClientBus, Fill, Storage, Stream, Topology};
use client::Client;
use domain::{
    PoolName,
    wire::{Policy, Query, QueryAnswer, WorkerState},
    wording::size,
};
use tokio::time::Instant;

use self::ask::{NotAsked, ask};
use crate::problem::ProblemDetails;
pub use findings::{Finding, Findings, Level};

/// Coordinators reject new runs from this fill level on.
const REFUSED_FROM_PERCENT: u64 = coordinator::MARK_PERCENT;
/// From this fill level on, a log is about to drop its oldest messages.
const DROPS_FROM_PERCENT: u64 = 95;

/// The limits from which a run is reported.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// A run is stuck after this time without an event, if it does not wait for a human.
    pub stuck_after: Duration,
    /// A run should have ended this long after its submission.
    pub old_after: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { stuck_after: Duration::from_secs(10 * 60), old_after: Duration::from_secs(7 * 24 * 60 * 60) }
    }
}

/// Examines storage and work where no process needs to run: in a directory.
pub async fn examine_work(bus: &ClientBus, bounds: &Bounds, findings: &mut Findings) {
    storage(bus, findings).await;
    work::dead_letters(bus, findings).await;
    work::stuck_runs(bus, bounds.stuck_after, findings).await;
    work::old_runs(bus, bounds.old_after, findings).await;
}

/// Examines coordinators, workers, and their work.
pub async fn processes(bus: &ClientBus, bounds: &Bounds, findings: &mut Findings) {
    let asked = Instant::now();
    match ask(bus, &Query::Coordinators).await {
        Ok(QueryAnswer::Coordinators { coordinators, policies, .. }) => {
            let names: Vec<&str> = coordinators.iter().map(|id| id.as_str()).collect();
            let found =
                format!("{} alive, answer in {}: {}", names.len(), shown(asked.elapsed()), names.join(", "));
            findings.add("coordinators", Level::Ok, found, None);
            differences(&policies, findings);
        }
        Ok(QueryAnswer::Refused(refusal)) => {
            let hint = "their log has the reason; `redis` below checks whether Redis can be reached";
            findings.add(
                "coordinators",
                Level::Fail,
                format!("reject the query: {}", refusal.message),
                Some(hint),
            );
        }
        Ok(_) => {
            let hint = "their version may differ from this command's: `trellis --version`";
            findings.add(
                "coordinators",
                Level::Fail,
                "sent an answer that does not match the query",
                Some(hint),
            );
        }
        Err(NotAsked::Denied) => findings.not_checked("coordinators"),
        Err(NotAsked::Failed) => findings.add(
            "coordinators",
            Level::Fail,
            "none answers",
            Some("start one: `trellis coordinator`"),
        ),
    }
    let workers = Client::new(bus.clone(), "doctor").workers().await;
    work::queues(bus, workers.as_deref().unwrap_or_default(), findings).await;
    work::dead_letters(bus, findings).await;
    work::stuck_runs(bus, bounds.stuck_after, findings).await;
    work::old_runs(bus, bounds.old_after, findings).await;
    match workers {
        Ok(found) if found.is_empty() => {
            findings.add("workers", Level::Fail, "none answers", Some("start one: `trellis worker`"));
        }
        Ok(found) => {
            let slots: u64 = found.iter().map(|worker| u64::from(worker.slots)).sum();
            let running: u64 = found.iter().map(|worker| u64::from(worker.running)).sum();
            let said = format!("{} alive, {running} of {slots} slots in use", found.len());
            findings.add("workers", Level::Ok, said, None);
            worker_clocks(&found, findings);
            work::dropped_spans(&found, findings);
            work::twins(&found, findings);
            work::unknown_tools(bus, &found, findings).await;
            for apart in policies_apart(&found) {
                let hint = "start all workers of a pool with the same --policy; `trellis workers list` shows the policies, `trellis admin-log` when they changed";
                findings.add("worker-policies", Level::Warn, apart, Some(hint));
            }
        }
        Err(error) if error.denied().is_some() => findings.not_checked("workers"),
        Err(error) => {
            let problem = Box::<ProblemDetails>::from(error);
            let (found, hint) = problem.told();
            findings.add("workers", Level::Fail, found, hint);
        }
    }
}

/// Warns of wrong worker clocks. They don't harm a run, but they falsify the times in its journal
/// and spans.
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

/// Warns of coordinators that were started with different options.
fn differences(policies: &[Policy], findings: &mut Findings) {
    let Some((first, others)) = policies.split_first() else { return };
    if policies.iter().any(|one| policies.iter().any(|other| other.keys_are_apart(one))) {
        let found = "have different keys: a coordinator rejects the traces that another one has signed";
        let hint = "give all of them the same --log-key-file; docs/authenticity.md has the order for a change of keys";
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
        "were started with different options; in effect: --retention {}s, --max-cost-usd {maximum}",
        retention.as_secs()
    );
    let hint = "start all of them with the same --retention and --max-cost-usd; the longest retention and the lowest maximum apply";
    findings.add("options", Level::Warn, found, Some(hint));
}

/// Pools whose workers have different policies: then chance decides whether a profile is rejected.
pub fn policies_apart(workers: &[WorkerState]) -> Vec<String> {
    let mut pools: BTreeMap<&PoolName, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| !worker.policy_digest.is_empty()) {
        let of_pool = pools.entry(&worker.pool).or_default();
        of_pool.entry(&worker.policy_digest).or_default().push(worker.worker_id.as_str());
    }
    let apart = pools.into_iter().filter(|(_, policies)| policies.len() > 1);
    let words = apart.map(|(pool, policies)| {
        let groups = policies.iter().map(|(digest, workers)| {
            let more =
                if workers.len() > 1 { format!(" and {} more", workers.len() - 1) } else { String::new() };
            format!("{} ({}{more})", digest.get(..8).unwrap_or(digest), workers[0])
        });
        let groups: Vec<String> = groups.collect();
        format!("the workers of the pool `{pool}` have different policies: {}", groups.join(", "))
    });
    words.collect()
}

/// Warns of changed stream settings. A running coordinator continues with them, but one that starts
/// may not.
pub async fn stream_settings(bus: &ClientBus, findings: &mut Findings) {
    let Ok(differences) = bus.differences().await else { return };
    if !differences.is_empty() {
        let hint = "`trellis provision`, with the sizes and replicas of the coordinators, corrects the settings that can change; \
                    a stream with another retention, storage or discard must be created again, and no coordinator starts before";
        findings.add("stream-settings", Level::Warn, differences.join("; "), Some(hint));
    }
}

/// Checks that the streams exist.
pub async fn streams(bus: &ClientBus, findings: &mut Findings) {
    let (mut missing, mut hidden, mut why) = (Vec::new(), 0, None);
    for stream in Stream::ALL {
        for filter in stream.filters().iter().take(1) {
            match bus.last(filter).await {
                Ok(_) => {}
                // This role may not read the stream.
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
        "start a coordinator or run `trellis provision` to create them; nats-server needs {} of storage for them, or less with smaller sizes \
         (--max-log-bytes, --max-queue-bytes)",
        size(Topology::default().reserved_bytes())
    );
    findings.add("streams", Level::Fail, format!("can't read {}: {why}", missing.join(", ")), Some(&hint));
}

/// Reports how full the streams and the bucket are. When full, journals and objects reject new
/// runs, queues reject messages, and logs drop their oldest messages.
pub async fn storage(bus: &ClientBus, findings: &mut Findings) {
    let fills = match bus.fill().await {
        Ok(fills) => fills,
        // The check of the streams reports that they don't exist.
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
        findings.add("storage", Level::Warn, format!("queues are nearly full: {queued}"), Some(hint));
    }
    if refusing.is_empty() && dropping.is_empty() && queued.is_empty() {
        let reserved: u64 = fills.iter().filter_map(|fill| fill.max_bytes).sum();
        // Only NATS reserves space; a directory grows.
        let most = match bus {
            ClientBus::Direct(Bus::Nats(_)) => format!("{} reserved", size(reserved)),
            ClientBus::Direct(Bus::Memory(_) | Bus::Disk(_)) | ClientBus::Http(_) => {
                format!("at most {}", size(reserved))
            }
        };
        findings.add("storage", Level::Ok, format!("{}; {most}", words(&|_| true)), None);
    }
}

/// The hint for logs that drop their oldest messages.
fn hint_for_full_logs(full: impl Iterator<Item = Storage>) -> String {
    let (audit, others): (Vec<Storage>, Vec<Storage>) =
        full.partition(|storage| *storage == Storage::Stream(Stream::Audit));
    let raise = (!others.is_empty()).then_some("raise --max-log-bytes of the coordinators");
    let keep = (!audit.is_empty()).then_some(
        "AGENT_AUDIT is limited to 64 MiB, independent of --max-log-bytes: copy the output of `trellis admin-log -o json` to another place in time",
    );
    raise.into_iter().chain(keep).collect::<Vec<_>>().join("; ")
}

/// A duration in milliseconds, as text.
pub fn shown(took: Duration) -> String {
    format!("{}.{:03} ms", took.as_millis(), took.subsec_micros() % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_of_administrators_gets_no_hint_to_enlarge_it() {
        let hint = |streams: &[Stream]| hint_for_full_logs(streams.iter().copied().map(Storage::Stream));
        assert_eq!(hint(&[Stream::Event, Stream::Dead]), "raise --max-log-bytes of the coordinators");
        let audit = hint(&[Stream::Audit]);
        assert!(audit.contains("admin-log") && !audit.contains("raise"), "{audit}");
        assert_eq!(hint(&[Stream::Event, Stream::Audit]), format!("{}; {audit}", hint(&[Stream::Event])));
    }
}
