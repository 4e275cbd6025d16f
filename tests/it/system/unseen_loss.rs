//! The store loses acknowledged writes that no owner of a partition has seen.

use bus::{Bus, From};
use coordinator::store::{self, Store};
use domain::{
    span::Headers,
    subject::{Filter, Subject},
    wire::Query,
};
use serde_json::json;
use trellis_tests::{
    checker,
    cluster::{Cluster, SOON, eventually, name},
    processes::fresh_trace,
    subjects::query_of,
};

/// A run waits for a human, is answered and ends; then the store is reset to before the answer.
/// Nothing in the store shows that the run has continued: no timer is set, and no request refers to
/// it. The sweep of a starting coordinator compares the run with its log. Found by the simulation,
/// whose store loses writes.
#[tokio::test]
async fn n1_an_unnoticed_loss_is_found_when_a_coordinator_starts() {
    let config = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let memory = store::Memory::new(config.topology.partitions);
    let store = Store::Memory(memory.clone());
    let start = || {
        let worker = worker::Config::new(name("worker"));
        Cluster::start(bus.clone(), store.clone(), vec![config.clone()], vec![worker])
    };
    let cluster = start();
    let run = cluster.client.accepted(json!({"goal": "which way?", "agent_id": "ask"})).await;
    let asked = Filter::QuestionsOf(run.trace_id);
    bus.follow(&[asked], From::Start).await.unwrap().next().await.unwrap();
    // An unsent message has a timer, and the wake would read the log.
    let sent = async || {
        let loaded = store.load(&[run.trace_id]).await.unwrap();
        loaded[0].record.as_ref().is_some_and(|record| record.outbox.is_empty())
    };
    eventually("the question is marked as sent", sent).await;
    let before = memory.snapshot();
    let answered = json!({"child_id": run.child_id, "question": 1, "answer": "left"});
    let input = json!({"trace_id": run.trace_id, "answered": answered});
    cluster.client.publish(Subject::Input, &input).await;
    cluster.client.outcome(run.trace_id, &run.child_id).await;
    cluster.stop().await;

    memory.restore(before);
    let cluster = start();
    eventually("the run has ended again", async || checker::look(&store, &[run.trace_id]).await.1.is_empty())
        .await;
    checker::check(&cluster.client, &store, &[run.trace_id]).await;
    cluster.stop().await;
}

/// Any coordinator takes a submission; in half of the cases it does not own the run's partition,
/// and the owner has never seen the counter that the store loses. No request refers to these runs
/// until their pool has a worker.
#[tokio::test(flavor = "multi_thread")]
async fn n1_lost_writes_of_coordinators_that_do_not_own_the_partition_are_found() {
    futures_util::future::join_all((0..8).map(|_| a_lost_write_is_found())).await;
}

async fn a_lost_write_is_found() {
    let config = |text| coordinator::Config::new(name(text));
    let (one, other) = (config("one"), config("other"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let memory = store::Memory::new(one.topology.partitions);
    let store = Store::Memory(memory.clone());
    let cluster = Cluster::start(bus.clone(), store.clone(), vec![one, other], Vec::new());
    let agent = json!({"agent_id": "patient", "kind": "builtin", "builtin": "echo", "pool": "later"});
    let apply = Query::ApplyAgents { agents: serde_json::from_value(json!([agent])).unwrap() };
    let apply: bytes::Bytes = serde_json::to_vec(&apply).unwrap().into();
    eventually("the profile is applied", async || {
        bus.request(&query_of(&apply), &Headers::new(), apply.clone(), SOON).await.is_ok()
    })
    .await;
    // Both have read the log once.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let run = fresh_trace();
    let before = memory.snapshot();
    let spawn = json!({"goal": "hello", "agent_id": "patient", "trace_id": run, "child_id": "root"});
    cluster.client.publish(Subject::Spawn, &spawn).await;
    let sent = async || !bus.read(&Filter::EventsOf(run)).await.unwrap().is_empty();
    eventually("the run is committed and sent", sent).await;
    memory.restore(before);
    let worker = worker::Config { pool: "later".parse().unwrap(), ..worker::Config::new(name("worker")) };
    let late = Cluster::start(bus, store.clone(), Vec::new(), vec![worker]);
    checker::check(&cluster.client, &store, &[run]).await;
    late.stop().await;
    cluster.stop().await;
}
