//! A network that is cut, one way or both, and readers that are too slow for it.

use std::{collections::BTreeSet, time::Duration};

use domain::{TraceId, Usd, span::Headers, subject::Subject};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use trellis_tests::{
    checker,
    cluster::{SOON, eventually},
    processes::{LEASE, Processes, Shape},
    servers::{ModelServer, NatsServer, Prompt, Proxy, RedisServer, Reply, Way},
};

use super::drive;

/// Shorter than a lease, and longer than any wait for an answer.
const A_WHILE: Duration = Duration::from_millis(2_500);
const A_MOMENT: Duration = Duration::from_millis(200);

/// Writes a note, then answers; each call takes a moment.
fn think(prompt: &Prompt) -> Reply {
    let reply = Reply { input_tokens: 100, output_tokens: 20, takes: A_MOMENT, ..Reply::default() };
    match prompt.turn() {
        0 => {
            let note = json!({"path": "outputs/note", "content": "noted"});
            Reply { calls: vec![("fs_write".into(), note)], ..reply }
        }
        _ => Reply { text: "done".into(), ..reply },
    }
}

/// Six runs of all kinds, and two that call a model, with their tasks.
async fn load(cluster: &Processes, runs: &mut Vec<TraceId>, paid: &mut Vec<(TraceId, String)>) {
    for _ in 0..2 {
        let goal = format!("think {}", paid.len());
        let think = json!({"goal": goal, "agent_id": "thinker", "max_cost_usd": CAP});
        paid.push((cluster.begin(think).await, goal));
    }
    runs.extend(drive(cluster, 6).await);
}

const CAP: Usd = Usd::from_cents(50);

/// proves: silent connections are replaced, asks and reports are sent again, and a context whose
/// lease could not be renewed gets another attempt (b5: no call is lost or booked twice). Each of
/// the four links is cut both ways for longer than a lease, then one way and the other for a while,
/// then broken again and again in the middle of messages.
#[tokio::test(flavor = "multi_thread")]
async fn f21_the_network_cut_between_each_pair() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let model = ModelServer::start(think).await;
    let port = model.url().rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap();
    let proxies = [
        Proxy::start(nats.port()).await,
        Proxy::start(nats.port()).await,
        Proxy::start(redis.port()).await,
        Proxy::start(port.parse().unwrap()).await,
    ];
    let at = |scheme: &str, link: usize| format!("{scheme}://127.0.0.1:{}", proxies[link].port());
    let mut worker = model.settings();
    worker["providers"]["test"]["base_url"] = json!(format!("{}/v1/", at("http", 3)));
    let shape = || Shape {
        coordinators_nats: Some(at("nats", 0)),
        workers_nats: Some(at("nats", 1)),
        redis_url: Some(at("redis", 2)),
        worker,
        nats,
        redis,
        ..Shape::new(2, 2)
    };
    let cluster = Processes::start_as(shape).await;
    let thinker = json!({"agent_id": "thinker", "kind": "llm", "model": "test/model", "tools": ["fs.write"]});
    cluster.apply(json!([thinker])).await;
    let (mut runs, mut paid) = (Vec::new(), Vec::new());
    for proxy in &proxies {
        let both: &[Way] = &[Way::ToServer, Way::FromServer];
        for (ways, time) in [(both, LEASE + A_WHILE), (&both[..1], A_WHILE), (&both[1..], A_WHILE)] {
            load(&cluster, &mut runs, &mut paid).await;
            proxy.cut(ways);
            tokio::time::sleep(time).await;
            proxy.heal();
        }
        load(&cluster, &mut runs, &mut paid).await;
        for next in [1, 0, 2] {
            proxy.hang_up(next);
            tokio::time::sleep(A_MOMENT).await;
        }
    }
    runs.extend(paid.iter().map(|(run, _)| *run));
    cluster.check(&runs).await;
    let bill = model.bill();
    for (run, task) in paid {
        let billed = bill.iter().filter(|line| line.task == task).map(|line| line.nanos).sum();
        let wrong =
            checker::against_bill(&cluster.client.trace(run).await, Usd::from_nanos(billed), CAP, Usd::ZERO);
        assert!(wrong.is_empty(), "{task}: {}", wrong.join("\n"));
    }
}

/// The number of connections that the server closed as too slow, by its log.
fn cut_off(log: &str) -> usize {
    let slow = log.lines().filter(|line| line.contains("Slow Consumer Detected"));
    let connections = slow.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("cid:")));
    connections.collect::<BTreeSet<_>>().len()
}

/// proves: the server disconnects a slow reader, which delays no other; a disconnected worker
/// reconnects and continues. One reader never reads; the other is a stopped worker.
#[tokio::test(flavor = "multi_thread")]
async fn f26_slow_readers_are_cut_off_and_a_worker_comes_back() {
    let nats = NatsServer::start_with("", "max_pending: 1MB\nwrite_deadline: \"1s\"");
    let mut cluster = Processes::start_as(|| Shape { nats, ..Shape::new(1, 2) }).await;
    let mut observer = TcpStream::connect(("127.0.0.1", cluster.nats.port())).await.unwrap();
    observer.write_all(b"CONNECT {}\r\nSUB agent.> 1\r\n").await.unwrap();
    let mut runs = drive(&cluster, 12).await;
    cluster.pause("w1");
    // After a while the data exceeds all buffers in between.
    let piece = bytes::Bytes::from(vec![b' '; 500_000]);
    eventually("both processes are cut off", async || {
        cluster.client.bus.broadcast(&Subject::Worker, &Headers::new(), piece.clone()).await.unwrap();
        cut_off(&cluster.nats.log()) >= 2
    })
    .await;
    cluster.resume("w1");
    runs.extend(drive(&cluster, 12).await);
    cluster.check(&runs).await;
    cluster.all_there().await;
    assert!(cluster.log("w1").contains("the connection was lost"), "{}", cluster.log("w1"));
    let mut all = Vec::new();
    let ended = tokio::time::timeout(SOON, observer.read_to_end(&mut all)).await;
    assert!(ended.is_ok(), "the slow consumer was not cut off");
}
