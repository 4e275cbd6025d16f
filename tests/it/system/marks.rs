//! A sweep reads only the part of the event log after the mark of a partition, and finds everything
//! that the store has lost.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bus::{Bus, From};
use coordinator::store::{self, Replaces, Store, Write};
use domain::{
    TraceId,
    subject::{Filter, Partition, Subject},
    wire::Acceptance,
};
use host::simulated_network::{Arrive, Crossing, Link};
use serde_json::json;
use trellis_tests::{
    checker,
    cluster::{Client, Cluster, eventually, lenient_keys, name, signed},
};

/// Counts the requests to the bus and to the store.
#[derive(Debug, Default)]
struct Counting(Mutex<BTreeMap<String, usize>>);

impl Link for Counting {
    fn carry(&self, what: Crossing<'_>, arrive: Arrive) {
        if let Crossing::ToBus(what) | Crossing::ToStore(what) = what {
            *self.0.lock().unwrap().entry(what.to_owned()).or_default() += 1;
        }
        arrive();
    }
}

/// A bus and a store that outlive the coordinators on them.
struct Ground {
    bus: bus::Memory,
    store: store::Memory,
    config: coordinator::Config,
}

impl Ground {
    fn new() -> Self {
        let mut config = coordinator::Config::new(name("coordinator"));
        config.topology.partitions = 4;
        // These traces were put into the store without a code.
        config.keys = lenient_keys();
        (config.mark_every, config.mark_lag) = (Duration::from_millis(50), Duration::ZERO);
        let store = store::Memory::new(config.topology.partitions);
        Ground { bus: bus::Memory::new(Default::default()), store, config }
    }

    fn bus(&self) -> Bus {
        Bus::Memory(self.bus.clone())
    }

    fn store(&self) -> Store {
        Store::Memory(self.store.clone())
    }

    fn start(&self) -> Cluster {
        let worker = worker::Config::new(name("worker"));
        Cluster::start(self.bus(), self.store(), vec![self.config.clone()], vec![worker])
    }

    /// Starts a cluster whose requests are counted.
    fn start_counted(&self) -> (Cluster, Arc<Counting>) {
        let counting = Arc::new(Counting::default());
        let bus = Bus::Memory(self.bus.behind(counting.clone()));
        let store = Store::Memory(self.store.behind(counting.clone()));
        let worker = worker::Config::new(name("worker"));
        (Cluster::start(bus, store, vec![self.config.clone()], vec![worker]), counting)
    }

    /// Waits until every mark is at the end of the log.
    async fn marked(&self) {
        let all: Vec<Partition> = Partition::all(self.config.topology.partitions).collect();
        let at_the_end = async || {
            let end = self.bus().end(&Filter::Events).await.unwrap();
            let marks = self.store().log_marks(&all).await.unwrap();
            marks.iter().all(|mark| mark.position == Some(end))
        };
        eventually("the marks are at the end of the log", at_the_end).await;
    }

    /// Traces with a version in the log and in the store.
    async fn old_traces(&self, count: u128) {
        for number in 1..=count {
            let trace_id = TraceId::from_u128(number << 64 | number).unwrap();
            let event = Subject::Event(trace_id, "root".parse().unwrap());
            self.store().commit(&[write(trace_id)]).await.unwrap();
            Client { bus: signed(&self.bus()) }.publish(event, &json!({})).await;
        }
    }

    async fn versions(&self, traces: &[TraceId]) -> Vec<u64> {
        self.store().versions(traces).await.unwrap()
    }
}

fn write(trace_id: TraceId) -> Write {
    Write {
        trace_id,
        expected: 0,
        stamp: None,
        version: 1,
        replaces: Replaces::Nothing,
        fields: Vec::new(),
        values: Vec::new(),
        outbox: None,
        cleared: Vec::new(),
        timer: None,
        keeps_earlier_timer: false,
        ended_at: None,
        opened_at: None,
        profiles: None,
        index: None,
    }
}

