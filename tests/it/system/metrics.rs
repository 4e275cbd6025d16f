//! `/metrics` of running coordinators and workers, read by a client library of Prometheus (X7).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{subject::Subject, wire::EndStatus};
use serde_json::json;
use telemetry::metrics;
use tokio::time::Instant;
use trellis_tests::{
    cluster::SOON,
    processes::Processes,
    prometheus::{Series, fetch, parse},
    servers::free_port,
};

/// Words of people, agents and tools. None may become a label.
const CANARY: &str = "canary-8271";

/// Every series of the processes that answer, and of one that is gone.
fn read(ports: &BTreeMap<String, u16>, gone: &str) -> (Vec<Series>, String) {
    let texts = ports.values().filter_map(|port| fetch(*port)).chain([gone.to_owned()]);
    let texts: Vec<String> = texts.collect();
    (texts.iter().flat_map(|text| parse(text)).collect(), texts.concat())
}

fn sum(all: &[Series], name: &str, labels: &[(&str, &str)]) -> f64 {
    let is_it = |series: &&Series| {
        series.name == name
            && labels.iter().all(|(label, value)| series.labels.get(*label).is_some_and(|is| is == value))
    };
    all.iter().filter(is_it).map(|series| series.value).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn x7_metrics_count_everything_once_and_name_no_user() {
    let mut cluster = Processes::start(1, 2).await;
    let mut ports = BTreeMap::new();
    for name in cluster.names("") {
        cluster.stop(&name).await;
        let port = free_port();
        cluster.run_with(&name, &["--health", &format!("127.0.0.1:{port}")]);
        ports.insert(name, port);
    }
    cluster.all_there().await;

    let script = json!([
        {"say": format!("{CANARY} I look"), "call": [{"tool": "fs.list", "arguments": {}}]},
        {"say": CANARY},
    ]);
    let agent = json!({"agent_id": "looker", "kind": "llm", "model": "scripted", "tools": ["fs.list"], "script": script});
    cluster.apply(json!([agent])).await;
    let looks = cluster.client.run(json!({"goal": CANARY, "agent_id": "looker", "thread_id": CANARY})).await;
    assert_eq!(looks.context.status, EndStatus::Completed);
    let step = json!({"id": CANARY, "agent_id": "echo", "task_description": CANARY});
    cluster.client.run(json!({"name": CANARY, "steps": [step]})).await;

    // A denial, a dead letter, and a cancel.
    let pay = json!({"goal": CANARY, "agent_id": "spend", "max_cost_usd": 0.01, "inputs": {"usd": 0.05}});
    assert_eq!(cluster.client.run(pay).await.context.status, EndStatus::Failed);
    cluster.tell(Subject::Spawn, &json!({"junk": CANARY})).await;
    let sleep = |ms: u64| json!({"goal": CANARY, "agent_id": "sleep", "inputs": {"ms": ms}});
    let cancelled = cluster.begin(sleep(600_000)).await;
    cluster.until(cancelled, "claimed", |trace| trace.root().is_some_and(|root| root.attempt() == 1)).await;
    cluster.tell(Subject::Cancel, &json!({"trace_id": cancelled})).await;
    assert_eq!(cluster.outcome(cancelled).await.context.status, EndStatus::Cancelled);

    // A worker dies in a call, which is booked at its hold.
    let inputs = json!({"usd": 0.02, "hold_usd": 0.05, "ms": 4_000});
    let lost = cluster.begin(json!({"goal": CANARY, "agent_id": "spend", "inputs": inputs})).await;
    cluster
        .until(lost, "in a call", |trace| trace.root().is_some_and(|root| root.calls.kept().len() == 1))
        .await;
    let worker = cluster.client.trace(lost).await.root().unwrap().attempts[0].worker_id.to_string();
    let gone = fetch(ports[&worker]).expect("the worker answers");
    cluster.kill(&worker);
    assert_eq!(cluster.outcome(lost).await.context.attempts, 2);

    let deadline = Instant::now() + SOON;
    let (all, text) = loop {
        let (all, text) = read(&ports, &gone);
        let names: BTreeSet<&str> = all.iter().map(|series| &*series.name).collect();
        let is_there = |name: &str| names.contains(name) || names.contains(&*format!("{name}_count"));
        let missing: Vec<&str> =
            metrics::ALL.iter().map(|metric| metric.prometheus).filter(|name| !is_there(name)).collect();
        if missing.is_empty() && sum(&all, "trellis_dead_letters_total", &[("kind", "spawn")]) > 0.0 {
            break (all, text);
        }
        assert!(Instant::now() < deadline, "missing: {missing:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    for (name, labels, value) in [
        ("trellis_runs_total", &[("status", "completed")][..], 3.0),
        ("trellis_runs_total", &[("status", "failed")], 1.0),
        ("trellis_runs_total", &[("status", "cancelled")], 1.0),
        ("trellis_attempts_total", &[("verdict", "lost")], 1.0),
        ("trellis_leases_expired_total", &[], 1.0),
        ("trellis_denials_total", &[("dimension", "cost"), ("reason", "too_small")], 1.0),
        ("trellis_holds_total", &[("result", "denied")], 1.0),
        // Two calls of the model, and two of the run whose worker was lost.
        ("trellis_holds_total", &[("result", "granted")], 4.0),
        ("trellis_dead_letters_total", &[], 1.0),
        ("trellis_cancel_seconds_count", &[], 1.0),
        ("trellis_spend_usd_total", &[("source", "estimate")], 0.05),
        ("trellis_spend_usd_total", &[("source", "call"), ("model", "other")], 0.02),
        ("gen_ai_workflow_duration_seconds_count", &[], 1.0),
        ("gen_ai_execute_tool_duration_seconds_count", &[("gen_ai_tool_name", "fs.list")], 1.0),
        ("gen_ai_client_operation_duration_seconds_count", &[("gen_ai_request_model", "scripted")], 2.0),
    ] {
        assert_eq!(sum(&all, name, labels), value, "{name} {labels:?}");
    }
    assert!(sum(&all, "trellis_spend_usd_total", &[("model", "scripted"), ("source", "call")]) > 0.0);
    assert_eq!(sum(&all, "trellis_partitions_owned", &[]), 16.0);
    for text_of_somebody in [CANARY, &cancelled.to_string(), &lost.to_string()] {
        assert!(!text.contains(text_of_somebody), "{text_of_somebody} is in the metrics");
    }
}
