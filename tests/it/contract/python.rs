//! A client and a worker in Python, written only from `docs/protocol.md`, on real servers.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use domain::subject::Subject;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use trellis_tests::{
    cluster::{Cluster, SOON},
    servers::{NatsServer, RedisServer},
};

fn python(script: &str, nats: &NatsServer) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let named = std::env::var_os("TRELLIS_PYTHONPATH").map(PathBuf::from);
    let path = named.unwrap_or_else(|| root.join(".tools/python"));
    assert!(
        path.join("nats").is_dir(),
        "there is no nats-py at {}\n\nhint: run scripts/servers once, or set TRELLIS_PYTHONPATH",
        path.display()
    );
    let mut command = Command::new("python3");
    command.arg("-B").arg(root.join("examples/python").join(script)).kill_on_drop(true);
    command.env("PYTHONPATH", path).env("NATS_URL", nats.url()).env_remove("TRELLIS_NAMESPACE");
    command
}

/// Runs to its end. Returns its exit code and its output.
async fn submit(nats: &NatsServer, submission: &str) -> (Option<i32>, String) {
    finish(python("submit.py", nats).arg(submission)).await
}

async fn finish(command: &mut Command) -> (Option<i32>, String) {
    let running = command.output();
    let output = tokio::time::timeout(SOON, running).await.expect("the program ends").expect("python3 runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

async fn query(cluster: &Cluster, query: Value) -> Value {
    json!(cluster.client.query(query).await)
}

/// The descriptions of all workers that answer.
async fn workers(cluster: &Cluster) -> Vec<Value> {
    let asked =
        cluster.client.bus.gather(&Subject::Worker, "\"describe\"".into(), Duration::from_millis(300));
    asked.await.unwrap().iter().map(|answer| serde_json::from_slice(answer).unwrap()).collect()
}

fn worker(nats: &NatsServer) -> Child {
    // Each call takes longer than the time between two ticks.
    python("worker.py", nats)
        .env("CALL_SECONDS", "4")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("python3 runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_in_python_submits_waits_and_sees_all_its_mistakes() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    cluster.client.run(json!({"goal": "warm"})).await;

    let (code, said) = submit(&nats, "Say hello").await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("accepted: run ") && said.contains("completed: \"Say hello\""), "{said}");

    let (code, said) = submit(&nats, r#"{"goal": "", "agent_idd": "x", "max_cost_usd": -1}"#).await;
    assert_eq!(code, Some(3), "{said}");
    for part in [
        "refused (malformed): ",
        "goal: the text is empty",
        "max_cost_usd: -1 is negative",
        "did you mean `agent_id`?",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }

    let (code, said) =
        submit(&nats, r#"{"goal": "x", "agent_id": "fail", "inputs": {"retryable": false}}"#).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("failed: ") && said.contains("failed as requested"), "{said}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_a_client_in_python_finds_runs_page_by_page() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    for number in 0..5 {
        let env = ["prod", "test"][number % 2];
        cluster.client.run(json!({"goal": "hello", "labels": {"env": env, "n": number.to_string()}})).await;
    }
    let (code, said) =
        finish(python("runs.py", &nats).arg(r#"{"labels": {"env": "prod"}, "limit": 2}"#)).await;
    let labels: Vec<&str> = said.lines().filter_map(|line| line.split("env=").nth(1)).collect();
    assert_eq!((code, labels), (Some(0), vec!["prod n=4", "prod n=2", "prod n=0"]), "{said}");
    let (code, said) = finish(python("runs.py", &nats).arg(r#"{"lables": {}}"#)).await;
    assert!(code == Some(3) && said.contains("did you mean `labels`?"), "{said}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_python_runs_a_pool_pays_and_leaves_in_order() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    cluster.client.run(json!({"goal": "warm"})).await;
    let profile =
        json!({"agent_id": "counter", "kind": "command", "command": ["worker.py"], "pool": "python"});
    let applied = query(&cluster, json!({"apply_agents": {"agents": [profile]}})).await;
    assert_eq!(applied, json!({"applied": {"agents": ["counter"], "versions": {"counter": 1}}}));
    let mut python = worker(&nats);

    // Work may wait in the queue before a worker starts; both kinds of worker take part in one
    // graph.
    let graph = json!({"steps": [
        {"id": "count", "agent_id": "counter", "task_description": "count these four words", "output_to": "n"},
        {"id": "tell", "agent_id": "echo", "task_description": "told", "input_from": ["n"]},
    ]});
    let outcome = cluster.client.run(graph).await;
    let outcome = serde_json::to_value(&outcome).unwrap();
    assert_eq!(outcome["status"], "completed", "{outcome:#}");
    assert_eq!(outcome["outputs"]["n"]["words"], 4, "{outcome:#}");
    assert_eq!(outcome["budget"]["spent"], json!({"cost_usd": 0.001, "tokens": 4}), "{outcome:#}");

    // With a budget too small for its call the run fails, with the coordinator's numbers in the
    // error.
    let poor =
        cluster.client.run(json!({"goal": "too dear", "agent_id": "counter", "max_cost_usd": 0.0005})).await;
    let error = poor.context.error.expect("a failure").message;
    assert!(error.contains("denied") && error.contains("0.0005"), "{error}");

    // An invalid message becomes a dead letter, and the next message is processed.
    cluster.client.publish(Subject::Execute("python".parse().unwrap()), &json!({"not": "work"})).await;
    let again = cluster.client.run(json!({"goal": "one two", "agent_id": "counter"})).await;
    assert_eq!(serde_json::to_value(&again.context.result).unwrap(), json!({"words": 2}));

    let hears = async {
        loop {
            let states = workers(&cluster).await;
            if let Some(ours) = states.into_iter().find(|state| state["pool"] == "python") {
                return ours;
            }
        }
    };
    let ours = tokio::time::timeout(SOON, hears).await.expect("the worker answers");
    let drain = json!({"worker_id": ours["worker_id"]}).to_string();
    let drains = Subject::Drain;
    // Long enough for an interpreter on a busy machine: this is asked once.
    let told = cluster.client.bus.gather(&drains, drain.into(), Duration::from_secs(3)).await.unwrap();
    assert_eq!(told.len(), 1, "only the named worker answers");
    let left = tokio::time::timeout(SOON, python.wait()).await.expect("the worker ends").unwrap();
    assert!(left.success(), "{left}");
    cluster.stop().await;
}
