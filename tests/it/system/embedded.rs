//! The whole system in one process: in memory, and with two coordinators and two workers on real servers.

use coordinator::store::Store;
use serde_json::{Value, json};
use shared::{
    Usd,
    bus::{Bus, Connect, Nats},
    wire::{EndStatus, Outcome},
};
use trellis_tests::{
    cluster::{Cluster, name},
    invariants,
    servers::{NatsServer, RedisServer},
};

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
}

/// A submission, its execute message, the answer to the claim and the outcome are each larger than a NATS message may
/// be: their payloads are stored as objects, which clients do not notice.
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
    assert_eq!(trace.contexts()[1].attempt(), 1, "the first attempt had all it needed");
}

#[tokio::test]
async fn goals_trees_and_money_in_one_process_with_no_servers() {
    let cluster = Cluster::embedded();
    try_everything(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn goals_trees_and_money_on_real_servers() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let connect =
        Connect { url: nats.url(), creds: None, namespace: Default::default(), name: "test".into() };
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

/// One slot, and steps that together take longer than the timeout of each: the wait for the slot does not count.
#[tokio::test(flavor = "multi_thread")]
async fn l_a_step_does_not_time_out_while_it_waits_for_a_slot() {
    let coordinator = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(shared::bus::Memory::new(Default::default()));
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
