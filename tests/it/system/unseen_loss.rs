//! The store loses acknowledged writes while no coordinator runs that could notice it.

use coordinator::store::{self, Store};
use serde_json::json;
use shared::{
    bus::{self, Bus, From},
    subject::{Filter, Subject},
};
use trellis_tests::{
    checker,
    cluster::{Cluster, eventually, name},
};

/// A run waits for a human, is answered and ends; then the store is as it was before the answer. Nothing in it says that the run
/// has gone on: no timer is set, and nobody asks about it. The sweep of a coordinator that starts compares it with its log.
/// Found by the simulation, whose store loses writes.
#[tokio::test]
async fn n1_a_loss_that_nobody_saw_is_found_when_a_coordinator_starts() {
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
    // What is unsent has a timer, and a wake would look into the log.
    let sent = async || {
        let loaded = store.load(&[run.trace_id]).await.unwrap();
        loaded[0].record.as_ref().is_some_and(|record| record.outbox.is_empty())
    };
    eventually("the question is known to be sent", sent).await;
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
