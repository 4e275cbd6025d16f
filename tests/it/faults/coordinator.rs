//! Coordinators that are killed between any two of their steps, or stopped and resumed.

use std::time::Duration;

use coordinator::store::Find;
use domain::{
    ChildId, PoolName, TraceId,
    span::Headers,
    subject::{Filter, Partition, Subject},
    wire::EndStatus,
};
use serde_json::{Value, json};
use tokio::{process::Command, time::Instant};
use trellis_tests::{
    cluster::SOON,
    processes::{LEASE, Processes, Shape, binary},
    servers::{Gate, ModelServer, Reply},
    subjects::{pool, query_of},
};

use super::{calling, drive, home, repeats, root, running, sleep};
use crate::agents;

/// Longer than the time after which others consider a coordinator dead.
const FORGOTTEN: Duration = Duration::from_millis(5_000);

/// A coordinator aborts at `point` while it handles a submission, a result, a cost and a timer,
/// each as the first thing after its start.
async fn crash_at(point: &str) {
    // A lease and an open hold outlast the redelivery of a result or a cost (5 s), even on a busy
    // machine: no second attempt, and no estimate.
    let settings = json!({"lease_ms": 30_000, "hold_grace_ms": 120_000});
    let mut cluster = Processes::start_as(|| Shape { settings: settings.clone(), ..Shape::new(1, 1) }).await;
    let flags = ["--crash-at", point];
    for _ in 0..repeats(1) {
        cluster.stop("c1").await;
        cluster.run_with("c1", &flags);
        let submitted = cluster.begin(json!({"goal": "hello"})).await;
        cluster.gone("c1").await;
        cluster.run("c1");
        assert_eq!(cluster.outcome(submitted).await.context.status, EndStatus::Completed);

        // The agent ends before its first tick is due (3 s), because a tick would get no answer.
        // The result waits for the coordinator.
        let reported = left_behind(&mut cluster, sleep(2000), Subject::Result).await;
        cluster.run_with("c1", &flags);
        cluster.gone("c1").await;
        cluster.run("c1");
        let outcome = cluster.outcome(reported).await;
        assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 1));

        let inputs = json!({"usd": 0.02, "hold_usd": 0.05, "ms": 1500});
        let pays = json!({"goal": "pay", "agent_id": "spend", "inputs": inputs});
        let paid = left_behind(&mut cluster, pays, Subject::Cost).await;
        cluster.run_with("c1", &flags);
        cluster.gone("c1").await;
        // Runs that begin from now on have a lease short enough to wait for.
        cluster.configure(json!({"lease_ms": 10_000, "hold_grace_ms": 120_000}));
        cluster.run("c1");
        let outcome = cluster.outcome(paid).await;
        assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 1));
        // The result may be handled before the redelivered cost; the outcome waits for both (B20).
        assert_eq!(outcome.context.budget.own.cost_usd, domain::Usd::from_cents(2), "{outcome:#?}");

        // The worker of this run is gone, so the coordinator's first task is to see the lease
        // expire.
        let lost = json!({"goal": "boom", "agent_id": "crash", "inputs": {"times": 1}});
        let lost = cluster.begin(lost).await;
        running(&cluster, lost, 1).await;
        cluster.gone("w1").await;
        cluster.kill("c1");
        cluster.run_with("c1", &flags);
        cluster.gone("c1").await;
        cluster.run("c1");
        cluster.run("w1");
        let outcome = cluster.outcome(lost).await;
        assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 2));

        cluster.check(&[submitted, reported, paid, lost]).await;
        cluster.configure(settings.clone());
    }
}

