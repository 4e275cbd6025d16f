//! The whole system in one process: in memory, and with two coordinators and two workers on a disk
//! and on real servers.

use bus::{Bus, Connect, Nats};
use coordinator::store::Store;
use domain::{
    Usd,
    limits::MAX_MESSAGE_BYTES,
    wire::{EndStatus, Outcome},
};
use serde_json::{Map, Value, json};
use trellis_tests::{
    cluster::{Cluster, name},
    directory::Directory,
    servers::{NatsServer, RedisServer},
};
use world::invariants;

fn value(outcome: &Outcome) -> Value {
    match outcome.context.result.as_ref() {
        Some(value) => value.value().clone(),
        None => panic!("no result: {outcome:#?}"),
    }
}

async fn try_everything(cluster: &Cluster) {
    let client = &cluster.client;
    let outcome = client.run(json!({"goal": "hello"})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    assert_eq!(value(&outcome), "hello");
    let outcome =
        client.run(json!({"goal": "grow", "agent_id": "tree", "inputs": {"depth": 2, "width": 3}})).await;
    assert_eq!(value(&outcome)["leaves"], 9, "{outcome:#?}");
    let outcome =
        client.run(json!({"goal": "pay", "agent_id": "spend", "inputs": {"usd": 0.01, "calls": 3}})).await;
    assert_eq!(outcome.context.budget.spent.cost_usd, Usd::from_cents(3), "{outcome:#?}");
    let trace = client.trace(outcome.trace_id).await;
    invariants::check_at_rest(&trace).unwrap();
    payloads_larger_than_a_message(cluster).await;
    more_than_a_message(cluster).await;
}

/// A submission, its execute message, the answer to the claim and the outcome are each larger than
/// a NATS message may be. Their payloads are stored as objects, invisibly to clients.
async fn payloads_larger_than_a_message(cluster: &Cluster) {
    let (a, b) = ("a".repeat(600_000), "b".repeat(600_000));
    let step =
        json!({"id": "reads", "agent_id": "echo", "task_description": "read", "input_from": ["a", "b"]});
    let graph = json!({"inputs": {"a": a, "b": b}, "steps": [step]});
    let outcome = cluster.client.run(graph).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    assert_eq!(outcome.context.attempts, 0, "a graph runs no agent");
    assert_eq!(outcome.outputs.values().map(|value| value.size_bytes()).sum::<u64>(), 2 * 600_002);
    let trace = cluster.client.trace(outcome.trace_id).await;
    assert_eq!(trace.contexts()[1].attempt(), 1, "one attempt is enough");
}

/// L: a parent whose children together returned more than one message may carry, and a step with
/// inputs that large. Each gets everything. `tree` returns the results of its children, by
/// reference.
async fn more_than_a_message(cluster: &Cluster) {
    let client = &cluster.client;
    // As JSON each quote takes two bytes: 75 results of 120 KB.
    let tree = json!({"goal": "\"".repeat(60_000), "agent_id": "tree", "inputs": {"depth": 1, "width": 75}});
    let outcome = client.run(tree).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{:?}", outcome.context.error);
    let object = outcome.context.result_object.as_ref().unwrap_or_else(|| panic!("{:?}", outcome.context));
    let bytes = client.bus.get_object(&object.object).await.unwrap().unwrap();
    let result: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(result["leaves"], 75);
    let whole = |child: &Value| child["result"].as_str().is_some_and(|text| text.starts_with("\"\"\""));
    assert!(result["children"].as_array().unwrap().iter().all(whole));

    let given = (0..6).map(|n| (format!("k{n}"), Value::from("x".repeat(950_000))));
    let mut inputs: Map<String, Value> = given.collect();
    inputs.insert("items".into(), json!([1, 2, 3, 4, 5, 6, 7]));
    let mut steps: Vec<Value> = (6..10)
        .map(|n| {
            let task = "\"".repeat(60_000);
            json!({"id": format!("s{n}"), "agent_id": "echo", "task_description": task, "for_each": "items", "output_to": format!("k{n}")})
        })
        .collect();
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    steps.push(json!({"id": "reads", "agent_id": "spend", "task_description": "t", "input_from": keys}));
    let outcome = client.run(json!({"inputs": inputs, "steps": steps})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{:?}", outcome.context.error);
    let size = outcome.outputs.values().map(|value| value.size_bytes()).sum::<u64>();
    assert!(size > MAX_MESSAGE_BYTES as u64, "{size}");
}

#[tokio::test]
async fn goals_trees_and_money_in_one_process_with_no_servers() {
    let cluster = Cluster::embedded();
    try_everything(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn goals_trees_and_money_on_a_disk() {
    let directory = Directory::fresh();
    let coordinators = vec![coordinator::Config::new(name("a")), coordinator::Config::new(name("b"))];
    let (bus, store) = directory.both(coordinators[0].topology.partitions).await;
    let workers = vec![worker::Config::new(name("w1")), worker::Config::new(name("w2"))];
    let cluster = Cluster::start(bus, store, coordinators, workers);
    try_everything(&cluster).await;
    cluster.stop().await;
}

/// proves: the directory contains everything that a run needs, and is not held open after the end.
#[tokio::test(flavor = "multi_thread")]
async fn runs_go_on_where_they_were_when_their_directory_is_opened_again() {
    let directory = Directory::fresh();
    let start = async || {
        let config = coordinator::Config::new(name("coordinator"));
        let (bus, store) = directory.both(config.topology.partitions).await;
        Cluster::start(bus, store, vec![config], vec![worker::Config::new(name("worker"))])
    };
    let mut cluster = start().await;
    let step = |id| json!({"id": id, "agent_id": "sleep", "task_description": id, "input_from": ["ms"]});
    let steps: Vec<_> = ["a", "b", "c"].map(step).to_vec();
    let graph = json!({"mode": "sequential", "inputs": {"ms": 700}, "steps": steps});
    let accepted = cluster.client.accepted(graph).await;
    let pay = json!({"goal": "pay", "agent_id": "spend", "inputs": {"usd": 0.01, "calls": 3}});
    let paid = cluster.client.run(pay).await;
    for _ in 0..3 {
        cluster.stop().await;
        cluster = start().await;
    }
    let root = accepted.child_id;
    let outcome = cluster.client.outcome(accepted.trace_id, &root).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    for trace in [accepted.trace_id, paid.trace_id] {
        invariants::check_at_rest(&cluster.client.trace(trace).await).unwrap();
    }
    assert_eq!(cluster.client.outcome(paid.trace_id, &paid.context.child_id).await, paid);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn goals_trees_and_money_on_real_servers() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let connect = Connect::new(nats.url(), Default::default(), "test");
    let bus = Bus::Nats(Nats::connect(&connect).await.unwrap());
    let store = coordinator::store::Redis::connect(&redis.url(), Default::default(), 16).await.unwrap();
    let store = coordinator::store::Store::Redis(store);
    let cluster = Cluster::start(
        bus,
        store,
        vec![coordinator::Config::new(name("a")), coordinator::Config::new(name("b"))],
        vec![worker::Config::new(name("w1")), worker::Config::new(name("w2"))],
    );
    try_everything(&cluster).await;
    cluster.stop().await;
}

/// One slot, and steps that together take longer than the timeout of each: the wait for the slot is
/// not part of the timeout.
#[tokio::test(flavor = "multi_thread")]
async fn l_a_step_does_not_time_out_while_it_waits_for_a_slot() {
    let coordinator = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = Store::Memory(coordinator::store::Memory::new(coordinator.topology.partitions));
    let worker = worker::Config { slots: 1, ..worker::Config::new(name("worker")) };
    let cluster = Cluster::start(bus, store, vec![coordinator], vec![worker]);
    let step = |id| json!({"id": id, "agent_id": "sleep", "task_description": id, "input_from": ["ms"], "timeout_ms": 6_000});
    let steps: Vec<_> = ["a", "b", "c", "d", "e"].map(step).to_vec();
    let outcome =
        cluster.client.run(json!({"mode": "parallel", "inputs": {"ms": 1_500}, "steps": steps})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    cluster.stop().await;
}
