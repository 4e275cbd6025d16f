//! The output of `trellis doctor` about queues, dead letters and the collector of spans; tools,
//! streams, old runs and workers with one name.

use std::process::Stdio;

use domain::subject::Subject;
use serde_json::{Value, json};
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, binary},
    servers::{Collector, free_port},
};

/// The level and the finding of a check; `None` if it was not made.
async fn checked(cluster: &Processes, check: &str, more: &[(String, String)]) -> Option<(String, String)> {
    let mut command = tokio::process::Command::new(binary());
    command
        .args(["doctor", "-o", "json"])
        .env("NATS_URL", cluster.nats.url())
        .env("REDIS_URL", cluster.redis.url());
    command.args(["--stuck-after", "1s", "--old-after", "1s"]).envs(more.iter().cloned());
    let said = command.output().await.unwrap();
    let found: Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    let list = found.as_array().unwrap_or_else(|| panic!("{found}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = list.iter().find(|one| one["check"] == check)?;
    Some((text(&one["level"]), text(&one["found"])))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_reports_waiting_work_refused_messages_and_the_collector() {
    let mut cluster = Processes::start(1, 1).await;
    let level = async |check: &str, more: &[(String, String)]| {
        checked(&cluster, check, more).await.map(|found| found.0)
    };
    assert_eq!(level("queues", &[]).await.as_deref(), Some("ok"));
    assert_eq!(level("dead-letters", &[]).await.as_deref(), Some("ok"));
    assert_eq!(level("collector", &[]).await, None, "no collector is configured");
    assert_eq!(level("stuck-runs", &[]).await.as_deref(), Some("ok"));

    let collector = Collector::start().await;
    assert_eq!(level("collector", &collector.environment()).await.as_deref(), Some("ok"));
    let nobody = ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://127.0.0.1:{}", free_port()));
    assert_eq!(level("collector", &[nobody]).await.as_deref(), Some("fail"));

    cluster.kill("w1");
    let run = cluster.begin(json!({"goal": "hello"})).await;
    cluster.until(run, "in the queue", |trace| trace.root().is_some()).await;
    eventually("all workers have stopped", async || {
        let found = checked(&cluster, "queues", &[]).await;
        found.is_some_and(|(level, found)| {
            level == "fail" && found.contains("1 task") && found.contains("`default`")
        })
    })
    .await;
    eventually("the run is shown as stalled", async || {
        let found = checked(&cluster, "stuck-runs", &[]).await;
        found.is_some_and(|(level, found)| level == "warn" && found.contains(&run.to_string()))
    })
    .await;
    cluster.client.publish(Subject::Spawn, &json!({"no such field": 1})).await;
    eventually("doctor reports the dead letter", async || {
        let found = checked(&cluster, "dead-letters", &[]).await;
        found.is_some_and(|(level, found)| level == "warn" && found.contains("agent.dead.spawn"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_reports_missing_tools_changed_streams_old_runs_and_duplicate_worker_ids() {
    let cluster = Processes::start(1, 1).await;
    let told = async |cluster: &Processes, check: &str| {
        checked(cluster, check, &[]).await.filter(|found| found.0 == "warn").map(|found| found.1)
    };
    cluster.apply(json!([{"agent_id": "coder", "kind": "llm", "model": "scripted", "tools": ["git:log", "fs.read"]}])).await;
    let tools = told(&cluster, "tools").await.unwrap();
    assert!(
        tools.contains("pool `default` has the MCP server `git`") && tools.ends_with("of coder"),
        "{tools}"
    );

    assert_eq!(told(&cluster, "stream-settings").await, None);
    let raw = async_nats::jetstream::new(async_nats::connect(cluster.nats.url()).await.unwrap());
    let mut profiles = raw.get_stream("AGENT_PROFILE").await.unwrap().cached_info().config.clone();
    profiles.max_messages_per_subject = 5;
    raw.update_stream(profiles).await.unwrap();
    let settings = told(&cluster, "stream-settings").await.unwrap();
    assert!(settings.contains("of `AGENT_PROFILE`, `max_msgs_per_subject` should be"), "{settings}");

    assert_eq!(told(&cluster, "old-runs").await, None);
    let run = cluster.begin(json!({"goal": "x", "agent_id": "sleep", "inputs": {"ms": 600_000}})).await;
    cluster.until(run, "begun", |trace| trace.root().is_some()).await;
    let found = eventually_told(&cluster, "old-runs").await;
    assert!(
        found.starts_with("1 run is still live long after") && found.contains(&run.to_string()),
        "{found}"
    );

    assert_eq!(told(&cluster, "worker-ids").await, None);
    let mut twin = tokio::process::Command::new(binary());
    twin.args(["worker", "--id", "w1"]).env("NATS_URL", cluster.nats.url()).kill_on_drop(true);
    let _twin = twin.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(eventually_told(&cluster, "worker-ids").await, "more than one worker is called w1");
}

/// The finding, once it is a warning.
async fn eventually_told(cluster: &Processes, check: &str) -> String {
    let told = std::sync::Mutex::new(String::new());
    eventually(&format!("{check} is told"), async || {
        let found = checked(cluster, check, &[]).await.filter(|found| found.0 == "warn");
        found.is_some_and(|(_, found)| {
            *told.lock().unwrap() = found;
            true
        })
    })
    .await;
    told.into_inner().unwrap()
}