/// Begins a run and kills the coordinator while its agent works, so that one of its reports stays
/// in the queue. The moment can be missed: the worker may not run or call yet, or the report is
/// already handled. Then another run is tried.
async fn left_behind(
    cluster: &mut Processes,
    message: Value,
    report: fn(PoolName, Partition, TraceId, ChildId) -> Subject,
) -> TraceId {
    for _ in 0..10 {
        let run = cluster.begin(message.clone()).await;
        if message["agent_id"] == "spend" {
            calling(cluster, run, 1).await;
        } else {
            running(cluster, run, 1).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.kill("c1");
        let queue = Filter::One(report(pool(), home(run), run, root()));
        let deadline = Instant::now() + Duration::from_secs(8);
        while Instant::now() < deadline {
            if !cluster.client.bus.read(&queue).await.unwrap().is_empty() {
                return run;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cluster.run("c1");
        cluster.outcome(run).await;
    }
    panic!("the coordinator was never killed at the right moment");
}

/// proves: nothing is acknowledged before it is decided and committed.
#[tokio::test(flavor = "multi_thread")]
async fn f06_a_coordinator_that_dies_with_messages_received() {
    crash_at("received").await;
}

/// proves: nothing is acknowledged before it is committed; a decision alone changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f06_a_coordinator_that_dies_before_the_commit() {
    crash_at("decided").await;
}

/// proves: the outbox and its timer send messages that were committed and not sent.
#[tokio::test(flavor = "multi_thread")]
async fn f06_a_coordinator_that_dies_after_the_commit() {
    crash_at("committed").await;
}

/// proves: a redelivered message finds its effect in the trace, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f06_a_coordinator_that_dies_before_the_ack() {
    crash_at("sent").await;
}

/// proves: an outbox that was sent and not cleared is sent again with the same message ids.
#[tokio::test(flavor = "multi_thread")]
async fn f06_a_coordinator_that_dies_after_the_ack() {
    crash_at("acknowledged").await;
}

/// proves: a submission without a trace id gets one that is derived from the message. One
/// coordinator is stopped; its messages are redelivered to the other. Then the first is resumed and
/// handles them too.
#[tokio::test(flavor = "multi_thread")]
async fn f08_two_coordinators_handle_one_message() {
    let mut cluster = Processes::start(2, 2).await;
    let count = 60 * repeats(1);
    for number in 0..count {
        if number == 20 {
            cluster.pause("c1");
        }
        cluster.tell(Subject::Spawn, &json!({"goal": format!("goal {number}")})).await;
    }
    // Longer than the ack wait of the intake stream.
    tokio::time::sleep(Duration::from_secs(6)).await;
    cluster.resume("c1");
    let deadline = Instant::now() + SOON;
    let runs = loop {
        let runs = cluster.store.find(&Find::newest(10 * count)).await.unwrap();
        let runs: Vec<TraceId> = runs.into_iter().map(|(run, _)| run).collect();
        if runs.len() >= count {
            break runs;
        }
        assert!(Instant::now() < deadline, "{} of {count} runs", runs.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    cluster.check(&runs).await;
    // Wait until the coordinator has handled all messages it had.
    cluster.stop("c1").await;
    assert_eq!(
        cluster.store.find(&Find::newest(10 * count)).await.unwrap().len(),
        count,
        "each message became one run"
    );
}

/// proves: the compare-and-set. A resumed coordinator that the others considered dead overwrites
/// none of their commits.
#[tokio::test(flavor = "multi_thread")]
async fn f09_a_coordinator_stopped_mid_transition() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for round in 0..repeats(2) {
        let stopped = ["c1", "c2"][round % 2];
        let driven = drive(&cluster, 20).await;
        cluster.pause(stopped);
        runs.extend(driven);
        runs.extend(drive(&cluster, 20).await);
        tokio::time::sleep(FORGOTTEN.max(LEASE)).await;
        cluster.resume(stopped);
    }
    cluster.check(&runs).await;
}

/// proves: a coordinator's state is expendable (N1): all are dead for longer than a lease, then new
/// ones bring everything to its end in bounded time (t8).
#[tokio::test(flavor = "multi_thread")]
async fn f07_all_coordinators_dead_for_a_while() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = drive(&cluster, 30).await;
    cluster.kill("c1");
    cluster.kill("c2");
    runs.extend(drive(&cluster, 30).await);
    tokio::time::sleep(LEASE * 2).await;
    cluster.run("c1");
    cluster.run("c2");
    cluster.check(&runs).await;
}

/// How the only coordinator becomes unavailable.
#[derive(Debug, Clone, Copy)]
enum Away {
    Killed,
    Stopped,
    WithoutStore,
}

/// proves: a call in flight outlives its lease and is finished (B13), and an expired lease can be
/// renewed if no other attempt has begun: the call is made and paid once, by one attempt.
async fn away_during_a_call(how: Away) {
    let gate = Gate::default();
    let held = gate.clone();
    let model = ModelServer::start(move |prompt| Reply {
        gate: (prompt.turn() == 0).then(|| held.clone()),
        calls: if prompt.turn() == 0 { vec![("fs_list".into(), json!({}))] } else { Vec::new() },
        ..agents::say("done")
    })
    .await;
    let profile = json!({"agent_id": "author", "kind": "llm", "model": "test/model", "tools": ["fs.list"]});
    let mut cluster = agents::cluster(2, &model, json!([profile])).await;
    let run = cluster.begin(json!({"goal": "write", "agent_id": "author"})).await;
    gate.reached().await;
    match how {
        Away::Killed => cluster.kill("c1"),
        Away::Stopped => cluster.pause("c1"),
        Away::WithoutStore => cluster.redis.kill(),
    }
    tokio::time::sleep(LEASE * 3).await;
    match how {
        Away::Killed => cluster.run("c1"),
        Away::Stopped => cluster.resume("c1"),
        Away::WithoutStore => cluster.redis.restart(),
    }
    // Longer than the spared time: the lease is renewed.
    tokio::time::sleep(LEASE * 2).await;
    gate.open();
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(
        (&outcome["status"], &outcome["attempts"]),
        (&json!("completed"), &json!(1)),
        "{how:?}: {outcome:#}"
    );
    assert_eq!(model.bill().len(), 2, "{how:?}: each call is made once: {:#?}", model.bill());
    assert_eq!(trace.root().unwrap().budget.estimated, domain::Amount::ZERO);
    agents::check_bill(&model, &[&trace], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_f07_no_coordinator_for_longer_than_a_lease_during_a_call() {
    away_during_a_call(Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_f09_a_coordinator_stopped_for_longer_than_a_lease_during_a_call() {
    away_during_a_call(Away::Stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_f16_no_store_for_longer_than_a_lease_during_a_call() {
    away_during_a_call(Away::WithoutStore).await;
}

/// proves: a stopping process finishes or hands back its work, and the others continue: a rolling
/// restart uses up no retries (B15).
#[tokio::test(flavor = "multi_thread")]
async fn f10_a_rolling_restart_under_load() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for name in cluster.names("") {
        runs.extend(drive(&cluster, 10).await);
        runs.push(cluster.begin(sleep(5_000)).await);
        cluster.stop(&name).await;
        runs.extend(drive(&cluster, 10).await);
        cluster.run(&name);
    }
    cluster.check(&runs).await;
    for run in runs {
        let trace = cluster.client.trace(run).await;
        let end = trace.root().and_then(|root| root.end()).map(|end| end.status);
        assert_eq!(end, Some(EndStatus::Completed), "{trace:#?}");
    }
}

/// proves: if a coordinator dies between the commit of a submission and its answer, the command
/// waits longer, and no second run begins.
#[tokio::test(flavor = "multi_thread")]
async fn f06_a_command_submits_again_if_its_coordinator_died_after_the_commit() {
    let mut cluster = Processes::start(1, 1).await;
    cluster.stop("c1").await;
    cluster.run_with("c1", &["--crash-at", "committed"]);
    let mut command = Command::new(binary());
    command.args(["run", "--goal", "hello", "-o", "json"]).env_clear().env("NATS_URL", cluster.nats.url());
    let submitted = tokio::spawn(command.kill_on_drop(true).output());
    cluster.gone("c1").await;
    cluster.run("c1");
    let output = submitted.await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = cluster.store.find(&Find::newest(10)).await.unwrap();
    let found: Vec<String> = runs.iter().map(|(trace_id, _)| trace_id.to_string()).collect();
    assert_eq!(found, [outcome["trace_id"].as_str().unwrap()]);
}

/// proves: the log is written first, and the next coordinator to start writes the store: the change
/// is neither lost nor made twice.
#[tokio::test(flavor = "multi_thread")]
async fn f06_killed_between_the_log_and_the_store_of_a_profile() {
    let mut cluster = Processes::start(1, 0).await;
    cluster.apply(json!([{"agent_id": "a", "kind": "builtin", "builtin": "echo"}])).await;
    cluster.stop("c1").await;
    cluster.run_with("c1", &["--crash-at", "profiles-logged"]);
    cluster.all_there().await;
    let changed = json!([{"agent_id": "a", "kind": "builtin", "builtin": "echo", "description": "2"}]);
    let payload = serde_json::to_vec(&json!({"apply_agents": {"agents": changed}})).unwrap();
    let (bus, wait) = (&cluster.client.bus, Duration::from_secs(5));
    let unanswered = bus.request(&query_of(&payload), &Headers::new(), payload.into(), wait).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    cluster.gone("c1").await;
    assert_eq!(
        cluster.store.agents().await.unwrap().versions["a"],
        1,
        "the coordinator died between the two writes"
    );
    cluster.run("c1");
    cluster.all_there().await;
    let agents = cluster.store.agents().await.unwrap();
    assert!(agents.versions["a"] == 2 && agents.profiles["a"].contains("\"2\""), "{agents:?}");
    cluster.apply(changed).await;
    assert_eq!(cluster.store.agents().await.unwrap(), agents, "the repeated request changes nothing");
}
