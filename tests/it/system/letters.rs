//! A sender of many refused messages does not delay the messages after them (S6).

use std::{sync::Arc, time::Duration};

use bus::{Bus, Memory, Outgoing};
use bytes::Bytes;
use domain::{
    span::Headers,
    subject::{Partition, Subject},
    wire::EndStatus,
};
use host::simulated_network::{Arrive, Crossing, Link};
use serde_json::json;
use trellis_tests::{
    cluster::{Cluster, SOON, name},
    subjects::pool,
};

/// The time until a dead letter is stored.
const SLOW: Duration = Duration::from_secs(1);
/// Stored one after the other, they would exceed the time limit of this test.
const REFUSED: usize = 300;

/// A server that is slow only with dead letters.
#[derive(Debug)]
struct SlowLetters;

impl Link for SlowLetters {
    fn carry(&self, what: Crossing<'_>, arrive: Arrive) {
        let is_slow = matches!(what, Crossing::ToBus(subject) if subject.starts_with("agent.dead"));
        tokio::spawn(async move {
            match is_slow {
                true => tokio::time::sleep(SLOW).await,
                false => tokio::task::yield_now().await,
            }
            arrive();
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_dead_letters_do_not_delay_later_messages() {
    let mut coordinator = coordinator::Config::new(name("coordinator"));
    coordinator.topology.partitions = 1;
    let bus = Bus::Memory(Memory::new(Default::default()).behind(Arc::new(SlowLetters)));
    let store = coordinator::store::Store::Memory(coordinator::store::Memory::new(1));
    let cluster = Cluster::start(bus, store, vec![coordinator], vec![worker::Config::new(name("worker"))]);
    let (client, junk) = (&cluster.client, Bytes::from_static(b"{\"junk\": 1}"));
    client.run(json!({"goal": "it is up"})).await;
    let all: Vec<Partition> = Partition::all(1).collect();
    let asks = Subject::Ask(pool(), all[0]);
    for _ in 0..REFUSED {
        client.bus.broadcast(&asks, &Headers::new(), junk.clone()).await.unwrap();
    }
    // This is a tick of another pool.
    let answer = client.bus.request(&asks, &Headers::new(), junk.clone(), SOON).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("refused"), "{answer:?}");
    for number in 0..REFUSED {
        let child = "x".parse().unwrap();
        let trace = domain::TraceId::from_u128(number as u128 + 1).unwrap();
        let subject = Subject::Result(pool(), all[0], trace, child);
        let (id, headers, payload) = (Some(format!("junk-{number}")), Headers::new(), junk.clone());
        client.bus.publish(Outgoing { subject, id, headers, payload, expect_last: None }).await.unwrap();
    }
    let outcome = client.run(json!({"goal": "behind them"})).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 1));
    cluster.stop().await;
}
