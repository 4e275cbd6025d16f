//! The whole of it in one process, on the memory bus and store.

use serde_json::{Value, json};
use shared::{
    Usd,
    bus::{Bus, Connect, Nats},
    wire::{EndStatus, Outcome, Payload},
};
use trellis_tests::{
    cluster::{Cluster, name},
    invariants,
    servers::{NatsServer, RedisServer},
};

fn value(outcome: &Outcome) -> Value {
    match outcome.context.result.as_ref() {
        Some(Payload::Inline(value)) => value.value().clone(),
        other => panic!("{other:?} of {outcome:#?}"),
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
}

#[tokio::test]
async fn a_bare_goal_is_answered_with_itself() {
    let cluster = Cluster::embedded();
    try_everything(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_servers() {
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
