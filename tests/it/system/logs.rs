//! The log lines of coordinators and workers as separate processes (X8).

use std::process::Command;

use domain::{
    subject::Subject,
    wire::{EndStatus, Outcome},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::eventually,
    log_lines,
    processes::{Processes, Shape, binary},
    servers::{ModelServer, Prompt, Reply},
};

/// Texts that must not appear in a log.
const GOAL: &str = "CANARY-GOAL";
const ERROR: &str = "CANARY-ERROR";
const TOOL: &str = "CANARY-TOOL";
const ECHO: &str = "CANARY-ECHO-sk-12345";
const REASON: &str = "CANARY-REASON";

async fn cluster(coordinators: usize, model: &ModelServer) -> Processes {
    let worker = model.settings();
    let cluster =
        Processes::start_as(|| Shape { worker, json_logs: true, ..Shape::new(coordinators, 1) }).await;
    let tools = ["fs.write", "fs.read"];
    let agent = json!({"agent_id": "one", "kind": "llm", "model": "test/model", "tools": tools});
    cluster.apply(json!([agent])).await;
    cluster
}

async fn model() -> ModelServer {
    ModelServer::start(|prompt: &Prompt| {
        let reply = Reply { input_tokens: 10, output_tokens: 10, ..Reply::default() };
        let call = |name: &str, arguments: Value| vec![(name.to_owned(), arguments)];
        match (prompt.task().contains("refused"), prompt.turn()) {
            (true, _) => Reply { status: Some(400), text: format!("{ECHO} {}", prompt.task()), ..reply },
            (false, 0) => {
                let note = json!({"path": format!("outputs/{TOOL}"), "content": TOOL});
                Reply { calls: call("fs_write", note), ..reply }
            }
            (false, 1) => Reply { calls: call("fs_read", json!({"path": format!("no/{TOOL}")})), ..reply },
            (false, _) => Reply { text: format!("{ECHO} done"), ..reply },
        }
    })
    .await
}

/// The log lines with this message, about this trace if one is given.
fn about(logs: &[Value], said: &str, trace: Option<&str>) -> Vec<Value> {
    let is = |line: &&Value| line["message"] == said && trace.is_none_or(|trace| line["trace_id"] == trace);
    logs.iter().filter(is).cloned().collect()
}

fn lines(cluster: &Processes, prefix: &str) -> Vec<Value> {
    cluster.names(prefix).iter().flat_map(|name| log_lines::read(&cluster.log(name))).collect()
}

