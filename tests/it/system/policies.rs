//! Coordinators that were started with different options.

use std::time::Duration;

use bus::Bus;
use coordinator::store::{Memory, Store};
use domain::{
    money::Usd,
    wire::{Policy, QueryAnswer},
};
use serde_json::json;
use trellis_tests::cluster::{Client, Cluster, SOON, name};

const HOUR: Duration = Duration::from_secs(3600);

fn started_with(id: &str, retention: Duration, max_cost_usd: Option<u64>) -> coordinator::Config {
    let mut config = coordinator::Config::new(name(id));
    config.retention = retention;
    config.settings.maximum.max_cost_usd = max_cost_usd.map(|usd| Usd::from_nanos(usd * 1_000_000_000));
    config
}

/// The lowest maximum of all coordinators applies, whichever coordinator takes the run.
#[tokio::test]
async fn b17_the_lowest_maximum_of_all_coordinators_holds() {
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let loose: Vec<_> = (0..3).map(|n| started_with(&format!("loose-{n}"), HOUR, None)).collect();
    let partitions = loose[0].topology.partitions;
    let store = Store::Memory(Memory::new(partitions));
    let strict = started_with("strict", 2 * HOUR, Some(2));
    let first = Cluster::start(bus.clone(), store.clone(), vec![strict], vec![]);
    first.client.accepted(json!({"goal": "it is up"})).await;
    let cluster = Cluster::start(bus.clone(), store, loose, vec![]);
    trellis_tests::cluster::eventually("all coordinators run", async || policies(&bus).await.len() == 4)
        .await;
    for n in 0..20 {
        let accepted = cluster.client.accepted(json!({"goal": format!("{n}"), "max_cost_usd": 5})).await;
        let adjusted = serde_json::to_value(&accepted).unwrap()["adjusted"].clone();
        assert_eq!(adjusted[0]["got"], json!(2.0), "{adjusted}");
    }
    let holds = policies(&bus).await.into_iter().reduce(|all, other| all.and(&other)).unwrap();
    assert_eq!(holds.retention_ms, 2 * 3_600_000, "the longest retention of all coordinators");
    first.stop().await;
    cluster.stop().await;
}

async fn policies(bus: &Bus) -> Vec<Policy> {
    let answer = Client { bus: bus.clone() }.query(json!("coordinators")).await;
    let QueryAnswer::Coordinators { policies, .. } = answer else { panic!("{answer:?}") };
    policies
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_coordinators_with_one_id_the_later_one_ends_and_one_that_was_killed_comes_back() {
    let with = || {
        let mut config = coordinator::Config::new(name("same"));
        config.heartbeat = Duration::from_millis(100);
        config.heartbeat_ttl = Duration::from_millis(400);
        config
    };
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = Store::Memory(Memory::new(with().topology.partitions));
    let run = |config| coordinator::run(config, bus.clone(), store.clone(), std::future::pending());
    let first = tokio::spawn(run(with()));
    let client = Client { bus: bus.clone() };
    client.accepted(json!({"goal": "it is up"})).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = tokio::time::timeout(SOON, run(with())).await.expect("the second ends");
    let why = second.expect_err("the error has the reason").to_string();
    assert!(why.contains("another coordinator is alive under the id `same`"), "{why}");
    assert!(!first.is_finished(), "the first coordinator continues");
    first.abort();
    let third = tokio::spawn(run(with()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!third.is_finished(), "a killed coordinator is replaced at once");
    assert_eq!(policies(&bus).await.len(), 1);
    third.abort();
}
