//! A NATS server that is stopped, killed or wiped, and started again.

use std::time::Duration;

use domain::{
    Usd,
    subject::{Action, Filter, Subject},
    wire::EndStatus,
};
use serde_json::json;
use trace::{Status, Trace};
use trellis_tests::{
    checker,
    cluster::eventually,
    processes::{Processes, Shape},
    servers::{Gate, ModelServer, Prompt, Reply},
};
use world::invariants;

use super::{drive, repeats, running, size, sleep};

/// proves: clients reconnect; the outbox sends messages that were committed and could not be sent.
#[tokio::test(flavor = "multi_thread")]
async fn f11_nats_restarted_under_load() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for _ in 0..repeats(1) {
        runs.extend(drive(&cluster, 30).await);
        cluster.nats.stop();
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.nats.restart();
        runs.extend(drive(&cluster, 30).await);
    }
    cluster.check(&runs).await;
}

/// proves: a redelivery of finished work is answered from the trace's state (the server loses the
/// acks of the last 100 ms), and an outbox that could not be sent is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn f12_nats_killed_under_load() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for round in 0..size("TRELLIS_NATS_KILLS", 3) {
        let driven = drive(&cluster, 15 + round % 7).await;
        cluster.nats.kill();
        runs.extend(driven);
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.nats.restart();
        runs.extend(drive(&cluster, 10).await);
    }
    cluster.check(&runs).await;
}

/// proves: readers of a queue create its consumer again, and the coordinator counts the attempts:
/// the server's count of deliveries starts again.
#[tokio::test(flavor = "multi_thread")]
async fn f15_consumers_deleted_under_load() {
    let cluster = Processes::start_as(|| Shape { slots: 4, ..Shape::new(2, 2) }).await;
    let raw = async_nats::jetstream::new(async_nats::connect(cluster.nats.url()).await.unwrap());
    let mut runs = Vec::new();
    for _ in 0..repeats(2) {
        runs.extend(drive(&cluster, 20).await);
        let streams = ["AGENT_INTAKE", "AGENT_EXECUTE", "AGENT_REPORT"];
        for name in streams {
            let stream = raw.get_stream(name).await.unwrap();
            let consumers: Vec<String> = {
                use futures_util::TryStreamExt;
                stream.consumer_names().try_collect().await.unwrap()
            };
            for consumer in consumers {
                stream.delete_consumer(&consumer).await.unwrap();
            }
        }
        runs.extend(drive(&cluster, 20).await);
    }
    cluster.check(&runs).await;
}

/// proves: coordinators create lost streams and consumers again, and the runs in the store
/// continue: work is sent again, and human answers are handled. An agent whose journal is gone
/// fails with that reason and does not pay for everything again; its bill is in the books (b5). The
/// earlier event log is lost, so that only the store and the new outcomes can be checked.
#[tokio::test(flavor = "multi_thread")]
async fn f14_the_store_of_nats_wiped() {
    let gate = Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |prompt: &Prompt| {
        let reply = Reply { input_tokens: 100, output_tokens: 20, ..Reply::default() };
        let note = json!({"path": "outputs/note", "content": "noted"});
        match prompt.turn() {
            0 => Reply { calls: vec![("fs_write".into(), note)], ..reply },
            _ => Reply { text: "done".into(), gate: Some(at.clone()), ..reply },
        }
    })
    .await;
    let (worker, settings) = (model.settings(), json!({"redispatch_ms": 3_000}));
    let shape = || Shape { worker, settings, slots: 4, ..Shape::new(2, 1) };
    let mut cluster = Processes::start_as(shape).await;
    let thinker = json!({"agent_id": "thinker", "kind": "llm", "model": "test/model", "tools": ["fs.write"]});
    cluster.apply(json!([thinker])).await;

    let asking = cluster.begin(json!({"goal": "which?", "agent_id": "ask"})).await;
    let pays = json!({
        "goal": "p", "agent_id": "spend", "max_cost_usd": 0.02, "on_exhausted": "pause",
        "inputs": {"usd": 0.01, "calls": 3},
    });
    let paused = cluster.begin(pays).await;
    let parked = |trace: &Trace| {
        let status = trace.root().map(|root| root.status.clone());
        matches!(status, Some(Status::InputRequired { .. } | Status::Paused { .. }))
    };
    cluster.until(asking, "parked", parked).await;
    cluster.until(paused, "parked", parked).await;
    let cap = Usd::from_cents(50);
    let thinking = json!({"goal": "think", "agent_id": "thinker", "max_cost_usd": cap});
    let thinking = cluster.begin(thinking).await;
    gate.reached().await;
    let journaled = |trace: &Trace| trace.root().is_some_and(|root| root.lifecycle.progress.journaled > 0);
    cluster.until(thinking, "its journal is known", journaled).await;
    let mut runs = vec![asking, paused, thinking];
    for _ in 0..3 {
        runs.push(cluster.begin(sleep(5_000)).await);
        running(&cluster, runs[runs.len() - 1], 1).await;
    }
    let queued = cluster.begin(json!({"goal": "later"})).await;
    cluster.until(queued, "there", |trace| trace.root().is_some()).await;
    runs.push(queued);

    cluster.nats.wipe();
    gate.open();
    // Only the streams of the new server accept these.
    let answered = json!({"child_id": "root", "question": 1, "answer": "that"});
    cluster.tell(Subject::Input, &json!({"trace_id": asking, "answered": answered})).await;
    let raise = json!({"child_id": "root", "max_cost_usd": 0.03});
    cluster.tell(Subject::Admin(Action::Raise), &json!({"trace_id": paused, "raise": raise})).await;
    let later = drive(&cluster, 6).await;
    cluster.check(&later).await;
    eventually("the old runs have ended", async || checker::look(&cluster.store, &runs).await.1.is_empty())
        .await;
    for run in runs {
        let trace = cluster.stored(run).await.unwrap();
        invariants::check_at_rest(&trace).unwrap();
        let end = trace.root().unwrap().end().unwrap();
        let says = end.details.error.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
        match run == thinking {
            true => assert!(says.contains("the journal of `root` is incomplete"), "{end:#?}"),
            false => assert_eq!(end.status, EndStatus::Completed, "{end:#?}"),
        }
        let told = cluster.client.bus.read(&Filter::OutcomesOf(run)).await.unwrap();
        assert_eq!(told.len(), 1, "the outcome is published once");
    }
    let trace = cluster.stored(thinking).await.unwrap();
    let wrong = checker::against_bill(&trace, Usd::from_nanos(model.billed_nanos()), cap, Usd::ZERO);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
