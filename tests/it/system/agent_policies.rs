//! Policies about profiles (S4): a worker runs only what its policy allows, and a coordinator with
//! the same policy refuses other profiles when they are applied.

use std::process::Command;

use domain::wire::{EndStatus, FailureKind};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, Shape, binary, repository},
};

fn program(agent_id: &str, command: &[&str], more: Value) -> Value {
    let mut agent = json!({"agent_id": agent_id, "kind": "command", "command": command, "tools": []});
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_a_worker_with_an_empty_policy_runs_no_program_and_reports_it_once() {
    let empty = std::env::temp_dir().join(format!("trellis-policy-{}.json", std::process::id()));
    std::fs::write(&empty, "{}").unwrap();
    let policy = Some(empty.clone());
    let cluster = Processes::start_as(|| Shape { policy, ..Shape::new(1, 1) }).await;
    std::fs::remove_file(&empty).unwrap();
    let llm = json!({"agent_id": "talks", "kind": "llm", "model": "scripted", "script": [{"say": "hello"}]});
    let checked = json!({"agent_id": "checked", "kind": "llm", "model": "scripted", "script": [{"say": "hello"}],
        "checks": [{"name": "c", "on": ["before_call"], "program": {"command": ["true"]}}]});
    cluster
        .apply(json!([program("runs", &["sh", "-c", "echo ran"], json!({"network": true})), llm, checked]))
        .await;
    let run = cluster.begin(json!({"goal": "go", "agent_id": "runs"})).await;
    let refused = cluster.outcome(run).await.context;
    let error = refused.error.unwrap();
    assert_eq!(
        (refused.status, refused.attempts),
        (EndStatus::Failed, 1),
        "a refused agent is not tried again"
    );
    assert_eq!((error.kind, error.retryable), (FailureKind::Refused, false));
    for told in ["kind: ", "command: ", "network: ", "`programs` of the policy file"] {
        assert!(error.message.contains(told), "{told}: {}", error.message);
    }
    let run = cluster.begin(json!({"goal": "go", "agent_id": "talks"})).await;
    assert_eq!(cluster.outcome(run).await.context.status, EndStatus::Completed);
    let run = cluster.begin(json!({"goal": "go", "agent_id": "checked"})).await;
    assert_eq!(cluster.outcome(run).await.context.error.unwrap().kind, FailureKind::Refused);
    // A graph handles a refused step like a failed one.
    let graph = json!({"mode": "sequential", "steps": [
        {"id": "one", "agent_id": "runs", "task_description": "go", "fallback": {"agent_id": "talks"}},
    ]});
    let run = cluster.begin(graph).await;
    assert_eq!(cluster.outcome(run).await.context.status, EndStatus::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_a_policy_is_enforced_and_reported_by_workers_and_checked_when_profiles_are_applied() {
    let policy = Some(repository().join("examples/policy.yaml"));
    let mut cluster = Processes::start_as(|| Shape { policy, ..Shape::new(1, 1) }).await;
    let count = ["sh", "examples/command/count.sh"];
    let reads = json!({"reads": ["examples/command"]});
    let other = program("other", &["sh", "-c", "echo ran"], json!({"reads": ["examples/command/../.."]}));
    // A link does not lead out of the readable directories.
    let link = std::env::temp_dir().join(format!("trellis-policy-{}", std::process::id()));
    std::os::unix::fs::symlink(repository().join("examples/command"), &link).unwrap();
    let linked = program("linked", &count, json!({"reads": ["examples/command", link]}));
    let pool = program("pooled", &count, json!({"resources": {"processes": 65}}));
    let agents = json!([program("counts", &count, reads), other, linked, pool]);
    cluster.apply(agents.clone()).await;
    for (agent, refused) in [
        ("counts", None),
        ("linked", None),
        ("other", Some("reads[0]: ")),
        ("pooled", Some("resources.processes: 65")),
    ] {
        let run = cluster.begin(json!({"goal": "a b c", "agent_id": agent})).await;
        let context = cluster.outcome(run).await.context;
        match refused {
            None => assert_eq!(context.status, EndStatus::Completed, "{agent}: {context:#?}"),
            Some(told) => {
                let error = context.error.unwrap();
                assert!(
                    error.kind == FailureKind::Refused && error.message.contains(told),
                    "{agent}: {}",
                    error.message
                );
            }
        }
    }
    std::fs::remove_file(&link).unwrap();

    let trellis = |arguments: &[&str]| {
        let command =
            Command::new(binary()).args(arguments).env_clear().env("NATS_URL", cluster.nats.url()).output();
        let output = command.unwrap();
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (listed, _) = trellis(&["workers", "list"]);
    assert!(
        listed.contains("builtin llm command; programs: python3 examples/command/review.py, sh "),
        "{listed}"
    );

    // The same file given to the coordinator.
    let file = std::env::temp_dir().join(format!("trellis-agents-{}.json", std::process::id()));
    std::fs::write(&file, json!({"agents": agents}).to_string()).unwrap();
    let applied = |file: &std::path::Path| trellis(&["agents", "apply", file.to_str().unwrap()]);
    assert_eq!(applied(&file).1, "");
    cluster.stop("c1").await;
    cluster.run_with("c1", &["--policy", "examples/policy.yaml"]);
    cluster.all_there().await;
    let output = Command::new(binary())
        .args(["agents", "apply", file.to_str().unwrap()])
        .env_clear()
        .env("NATS_URL", cluster.nats.url())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::remove_file(&file).unwrap();
    for path in [
        "agents[1].command: ",
        "agents[1].reads[0]: ",
        "agents[2].reads[1]: ",
        "agents[3].resources.processes: ",
    ] {
        assert!(told.contains(path), "{path}: {told}");
    }
    assert!(!output.status.success() && !told.contains("agents[0]"), "{told}");
    // The policy of the examples allows all of them, and its worker reports how it runs programs.
    for directory in ["", "agents/", "command/", "scenarios/", "secrets/"] {
        let file = repository().join("examples").join(directory).join("agents.yaml");
        let output = Command::new(binary())
            .args(["agents", "apply", &file.to_string_lossy()])
            .env_clear()
            .env("NATS_URL", cluster.nats.url())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{directory}");
    }
    let log = cluster.log("w1");
    let told = log.lines().find(|line| line.contains("programs run in a sandbox"));
    assert!(told.is_some_and(|line| line.contains("seccomp") && line.contains("missing=")), "{log}");
}

/// proves: a policy of workers is recorded at its first use, independent of the number of workers
/// and their restarts; a pool whose workers differ is reported.
#[tokio::test(flavor = "multi_thread")]
async fn s7_a_changed_policy_of_workers_leaves_one_record_and_is_shown() {
    let file = std::env::temp_dir().join(format!("trellis-worker-policy-{}.json", std::process::id()));
    std::fs::write(&file, "{}").unwrap();
    let policy = Some(file.clone());
    let mut cluster = Processes::start_as(|| Shape { policy, ..Shape::new(2, 3) }).await;
    let nats = cluster.nats.url();
    let trellis = |arguments: &[&str]| {
        let output =
            Command::new(binary()).args(arguments).env_clear().env("NATS_URL", &nats).output().unwrap();
        let [said, told] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        said + &told
    };
    let records = || {
        // The output continues with a note that nothing was verified.
        let said = trellis(&["admin-log", "-o", "json"]);
        let mut read = serde_json::Deserializer::from_str(&said).into_iter::<Vec<Value>>();
        let log = read.next().unwrap().unwrap();
        log.into_iter().filter(|record| record["asked"] == "worker_policy").collect::<Vec<_>>()
    };
    async fn work(cluster: &Processes) {
        for _ in 0..12 {
            let run = cluster.begin(json!({"goal": "go", "agent_id": "echo"})).await;
            assert_eq!(cluster.outcome(run).await.context.status, EndStatus::Completed);
        }
    }
    work(&cluster).await;
    eventually("the first policy is recorded", async || records().len() == 1).await;
    assert!(!trellis(&["doctor"]).contains("worker-policies"));

    std::fs::write(&file, json!({"models": ["scripted"]}).to_string()).unwrap();
    cluster.stop("w3").await;
    cluster.run("w3");
    cluster.all_there().await;
    for said in [trellis(&["doctor"]), trellis(&["workers", "list"])] {
        let apart = "the workers of the pool `default` have different policies: ";
        assert!(said.contains(apart) && said.contains("(w1 and 1 more)") && said.contains("(w3)"), "{said}");
    }
    cluster.stop("w1").await;
    cluster.stop("w2").await;
    work(&cluster).await;
    eventually("the second is recorded", async || records().len() == 2).await;
    // Restarted workers and coordinators report nothing new.
    cluster.stop("c1").await;
    for name in ["c1", "w1", "w2"] {
        cluster.run(name);
    }
    cluster.all_there().await;
    work(&cluster).await;
    std::fs::remove_file(&file).unwrap();
    let records = records();
    assert_eq!(records.len(), 2, "{records:#?}");
    assert_eq!(records[0]["names"][0], "pool default");
    assert_ne!(records[0]["names"][1], records[1]["names"][1]);
    assert_eq!(records[1]["by"]["claimed"], "w3", "{records:#?}");
}