/// A run that waits for a human, with no unsent messages.
async fn waiting(ground: &Ground, cluster: &Cluster) -> Acceptance {
    let run = cluster.client.accepted(json!({"goal": "which way?", "agent_id": "ask"})).await;
    let asked = Filter::QuestionsOf(run.trace_id);
    ground.bus().follow(&[asked], From::Start).await.unwrap().next().await.unwrap();
    let sent = async || {
        let loaded = ground.store().load(&[run.trace_id]).await.unwrap();
        loaded[0].record.as_ref().is_some_and(|record| record.outbox.is_empty())
    };
    eventually("the question is marked as sent", sent).await;
    run
}

async fn answered(cluster: &Cluster, run: &Acceptance) {
    let answered = json!({"child_id": run.child_id, "question": 1, "answer": "left"});
    let input = json!({"trace_id": run.trace_id, "answered": answered});
    cluster.client.publish(Subject::Input, &input).await;
    cluster.client.outcome(run.trace_id, &run.child_id).await;
}

/// proves: a sweep costs as much as happened after the marks (f19). Earlier, it listed all subjects
/// of the log, and read the version of each trace and the last message of each log: thousands of
/// requests at each start.
#[tokio::test(flavor = "multi_thread")]
async fn f19_a_sweep_asks_only_for_what_is_behind_the_marks() {
    let ground = Ground::new();
    let cluster = ground.start();
    ground.old_traces(3_000).await;
    let run = waiting(&ground, &cluster).await;
    ground.marked().await;
    let before = ground.store.snapshot();
    answered(&cluster, &run).await;
    cluster.stop().await;

    // The marks are lost together with the answer; the remaining marks are older.
    ground.store.restore(before);
    let (cluster, counting) = ground.start_counted();
    let ended = async || checker::look(&ground.store(), &[run.trace_id]).await.1.is_empty();
    eventually("the run has ended again", ended).await;
    let counts = counting.0.lock().unwrap().clone();
    let of = |what: &str| counts.get(what).copied().unwrap_or_default();
    assert!(of("list new messages") > 0, "{counts:?}");
    for what in ["list subjects", "read a log's end", "read a log", "read versions", "load traces"] {
        assert!(of(what) < 20, "{what}: {} times", of(what));
    }
    checker::check(&cluster.client, &ground.store(), &[run.trace_id]).await;
    cluster.stop().await;
}

/// proves: an empty store has no marks, and everything is found (n1).
#[tokio::test(flavor = "multi_thread")]
async fn n1_messages_before_the_marks_of_a_wiped_store_are_found() {
    let ground = Ground::new();
    let as_new = ground.store.snapshot();
    let cluster = ground.start();
    let mut runs = Vec::new();
    for _ in 0..3 {
        let run = cluster.client.accepted(json!({"goal": "hello", "agent_id": "echo"})).await;
        cluster.client.outcome(run.trace_id, &run.child_id).await;
        runs.push(run.trace_id);
    }
    runs.push(waiting(&ground, &cluster).await.trace_id);
    ground.marked().await;
    cluster.stop().await;

    ground.store.restore(as_new);
    let cluster = ground.start();
    eventually("all coordinators run again", async || !ground.versions(&runs).await.contains(&0)).await;
    ground.marked().await;
    cluster.stop().await;
}

/// proves: if later writes made up in the counter for lost ones, the mark shows the loss (n1). When
/// the counter is read, it is as high as before, so the loss is invisible until a coordinator
/// starts.
#[tokio::test(flavor = "multi_thread")]
async fn n1_a_loss_that_the_counter_hides_is_found_by_the_mark() {
    let ground = Ground::new();
    let cluster = ground.start();
    let run = waiting(&ground, &cluster).await;
    ground.marked().await;
    let before = ground.store.snapshot();
    answered(&cluster, &run).await;
    ground.marked().await;
    // No heartbeat sees it in between: they are a second apart.
    ground.store.restore(before);
    ground.old_traces(200).await;
    let ended = async || checker::look(&ground.store(), &[run.trace_id]).await.1.is_empty();
    eventually("the run has ended again", ended).await;
    cluster.stop().await;
}
