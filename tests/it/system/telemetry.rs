//! Trace ids from the caller to the execute message (X2). Spans are tested with a separate process,
//! in `cli/tests/telemetry.rs`.

use domain::{
    span::Headers,
    subject::{Filter, Subject},
    wire::{Acceptance, SubmitAnswer},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, SOON},
    servers::{NatsServer, RedisServer},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

async fn submit(cluster: &Cluster, traceparent: &str) -> Acceptance {
    let headers = Headers::from([("traceparent".to_owned(), traceparent.to_owned())]);
    let payload = json!({"goal": "hello"}).to_string();
    let asked = cluster.client.bus.request(&Subject::Submit, &headers, payload.into(), SOON).await.unwrap();
    match serde_json::from_slice(&asked).unwrap() {
        SubmitAnswer::Accepted(acceptance) => acceptance,
        SubmitAnswer::Refused(refusal) => panic!("{refusal:?}"),
    }
}

async fn try_headers(cluster: Cluster) {
    cluster.client.run(json!({"goal": "warm"})).await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let first = submit(&cluster, &parent).await;
    assert_eq!(first.trace_id.to_string(), TRACE, "the caller's trace is the run's");
    cluster.client.outcome(first.trace_id, &first.child_id).await;
    // The trace id is in use: the next run gets a new one.
    let second = submit(&cluster, &parent).await;
    assert_ne!(second.trace_id.to_string(), TRACE);
    cluster.client.outcome(second.trace_id, &second.child_id).await;
    let junk = submit(&cluster, "00-zz-junk-01").await;
    cluster.client.outcome(junk.trace_id, &junk.child_id).await;

    // X1: every stored message about the run names its trace; its headers do so only if spans are
    // exported.
    let logged = cluster.client.bus.read(&Filter::EventsOf(first.trace_id)).await.unwrap();
    let told = cluster.client.bus.read(&Filter::OutcomesOf(first.trace_id)).await.unwrap();
    assert!(!logged.is_empty() && told.len() == 1);
    for stored in logged.iter().chain(&told) {
        let message: Value = serde_json::from_slice(&stored.payload).unwrap();
        let named = message.get("trace_id").or_else(|| message["context"].get("trace_id"));
        assert_eq!(named, Some(&json!(TRACE)), "{:?}", stored.subject);
        assert_eq!(domain::span::caller(&stored.headers), None, "{:?}", stored.subject);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_the_callers_trace_is_the_runs_in_memory() {
    try_headers(Cluster::embedded()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_the_callers_trace_is_the_runs_on_real_servers() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    try_headers(Cluster::on(&nats, &redis).await).await;
}
