//! Dead letters on the command line, on real servers: they are listed, shown, sent again and
//! dropped.

use std::{io::Write, process::Command};

use bus::{Bus, Connect, Nats};
use coordinator::store::{Redis, Store};
use domain::{
    TraceId,
    subject::{Filter, Subject},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually, name},
    processes::binary,
    servers::{NatsServer, RedisServer},
    subjects::admin_of,
};

#[tokio::test(flavor = "multi_thread")]
async fn t2_dead_letters_are_listed_shown_sent_again_once_and_dropped() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let to = Connect::new(nats.url(), Default::default(), "test");
    let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
    let config = coordinator::Config::new(name("coordinator"));
    let store = Redis::connect(&redis.url(), Default::default(), config.topology.partitions).await.unwrap();
    let worker = worker::Config::new(name("worker"));
    let cluster = Cluster::start(bus.clone(), Store::Redis(store), vec![config], vec![worker]);
    cluster.client.run(json!({"goal": "it is up"})).await;
    let said = |arguments: &[&str]| {
        let output = Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats.url()).output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let listed = |arguments: &[&str]| -> Vec<Value> {
        let (out, err, code) = said(&[&["dead-letters", "list", "-o", "json"], arguments].concat());
        assert_eq!(code, Some(0), "{err}");
        serde_json::from_str(&out).unwrap()
    };
    let letters = async |count: usize| {
        eventually("the expected number of letters is stored", async || {
            bus.read(&Filter::Dead).await.unwrap().len() == count
        })
        .await;
    };

    // A charge of a run that does not exist yet, and an undecodable message.
    let trace = TraceId::from_u128(7).unwrap();
    let charge = json!({"trace_id": trace, "charge": {"child_id": "root", "key": "invoice", "by": "accounts",
        "amount": {"cost_usd": 0.25}}});
    cluster.client.publish(admin_of(&charge), &charge).await;
    letters(1).await;
    cluster.client.publish(Subject::Spawn, &json!({"goal": 7})).await;
    letters(2).await;

    let all = listed(&[]);
    let kinds: Vec<&str> = all.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["spawn", "charge"], "the newest first");
    assert_eq!(listed(&["--limit", "1"])[0], all[0]);
    let id = listed(&["--kind", "charge"])[0]["id"].to_string();
    assert_eq!(listed(&["--trace", &trace.to_string()]).len(), 1);
    let (text, _, _) = said(&["dead-letters", "list"]);
    assert!(text.contains("no_trace") && text.contains("malformed"), "{text}");
    let (shown, _, code) = said(&["dead-letters", "show", &id]);
    assert!(code == Some(0) && shown.contains("agent.admin.charge") && shown.contains("SHA-256"), "{shown}");
    assert!(shown.contains("hint: ") && shown.contains("no_trace"), "{shown}");
    let (_, why, code) = said(&["dead-letters", "show", "99"]);
    assert!(code == Some(2) && why.contains("there is no dead letter 99"), "{why}");

    // The letter does not contain its message; another message is not sent in its place.
    let (_, why, code) = said(&["dead-letters", "retry", &id]);
    assert!(
        code == Some(3) && why.contains("does not contain its message") && why.contains("--payload"),
        "{why}"
    );
    let file = std::env::temp_dir().join(format!("trellis-dead-{}.json", std::process::id()));
    let write = |bytes: &[u8]| std::fs::File::create(&file).unwrap().write_all(bytes).unwrap();
    let path = file.to_str().unwrap();
    write(b"{}");
    let (_, why, code) = said(&["dead-letters", "retry", &id, "--payload", path]);
    assert!(code == Some(3) && why.contains("is not the message"), "{why}");
    assert_eq!(listed(&[]).len(), 2, "nothing was sent or dropped");

    // Once the run exists, the same message is booked, once.
    cluster.client.run(json!({"goal": "hello", "trace_id": trace})).await;
    write(&serde_json::to_vec(&charge).unwrap());
    let (_, why, code) = said(&["dead-letters", "retry", &id, "--payload", path]);
    assert_eq!(code, Some(0), "{why}");
    eventually("the charge is booked", async || {
        cluster.client.trace(trace).await.root().unwrap().budget.spent.cost_usd == "0.25".parse().unwrap()
    })
    .await;
    let (_, why, code) = said(&["dead-letters", "retry", &id, "--payload", path]);
    assert!(code == Some(2) && why.contains("there is no dead letter"), "{why}");

    let id = listed(&[])[0]["id"].to_string();
    let (_, why, code) = said(&["dead-letters", "drop", &id]);
    assert_eq!(code, Some(0), "{why}");
    assert!(listed(&[]).is_empty());
    let (_, none, code) = said(&["dead-letters", "list"]);
    assert!(code == Some(0) && none.contains("there are no dead letters"), "{none}");
    std::fs::remove_file(file).ok();
    cluster.stop().await;
}