fn status(outcome: &Outcome) -> EndStatus {
    outcome.context.status
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_a_cluster_logs_json_with_one_line_for_each_event_and_no_text_of_others() {
    let model = model().await;
    let mut cluster = cluster(2, &model).await;

    let told = cluster.begin(json!({"goal": GOAL, "agent_id": "one", "max_cost_usd": 1})).await;
    assert_eq!(status(&cluster.outcome(told).await), EndStatus::Completed);
    let refused = json!({"goal": format!("refused {GOAL}"), "agent_id": "one", "max_cost_usd": 1});
    let refused = cluster.begin(refused).await;
    assert_eq!(status(&cluster.outcome(refused).await), EndStatus::Failed);
    let fails = json!({"goal": GOAL, "agent_id": "fail", "inputs": {"message": ERROR, "retryable": false}});
    let fails = cluster.begin(fails).await;
    assert_eq!(status(&cluster.outcome(fails).await), EndStatus::Failed);
    let pays = json!({
        "goal": GOAL, "agent_id": "spend", "max_cost_usd": 0.02, "inputs": {"usd": 0.01, "calls": 3},
    });
    let denied = cluster.begin(pays).await;
    cluster.outcome(denied).await;

    let panics = cluster.begin(json!({"goal": GOAL, "agent_id": "panic"})).await;
    assert_eq!(status(&cluster.outcome(panics).await), EndStatus::Failed);

    let sleeps = |ms: u64| json!({"goal": GOAL, "agent_id": "sleep", "inputs": {"ms": ms}});
    let cancelled = cluster.begin(sleeps(60_000)).await;
    cluster.until(cancelled, "there", |trace| trace.root().is_some()).await;
    for _ in 0..2 {
        let cancel = json!({"trace_id": cancelled, "reason": REASON});
        cluster.tell(Subject::Cancel, &cancel).await;
    }
    assert_eq!(status(&cluster.outcome(cancelled).await), EndStatus::Cancelled);
    cluster.tell(Subject::Spawn, &json!({"goal": 7, "wrong": ERROR})).await;

    let lost = cluster.begin(sleeps(3_000)).await;
    let begun = |trace: &trace::Trace| trace.root().is_some_and(|root| root.attempt() == 1);
    cluster.until(lost, "claimed", begun).await;
    cluster.kill("w1");
    cluster.run("w1");
    assert_eq!(status(&cluster.outcome(lost).await), EndStatus::Completed);
    let kept = cluster.log("c2");
    cluster.kill("c2");
    let moved = |log: &[Value]| -> usize {
        let lines = about(log, "this coordinator owns partitions now", None);
        lines.iter().map(|line| line["partitions"].as_str().unwrap_or_default().split(' ').count()).sum()
    };
    let of_c2 = moved(&log_lines::read(&kept));
    assert!(of_c2 > 0, "{kept}");
    eventually("c1 owns every partition", async || moved(&lines(&cluster, "c1")) >= 16).await;

    let coordinators = lines(&cluster, "c");
    let workers = lines(&cluster, "w");
    let ended = [told, refused, fails, denied, cancelled, lost].map(|trace| trace.to_string());
    for trace in &ended {
        for said in ["a context was admitted", "a context ended"] {
            let [line] = &about(&coordinators, said, Some(trace))[..] else { panic!("{said} {trace}") };
            assert_eq!(line["child_id"], "root", "{line}");
            assert_eq!(line["level"], "INFO", "{line}");
            assert!(line["span_id"].as_str().is_some_and(|id| id.len() == 16), "{line}");
            assert!(["c1", "c2"].map(Value::from).contains(&line["coordinator_id"]), "{line}");
        }
    }
    let panic = about(&workers, "a panic: this is a bug of Trellis", None);
    assert!(panic.iter().all(|line| line["trace_id"] == panics.to_string()), "{panic:#?}");
    assert!(panic.first().is_some_and(|line| line["place"].is_string()), "{workers:#?}");
    let [told, .., denied, cancelled, lost] = &ended;
    let [line] = &about(&coordinators, "an attempt was lost", None)[..] else { panic!("{coordinators:#?}") };
    assert_eq!(
        (&line["trace_id"], &line["attempt"], &line["worker_id"]),
        (&json!(lost), &json!(1), &json!("w1")),
        "{line}"
    );
    let denials = about(&coordinators, "a budget denied a call", None);
    assert!(!denials.is_empty() && denials.iter().all(|line| line["trace_id"] == *denied), "{denials:#?}");
    assert_eq!((&denials[0]["scope"], &denials[0]["dimension"]), (&json!("root"), &json!("cost")));
    let [line] = &about(&coordinators, "a cancel was taken", None)[..] else { panic!("{coordinators:#?}") };
    assert_eq!(line["trace_id"], *cancelled);
    let letters = about(&coordinators, "a message became a dead letter", None);
    assert_eq!(letters.iter().map(|line| &line["kind"]).collect::<Vec<_>>(), ["spawn"]);
    let attempts: Vec<&Value> = workers.iter().filter(|line| line["trace_id"] == *told).collect();
    for line in attempts {
        assert_eq!((&line["worker_id"], &line["child_id"]), (&json!("w1"), &json!("root")), "{line}");
    }
    for name in cluster.names("") {
        let log = cluster.log(&name);
        for canary in [GOAL, ERROR, TOOL, ECHO, REASON] {
            assert!(!log.contains(canary), "{canary} is in the log of {name}:\n{log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_an_outage_of_redis_has_few_lines_with_its_cause() {
    let model = model().await;
    let mut cluster = cluster(1, &model).await;
    let before = cluster.begin(json!({"goal": GOAL})).await;
    cluster.outcome(before).await;
    cluster.redis.kill();
    let about_redis = |cluster: &Processes| -> Vec<Value> {
        lines(cluster, "c").into_iter().filter(|line| line["what"] == "Redis").collect()
    };
    let mut runs = Vec::new();
    let has =
        |cluster: &Processes, said: &str| about_redis(cluster).iter().any(|line| line["message"] == said);
    while !has(&cluster, "still can't be reached") {
        runs.push(cluster.begin(json!({"goal": GOAL})).await);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    cluster.redis.restart();
    eventually("the log reports that Redis is back", async || has(&cluster, "can be reached again")).await;
    for run in runs {
        cluster.outcome(run).await;
    }
    let told = about_redis(&cluster);
    let said: Vec<&Value> = told.iter().map(|line| &line["message"]).collect();
    assert_eq!(said.first(), Some(&&json!("can't be reached")), "{told:#?}");
    assert!(said.len() <= 5, "{told:#?}");
    let cause = told[0]["cause"].as_str().unwrap_or_default();
    assert!(
        ["refused", "closed", "broken", "reset", "terminated"].iter().any(|word| cause.contains(word)),
        "{cause}"
    );
    let warnings: Vec<Value> =
        lines(&cluster, "").into_iter().filter(|line| line["level"] == "WARN").collect();
    assert!(warnings.len() <= 12, "{warnings:#?}");
}

#[test]
fn x8_a_failed_start_is_logged_in_json() {
    let says = |arguments: &[&str]| {
        let ended = Command::new(binary())
            .args(arguments)
            .arg("--log-json")
            .env_clear()
            .env("NATS_URL", "nats://127.0.0.1:1")
            .env("REDIS_URL", "redis://127.0.0.1:1")
            .output()
            .expect("the binary starts");
        assert!(!ended.status.success(), "{arguments:?}");
        let log = String::from_utf8(ended.stderr).expect("text");
        let lines = log_lines::read(&log);
        let errors = lines.iter().filter(|line| line["level"] == "ERROR").count();
        assert_eq!(errors, 1, "{arguments:?}: {log}");
    };
    says(&["coordinator"]);
    says(&["worker"]);
    says(&["worker", "--slots", "many"]);
    says(&["coordinator", "--settings", "no-such-file.json"]);
    says(&["dev", "--agents", "no-such-file.yaml"]);
    says(&["no-such-command"]);
}
