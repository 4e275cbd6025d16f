//! Committed messages are sent, even if the bus or the store is unavailable for long in between.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bus::{Bus, From, Memory, Outgoing};
use coordinator::store::{self, Store};
use domain::{
    TraceId,
    span::Headers,
    subject::{Filter, Subject},
    wire::{EndStatus, Question},
};
use host::simulated_network::{Arrive, Crossing, Link};
use serde_json::json;
use trellis_tests::{
    checker,
    cluster::{Cluster, eventually, name},
    processes::fresh_trace,
};

/// Room for a few deliveries, and none for the large message that fills the queue.
const QUEUE_BYTES: i64 = 64 << 10;

/// Begins a run under an id that the test chooses.
async fn begin(cluster: &Cluster) -> TraceId {
    let trace_id = fresh_trace();
    let spawn = json!({"goal": "hello", "trace_id": trace_id, "child_id": "root"});
    cluster.client.publish(Subject::Spawn, &spawn).await;
    trace_id
}

async fn unsent(store: &Store, run: TraceId) -> usize {
    let loaded = store.load(&[run]).await.unwrap();
    loaded[0].record.as_ref().map_or(0, |record| record.outbox.len())
}

/// Fills the queue of deliveries with messages for a pool without workers.
async fn fill(bus: &Bus, pool: &Subject) {
    let mut size = 32 << 10;
    while size > 0 {
        let (id, headers, payload) = (None, Headers::new(), vec![b' '; size].into());
        let message = Outgoing { subject: pool.clone(), id, headers, payload, expect_last: None };
        if bus.publish(message).await.is_err() {
            size /= 2;
        }
    }
}

/// proves: a message that the bus refuses stays in its outbox, and the timer sends the outbox again
/// (f11). If the refusal were ignored, or nothing sent again, no worker would learn that the agent
/// can continue.
#[tokio::test(flavor = "multi_thread")]
async fn f11_messages_refused_by_a_full_queue_are_sent_when_it_has_room() {
    let mut config = coordinator::Config::new(name("coordinator"));
    config.topology.max_queue_bytes = QUEUE_BYTES;
    let bus = Bus::Memory(Memory::new(Default::default()));
    let store = Store::Memory(store::Memory::new(config.topology.partitions));
    let worker = worker::Config::new(name("worker"));
    let cluster = Cluster::start(bus.clone(), store.clone(), vec![config], vec![worker]);
    cluster.client.run(json!({"goal": "is anybody there?"})).await;
    let steps = json!([
        {"id": "a", "agent_id": "ask", "task_description": "go on?"},
        {"id": "b", "agent_id": "echo", "task_description": "b"},
    ]);
    let run = cluster.client.accepted(json!({"steps": steps, "child_id": "root"})).await.trace_id;
    let questions = Filter::QuestionsOf(run);
    let asked = bus.follow(&[questions], From::Start).await.unwrap().next().await.unwrap();
    let question: Question = serde_json::from_slice(&asked.payload).unwrap();
    let pool = Subject::Execute("nobody".parse().unwrap());
    fill(&bus, &pool).await;
    let answered = json!({"child_id": question.child_id, "question": question.number, "answer": "yes"});
    cluster.client.publish(Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
    // The answer is redelivered, as it was not acknowledged: then the coordinator knows of the
    // refusal.
    let taken = async || bus.read(&Filter::One(Subject::Input)).await.unwrap().is_empty();
    eventually("the answer is acknowledged", taken).await;
    assert!(unsent(&store, run).await > 0, "the outbox has unsent messages");
    bus.purge(&Filter::One(pool)).await.unwrap();
    let outcome = cluster.client.outcome(run, &"root".parse().unwrap()).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    checker::check(&cluster.client, &store, &[run]).await;
    cluster.stop().await;
}

/// A link between a coordinator and its store that drops the clearing of outboxes while it leaks.
#[derive(Debug, Default)]
struct Leaky {
    leaks: AtomicBool,
    lost: AtomicUsize,
}

impl Link for Leaky {
    fn carry(&self, what: Crossing<'_>, arrive: Arrive) {
        if what == Crossing::ToStore("clear outboxes") && self.leaks.load(Ordering::SeqCst) {
            self.lost.fetch_add(1, Ordering::SeqCst);
        } else {
            arrive();
        }
    }
}

/// proves: outboxes that were sent and could not be cleared, because the store was unavailable, are
/// cleared later (f16). If they were forgotten, the store would keep them for ever, and every
/// coordinator that loads the trace would send them again. Meanwhile the shard continues: slow
/// clearing does not use up all its time.
#[tokio::test(flavor = "multi_thread")]
async fn f16_outboxes_that_could_not_be_cleared_are_cleared_when_the_store_is_back() {
    let config = coordinator::Config { shards: 1, ..coordinator::Config::new(name("coordinator")) };
    let bus = Bus::Memory(Memory::new(Default::default()));
    let memory = store::Memory::new(config.topology.partitions);
    let (leaky, store) = (Arc::new(Leaky::default()), Store::Memory(memory.clone()));
    let behind = Store::Memory(memory.behind(leaky.clone()));
    let worker = worker::Config::new(name("worker"));
    let cluster = Cluster::start(bus, behind, vec![config], vec![worker]);
    leaky.leaks.store(true, Ordering::SeqCst);
    let mut runs = Vec::new();
    for lost in [1, 3] {
        let run = begin(&cluster).await;
        cluster.client.outcome(run, &"root".parse().unwrap()).await;
        runs.push(run);
        eventually("the coordinator could not clear the outbox", async || {
            leaky.lost.load(Ordering::SeqCst) >= lost
        })
        .await;
        assert!(unsent(&store, run).await > 0);
    }
    leaky.leaks.store(false, Ordering::SeqCst);
    for run in &runs {
        eventually("the outboxes are cleared", async || unsent(&store, *run).await == 0).await;
    }
    checker::check(&cluster.client, &store, &runs).await;
    cluster.stop().await;
}
