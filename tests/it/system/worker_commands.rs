//! Workers on the command line, on real servers: all of them are drained at once.

use std::process::Command;

use bus::{Bus, Connect, Nats};
use coordinator::store::{Redis, Store};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, name},
    processes::binary,
    servers::{NatsServer, RedisServer},
};

#[tokio::test(flavor = "multi_thread")]
async fn g8_all_workers_are_drained_after_a_confirmation() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let to = Connect::new(nats.url(), Default::default(), "test");
    let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
    let config = coordinator::Config::new(name("coordinator"));
    let store = Redis::connect(&redis.url(), Default::default(), config.topology.partitions).await.unwrap();
    let workers = ["one", "two"].map(|one| worker::Config::new(name(one))).into();
    let cluster = Cluster::start(bus, Store::Redis(store), vec![config], workers);
    cluster.client.run(json!({"goal": "it is up"})).await;
    let said = |arguments: &[&str]| {
        let output = Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats.url()).output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let (_, why, code) = said(&["workers", "drain", "--all"]);
    assert!(code == Some(2) && why.contains("drains 2 workers") && why.contains("--yes"), "{why}");
    let takes_work = || -> usize {
        let listed: Value = serde_json::from_str(&said(&["workers", "list", "-o", "json"]).0).unwrap();
        listed.as_array().unwrap().iter().filter(|worker| worker["draining"] == false).count()
    };
    assert_eq!(takes_work(), 2, "no worker was drained");
    let (out, why, code) = said(&["workers", "drain", "--all", "--yes"]);
    assert!(code == Some(0) && out.matches("is draining, or has ended").count() == 2, "{out}{why}");
    assert_eq!(takes_work(), 0);
    cluster.stop().await;
}
