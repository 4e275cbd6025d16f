//! Examines the work of a deployment: whether workers take it, whether it progresses, and whether
//! it is exported.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bus::{Backlog, ClientBus, Consumer};
use domain::{
    id::PoolName,
    subject::{Filter, Subject},
    time::millis,
    wire::{ContextStatus, Query, QueryAnswer, RunSummary, RunsQuery, WorkerState},
    wording::count,
};
use host::clock::Clock;

use super::{
    ask::ask,
    findings::{Findings, Level},
};

/// The waiting time from which a queue is reported.
const LONG_SECONDS: u64 = 60;
/// Dead letters are reported as a warning up to this age.
const RECENT_MINUTES: u64 = 60;
/// The most missing MCP servers that are reported one by one.
const TOLD_SERVERS: usize = 10;
/// The newest event is read of at most this many runs, the oldest first.
const RUNS_READ: usize = 50;

/// For how many seconds the oldest message has waited.
fn waited(backlog: &Backlog) -> u64 {
    backlog.oldest.map_or(0, |oldest| Clock::default().now().millis_since(oldest) / 1_000)
}

/// Checks that workers take the waiting tasks, and that coordinators and exporters keep up.
pub(super) async fn queues(bus: &ClientBus, workers: &[WorkerState], findings: &mut Findings) {
    let subjects = match bus.subjects(&Filter::Executes).await {
        Ok(subjects) => subjects,
        // Over HTTP the queues can't be read, but the runs that wait in them can be listed.
        Err(bus::Error::Denied(_)) if matches!(bus, ClientBus::Http(_)) => {
            return waiting_runs(bus, workers, findings).await;
        }
        Err(bus::Error::Denied(_)) => return findings.not_checked("queues"),
        // The check of the streams reports that they don't exist.
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
    if !findings.has("queues") {
        findings.add(
            "queues",
            Level::Ok,
            format!("{} in the queues of workers", count(waiting, "task")),
            None,
        );
    }
    lags(bus, findings).await;
}

/// Checks that runs do not wait long for their first worker, where the queues can't be read.
async fn waiting_runs(bus: &ClientBus, workers: &[WorkerState], findings: &mut Findings) {
    let status = vec![ContextStatus::Submitted];
    let query = RunsQuery { limit: 500, status, ..RunsQuery::default() };
    let Ok(QueryAnswer::Runs { runs, .. }) = ask(bus, &Query::Runs(Box::new(query))).await else {
        return findings.not_checked("queues");
    };
    let now = Clock::default().now();
    let oldest = runs.iter().map(|run| now.millis_since(run.started_at) / 1_000).max().unwrap_or(0);
    let waiting = count(runs.len() as u64, "run");
    let (level, found, hint) = match (runs.is_empty(), workers.is_empty()) {
        (false, true) => {
            let hint = "restart the server, or start a `trellis worker` of its cluster";
            (Level::Fail, format!("{waiting} in the queue, and no worker answers"), Some(hint))
        }
        (false, false) if oldest >= LONG_SECONDS => {
            let hint = "start more workers, or give them more --slots";
            (Level::Warn, format!("{waiting} in the queue, the oldest for {oldest} s"), Some(hint))
        }
        (_, _) => (Level::Ok, format!("{waiting} in the queues of workers"), None),
    };
    findings.add("queues", level, found, hint);
}

/// Warns of runs that should have ended long ago.
pub(super) async fn old_runs(bus: &ClientBus, after: Duration, findings: &mut Findings) {
    let status = vec![
        ContextStatus::Submitted,
        ContextStatus::Working,
        ContextStatus::InputRequired,
        ContextStatus::Paused,
    ];
    let until = Some(Clock::default().now().minus_millis(millis(after)));
    let query = RunsQuery { limit: 500, status, until, ..RunsQuery::default() };
    let Ok(QueryAnswer::Runs { runs, .. }) = ask(bus, &Query::Runs(Box::new(query))).await else {
        // Reported before: no coordinator answers, or this role may not ask.
        return;
    };
    let Some(oldest) = runs.iter().min_by_key(|run| run.started_at) else { return };
    let days = Clock::default().now().millis_since(oldest.started_at) / 86_400_000;
    let found = format!(
        "{} still live long after submission, the oldest, {}, after {}",
        match runs.len() {
            1 => "1 run is".to_owned(),
            several => format!("{several} runs are"),
        },
        oldest.trace_id,
        count(days, "day")
    );
    let hint = format!(
        "a run keeps its stored data until it ends: `trellis runs show {}` shows what it waits for, `trellis runs cancel` ends it, \
         and `timeout_ms` in a submission limits future runs",
        oldest.trace_id
    );
    findings.add("old-runs", Level::Warn, found, Some(&hint));
}

/// Warns if coordinators or exporters are behind.
async fn lags(bus: &ClientBus, findings: &mut Findings) {
    if let Ok(backlog) = bus.backlog(&Consumer::Intake).await
        && waited(&backlog) >= LONG_SECONDS
    {
        let found = format!(
            "{} of clients wait for a coordinator, the oldest for {} s",
            count(backlog.pending, "message"),
            waited(&backlog)
        );
        let hint =
            "start more coordinators; /readyz and the log of each show whether it reaches Redis and has room";
        findings.add("intake", Level::Warn, found, Some(hint));
    }
    if let Ok(backlog) = bus.backlog(&Consumer::Span).await
        && waited(&backlog) >= LONG_SECONDS
    {
        let found = format!(
            "the spans of {} wait for export, the oldest for {} s",
            count(backlog.pending, "context"),
            waited(&backlog)
        );
        let hint = "start the coordinators with OTEL_EXPORTER_OTLP_ENDPOINT, or see in their log why the collector can't be reached";
        findings.add("spans", Level::Warn, found, Some(hint));
    }
}

/// Reports the newest dead letter, as a warning if it is recent.
pub(super) async fn dead_letters(bus: &ClientBus, findings: &mut Findings) {
    match bus.last(&Filter::Dead).await {
        Ok(Some(stored)) => {
            let minutes = Clock::default().now().millis_since(stored.at) / 60_000;
            let level = if minutes < RECENT_MINUTES { Level::Warn } else { Level::Ok };
            let hint = "`trellis dead-letters list` and `trellis dead-letters show ID` show each refused message and the reason";
            let found = format!("the newest is {} old, on `{}`", count(minutes, "minute"), stored.subject);
            findings.add("dead-letters", level, found, Some(hint).filter(|_| level == Level::Warn));
        }
        Ok(None) => findings.add("dead-letters", Level::Ok, "there are none", None),
        Err(bus::Error::Denied(_)) => findings.not_checked("dead-letters"),
        // The check of the streams reports that they don't exist.
        Err(_) => {}
    }
}

/// Reports runs without recent events that wait for no human.
pub(super) async fn stuck_runs(bus: &ClientBus, after: Duration, findings: &mut Findings) {
    let now = Clock::default().now();
    let query = RunsQuery {
        limit: 500,
        status: vec![ContextStatus::Submitted, ContextStatus::Working],
        waiting_for_human: Some(false),
        until: Some(now.minus_millis(millis(after))),
        ..RunsQuery::default()
    };
    let mut runs: Vec<RunSummary> = match ask(bus, &Query::Runs(Box::new(query.clone()))).await {
        Ok(QueryAnswer::Runs { runs, .. }) => runs,
        // Reported before: no coordinator answers, or this role may not ask.
        Ok(_) | Err(_) => return,
    };
    runs.sort_by_key(|run| run.started_at);
    let mut stuck = Vec::new();
    for run in runs.iter().take(RUNS_READ) {
        let Ok(Some(last)) = bus.last(&Filter::EventsOf(run.trace_id)).await else { continue };
        let silent = Duration::from_millis(now.millis_since(last.at));
        if silent >= after {
            stuck.push((run.trace_id, silent));
        }
    }
    let Some((trace_id, silent)) = stuck.iter().max_by_key(|(_, silent)| *silent) else {
        let found = format!("none of {} is stuck", count(runs.len() as u64, "old run"));
        return findings.add("stuck-runs", Level::Ok, found, None);
    };
    let found = format!(
        "no recent events in {}: none for {} in {trace_id}",
        count(stuck.len() as u64, "run"),
        count(silent.as_secs() / 60, "minute")
    );
    let hint =
        format!("`trellis runs show {trace_id}` shows what it waits for; `trellis runs cancel` ends it");
    findings.add("stuck-runs", Level::Warn, found, Some(&hint));
}

/// Warns of two workers with one id: then `workers drain` and the reports of lost contexts are
/// ambiguous.
pub(super) fn twins(workers: &[WorkerState], findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    let twins: BTreeSet<&str> =
        workers.iter().map(|worker| worker.worker_id.as_str()).filter(|id| !seen.insert(*id)).collect();
    if !twins.is_empty() {
        let found =
            format!("more than one worker is called {}", twins.into_iter().collect::<Vec<_>>().join(", "));
        findings.add("worker-ids", Level::Warn, found, Some("give each worker its own --id, or none"));
    }
}

/// Warns of agents with tools of MCP servers that no worker of their pool has. Other tools are
/// checked when an agent is applied.
pub(super) async fn unknown_tools(bus: &ClientBus, workers: &[WorkerState], findings: &mut Findings) {
    let Ok(QueryAnswer::Agents { agents, .. }) = ask(bus, &Query::Agents).await else {
        // Reported before: no coordinator answers, or this role may not ask.
        return;
    };
    let default_pool = PoolName::default_pool();
    // The agents, by server and pool.
    let mut unknown: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for agent in &agents {
        let pool = agent.pool.as_ref().unwrap_or(&default_pool);
        // A worker that does not report its servers may have any of them.
        let of_pool = workers.iter().filter(|worker| worker.pool == *pool);
        let servers: Option<Vec<&Vec<String>>> = of_pool.map(|worker| worker.mcp_servers.as_ref()).collect();
        let Some(servers) = servers.filter(|servers| !servers.is_empty()) else { continue };
        let tools = agent.tools.iter().flatten();
        for server in tools.filter_map(|tool| tool.as_str().split_once(':')).map(|(server, _)| server) {
            if !servers.iter().any(|names| names.iter().any(|name| name == server)) {
                unknown.entry((server, pool.as_str())).or_default().insert(agent.agent_id.as_str());
            }
        }
    }
    for ((server, pool), agents) in unknown.iter().take(TOLD_SERVERS) {
        let found = format!(
            "no worker of the pool `{pool}` has the MCP server `{server}`, whose tools are in the {} of {}",
            if agents.len() == 1 { "profile" } else { "profiles" },
            agents.iter().copied().collect::<Vec<_>>().join(", ")
        );
        let hint = format!(
            "add `{server}` under `mcp` in the settings of a worker of the pool (--config), or remove its tools from `tools`"
        );
        findings.add("tools", Level::Warn, found, Some(&hint));
    }
}

/// Warns of workers that drop spans.
pub(super) fn dropped_spans(workers: &[WorkerState], findings: &mut Findings) {
    let dropped = workers.iter().fold(0_u64, |sum, worker| sum.saturating_add(worker.spans_dropped));
    if dropped > 0 {
        let found = format!("workers have dropped {} since they started", count(dropped, "span"));
        let hint = "their collector can't be reached or is too slow; their logs have the time, and `trellis_spans_dropped_total` shows which worker";
        findings.add("dropped-spans", Level::Warn, found, Some(hint));
    }
}
