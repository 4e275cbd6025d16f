//! A backup of a cluster consists of the disk of its NATS server and of its keys: docs/backup.md
//! describes it. Everything in Redis is rebuilt.

use std::{path::PathBuf, process::Command};

use domain::{
    TraceId, Usd,
    subject::{Action, Subject},
    wire::EndStatus,
};
use serde_json::{Value, json};
use trace::{Status, Trace};
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, Shape, binary, fresh_trace, repository},
    servers::NatsServer,
};

/// A directory that is removed with the test.
struct Backup(PathBuf);

impl Drop for Backup {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The JSON output of a command on the cluster.
fn says(nats: &NatsServer, args: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(binary());
    command.args(args).args(["-o", "json"]).current_dir(repository()).env_clear();
    let output = command.env("NATS_URL", nats.url()).output().unwrap();
    if !output.status.success() {
        return Err(format!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

fn is_parked(trace: &Trace) -> bool {
    let status = trace.root().map(|root| &root.status);
    matches!(status, Some(Status::InputRequired { .. } | Status::Paused { .. }))
}

/// The parts of the deployment that every copy must contain: agents, kept graphs, schedules, and
/// all queries about ended runs.
fn kept(nats: &NatsServer, ended: &[TraceId]) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for args in
        [&["agents", "show", "greeter"][..], &["graphs", "show", "facts"], &["schedules", "show", "nightly"]]
    {
        all.push(says(nats, args)?);
    }
    for run in ended.iter().map(TraceId::to_string) {
        for args in [&["receipt", &run][..], &["result", &run], &["budgets", "tree", &run]] {
            all.push(says(nats, args)?);
        }
    }
    // The second run is of a built-in agent, which has no journal.
    all.push(says(nats, &["history", &ended[0].to_string()])?);
    // A rebuilt run has one more event, which is left out here.
    for receipt in all.iter_mut().filter_map(|said| said.get_mut("receipt")) {
        receipt["version"].take();
        let lines = receipt["lines"].as_array_mut().unwrap();
        lines.retain(|line| line["what"] != "rebuilt");
    }
    Ok(all)
}

/// proves: the streams are the truth. NATS is stopped in the middle of everything, its directory is
/// copied, and all processes, Redis and the first NATS are gone. On the copy, with an empty Redis,
/// ended runs have their receipts, waiting runs wait, running ones are run to their end, and the
/// books are right: a call under way is not booked twice.
#[tokio::test(flavor = "multi_thread")]
async fn n8_a_cluster_goes_on_from_a_copy_of_its_streams_with_an_empty_redis() {
    let mut cluster = Processes::start(2, 2).await;
    cluster
        .apply(
            json!([{"agent_id": "greeter", "kind": "llm", "model": "scripted", "script": [{"say": "hi"}]}]),
        )
        .await;
    says(&cluster.nats, &["agents", "apply", "examples/agents.yaml"]).unwrap();
    says(&cluster.nats, &["graphs", "apply", "examples/facts.yaml"]).unwrap();
    says(&cluster.nats, &["schedules", "apply", "examples/nightly.yaml"]).unwrap();
    let pay = |calls: u32, more: Value| {
        let mut run =
            json!({"goal": "p", "agent_id": "spend", "inputs": {"usd": 0.01, "calls": calls, "ms": 200}});
        run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        run
    };
    let ended = [
        cluster.begin(json!({"goal": "hello", "agent_id": "greeter"})).await,
        cluster.begin(pay(3, json!({}))).await,
    ];
    for run in ended {
        assert_eq!(cluster.outcome(run).await.context.status, EndStatus::Completed);
    }
    let asking = cluster.begin(json!({"goal": "which?", "agent_id": "ask"})).await;
    let paused = cluster.begin(pay(5, json!({"max_cost_usd": 0.02, "on_exhausted": "pause"}))).await;
    cluster.until(asking, "parked", is_parked).await;
    cluster.until(paused, "parked", is_parked).await;
    cluster.check(&ended).await;
    let before = kept(&cluster.nats, &ended).unwrap();
    let mut busy = Vec::new();
    for _ in 0..6 {
        busy.push(cluster.begin(pay(20, json!({}))).await);
    }
    for run in &busy {
        let has_paid =
            |trace: &Trace| trace.root().is_some_and(|root| root.budget.spent.cost_usd > Usd::ZERO);
        cluster.until(*run, "paying", has_paid).await;
    }

    cluster.nats.stop();
    let backup = Backup(std::env::temp_dir().join(format!("trellis-backup-{}", fresh_trace())));
    cluster.nats.back_up(&backup.0);
    drop(cluster);

    let cluster = Processes::start_as(|| {
        let mut shape = Shape::new(2, 2);
        shape.nats.restore(&backup.0);
        shape
    })
    .await;
    let all = [&ended[..], &[asking, paused], &busy].concat();
    eventually("every run is listed again", async || {
        let listed = says(&cluster.nats, &["runs", "list", "--limit", "100"]).unwrap_or_default().to_string();
        all.iter().all(|run| listed.contains(&run.to_string()))
    })
    .await;
    assert_eq!(kept(&cluster.nats, &ended).unwrap(), before);
    let pending = says(&cluster.nats, &["runs", "pending"]).unwrap().to_string();
    assert!(pending.contains(&asking.to_string()), "{pending}");
    let answered = json!({"child_id": "root", "question": 1, "answer": "that"});
    cluster.tell(Subject::Input, &json!({"trace_id": asking, "answered": answered})).await;
    let raise = json!({"child_id": "root", "max_cost_usd": 0.05});
    cluster.tell(Subject::Admin(Action::Raise), &json!({"trace_id": paused, "raise": raise})).await;
    for run in &all {
        let outcome = cluster.outcome(*run).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    }
    cluster.check(&all).await;
    let spent = async |run| cluster.client.trace(run).await.root().unwrap().budget.spent.cost_usd;
    assert_eq!(spent(paused).await, Usd::from_cents(5));
    for run in busy {
        // Each run may have had one call under way: it is booked at its hold, and made again.
        let spent = spent(run).await;
        assert!((Usd::from_cents(20)..=Usd::from_cents(21)).contains(&spent), "{run}: {spent}");
    }
}
