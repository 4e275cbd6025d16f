//! Wrong clocks, of workers and of the store.

use std::time::Duration;

use bus::Bus;
use coordinator::store::Store;
use domain::{
    span::Headers,
    subject::Subject,
    wire::{EndStatus, Query, WorkerCall, WorkerState},
};
use host::clock::Clock;
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, SOON, name},
    processes::{Processes, Shape},
    servers::{Proxy, RedisServer},
    subjects::query_of,
};

use super::{running, sleep};

const HOURS: i64 = 5 * 3600;
const TEN_MINUTES: u64 = 600_000;

/// A profile in the pool `pool` whose scripted model calls one tool. The steps of the test have
/// deadlines.
fn agent(pool: &str) -> Value {
    let script = json!([{"say": "half of it", "call": [{"tool": "fs.list", "arguments": {}}], "ms": 50}, {"say": "done"}]);
    json!({"agent_id": pool, "kind": "llm", "model": "scripted", "pool": pool, "tools": ["fs.list"], "script": script})
}

/// proves: deadlines and leases are computed from the remaining time that the coordinator sends,
/// not from the worker's time of day.
#[tokio::test(flavor = "multi_thread")]
async fn f28_workers_whose_clocks_are_ten_minutes_wrong() {
    let coordinator = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = Store::Memory(coordinator::store::Memory::new(coordinator.topology.partitions));
    let now = Clock::Machine.now();
    let clocks = [("ahead", now.plus_millis(TEN_MINUTES)), ("behind", now.minus_millis(TEN_MINUTES))];
    let worker = |(pool, at)| worker::Config {
        pool: pool_name(pool),
        clock: Clock::simulated(at),
        ..worker::Config::new(name(pool))
    };
    let cluster = Cluster::start(bus, store, vec![coordinator], clocks.map(worker).to_vec());
    let query = Query::ApplyAgents {
        agents: serde_json::from_value(json!([agent("ahead"), agent("behind")])).unwrap(),
    };
    let payload = serde_json::to_vec(&query).unwrap();
    trellis_tests::cluster::eventually("the profiles are applied", async || {
        let bus = &cluster.client.bus;
        bus.request(&query_of(&payload), &Headers::new(), payload.clone().into(), SOON).await.is_ok()
    })
    .await;
    for pool in ["ahead", "behind"] {
        let steps = json!([
            {"id": "a", "agent_id": pool, "task_description": "a", "timeout_ms": 60_000},
            {"id": "b", "agent_id": pool, "task_description": "b", "timeout_ms": 60_000},
        ]);
        let outcome = cluster.client.run(json!({"timeout_ms": 120_000, "steps": steps})).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{pool}: {outcome:#?}");
        assert_eq!(outcome.context.retries, 0, "{pool}: {outcome:#?}");
    }
    let describe = serde_json::to_vec(&WorkerCall::Describe).unwrap().into();
    let answers =
        cluster.client.bus.gather(&Subject::Worker, describe, Duration::from_secs(1)).await.unwrap();
    for answer in answers {
        let state: WorkerState = serde_json::from_slice(&answer).unwrap();
        let ahead = state.clock_ahead_ms.expect("a worker reports its wrong clock");
        let expected = if state.worker_id.as_str() == "ahead" { 600_000 } else { -600_000 };
        assert!((expected - 30_000..expected + 30_000).contains(&ahead), "{}: {ahead}", state.worker_id);
    }
    cluster.stop().await;
}

fn pool_name(pool: &str) -> domain::id::PoolName {
    pool.parse().unwrap()
}

/// proves: coordinators do not follow a jump of the store's clock but correct it for all of them,
/// including one that starts later: no lease expires, no deadline passes.
#[tokio::test(flavor = "multi_thread")]
async fn f28_the_clock_of_redis_jumps_ahead_and_back() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port()).await;
    let redis_url = Some(format!("redis://127.0.0.1:{}", proxy.port()));
    let settings = json!({"lease_ms": 10_000});
    let shape = || Shape { settings, redis_url, redis, ..Shape::new(2, 2) };
    let mut cluster = Processes::start_as(shape).await;
    let with_deadline = |ms: u64| {
        let mut run = sleep(ms);
        run["timeout_ms"] = json!(120_000);
        run
    };
    let mut runs = Vec::new();
    for ahead in [HOURS, 0, -HOURS, 0] {
        // Two heartbeats, so that both coordinators have compared the clocks.
        cluster.all_there().await;
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        let run = cluster.begin(with_deadline(8_000)).await;
        running(&cluster, run, 1).await;
        proxy.set_clock(ahead);
        // One of the coordinators makes the correction. Then both are killed, and their successors
        // have only the stored correction.
        corrected(&cluster, ahead * 1000).await;
        for coordinator in ["c1", "c2"] {
            cluster.kill(coordinator);
            cluster.run(coordinator);
        }
        runs.push(run);
    }
    for run in &runs {
        let outcome = cluster.outcome(*run).await;
        let context = &outcome.context;
        assert_eq!((context.status, context.attempts), (EndStatus::Completed, 1), "{outcome:#?}");
    }
    cluster.check(&runs).await;
}

/// Waits until the correction of the store's clock is about this large.
async fn corrected(cluster: &Processes, ahead_ms: i64) {
    trellis_tests::cluster::eventually("the clock is corrected", async || {
        let correction = cluster.store.time().await.unwrap().correction;
        (correction.ahead_ms - ahead_ms).abs() < 60_000
    })
    .await;
}
