//! Hold and settle at depth 8. The benchmark acts as the worker of a context seven levels below its
//! root, and every pair changes the whole chain of budgets.

use std::time::{Duration, Instant};

use bus::Delivery;
use domain::{
    TraceId,
    span::Headers,
    wire::{Answer, ClaimAnswer, Execute, Offer},
};
use futures_util::StreamExt;
use serde_json::{Value, json};

use trellis_tests::cluster::queue_of;

use crate::{measure::meter::Latencies, trellis::Trellis};

const DEPTH: usize = 8;

/// The lease of the deepest context. The leases of its ancestors last long enough without renewal.
struct Deep {
    work: Execute,
    lease: Value,
}

async fn ask(trellis: &Trellis, work: &Execute, ask: Value) -> Answer {
    ask_at(trellis, &work.report_to.ask, work.trace_id, ask).await
}

async fn ask_at(trellis: &Trellis, subject: &str, trace_id: TraceId, ask: Value) -> Answer {
    let bus = &trellis.client.bus;
    let subject = bus.namespace().parse(subject).unwrap();
    let message = serde_json::to_vec(&json!({"trace_id": trace_id, "ask": ask})).unwrap();
    let answer = bus.request(&subject, &Headers::new(), message.into(), Duration::from_secs(10)).await;
    serde_json::from_slice(&answer.unwrap()).unwrap()
}

async fn claim(trellis: &Trellis, delivery: &Delivery) -> (Execute, Value) {
    let offer: Offer = serde_json::from_slice(&delivery.payload).unwrap();
    let token = uuid::Uuid::new_v4().simple().to_string();
    let claim = json!({"claim": {"child_id": offer.child_id, "worker_id": "bench", "token": token}});
    let claimed = ask_at(trellis, &offer.report_to.ask, offer.trace_id, claim).await;
    let Answer::Claimed(claimed) = claimed else { panic!("not claimed") };
    let ClaimAnswer { lease, work, .. } = *claimed;
    (work, serde_json::to_value(lease).unwrap())
}

/// Claims a root and a chain of seven contexts below it.
async fn descend(trellis: &Trellis) -> Deep {
    trellis
        .client
        .apply(json!([{"agent_id": "bench", "kind": "builtin", "builtin": "echo", "pool": "bench"}]))
        .await;
    let root = json!({"goal": "level 0", "agent_id": "bench", "max_cost_usd": 1000, "timeout_ms": 0});
    trellis.client.accepted(root).await;
    let mut queue = queue_of(&trellis.client.bus, "bench").await;
    queue.want(DEPTH);
    let delivery = queue.next().await;
    let (mut work, mut lease) = claim(trellis, &delivery).await;
    delivery.ack().await;
    for level in 1..DEPTH {
        let child = json!({"goal": format!("level {level}"), "agent_id": "bench", "timeout_ms": 0, "child_id": format!("level-{level}")});
        let spawned = ask(trellis, &work, json!({"spawn": {"lease": lease, "spawn": child}})).await;
        assert!(matches!(spawned, Answer::Spawned { .. }), "{spawned:?}");
        let delivery = queue.next().await;
        (work, lease) = claim(trellis, &delivery).await;
        delivery.ack().await;
    }
    Deep { work, lease }
}

async fn pair(trellis: &Trellis, deep: &Deep, call: usize) {
    let amount = json!({"cost_usd": "0.0001", "tokens": 10});
    let call_id = format!("call-{call}");
    let hold = json!({"hold": {"lease": deep.lease, "call_id": call_id, "amount": amount}});
    let held = ask(trellis, &deep.work, hold).await;
    assert!(matches!(held, Answer::Done), "{held:?}");
    let settle = json!({"settle": {"lease": deep.lease, "call_id": call_id, "amount": amount}});
    let settled = ask(trellis, &deep.work, settle).await;
    assert!(matches!(settled, Answer::Done), "{settled:?}");
}

/// Measures pairs one after another.
pub(crate) async fn pairs(trellis: &Trellis, pairs: usize) -> Latencies {
    let deep = descend(trellis).await;
    let mut latencies = Latencies::default();
    for call in 0..pairs {
        let began = Instant::now();
        pair(trellis, &deep, call).await;
        latencies.add(began.elapsed());
    }
    latencies
}

/// Measures pairs per second, 64 at once on one context.
pub(crate) async fn at_once(trellis: &Trellis, pairs: usize) -> f64 {
    let deep = descend(trellis).await;
    let began = Instant::now();
    futures_util::stream::iter(0..pairs)
        .map(|call| pair(trellis, &deep, call))
        .buffer_unordered(64)
        .count()
        .await;
    pairs as f64 / began.elapsed().as_secs_f64()
}
