//! A Redis server that is killed, loses its data, or is full.

use std::time::Duration;

use coordinator::store::{Redis, Store};
use domain::{
    Usd,
    subject::{Action, Subject},
    wire::EndStatus,
};
use serde_json::json;
use trace::{Phase, Status};
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, Shape},
    servers::{Proxy, RedisServer},
};

use super::{PARTITIONS, drive, repeats, running, sleep};

async fn tell(server: &RedisServer, words: &[&str]) -> String {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(*word);
    });
    let value: redis::Value = command.query_async(&mut connection).await.unwrap();
    format!("{value:?}")
}

/// proves: failing closed (B13): a command that could not be committed is neither answered nor
/// acknowledged. With appendfsync always, every commit exists after the restart.
#[tokio::test(flavor = "multi_thread")]
async fn f16_redis_killed_under_load() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for round in 0..repeats(2) {
        let driven = drive(&cluster, 15 + round).await;
        cluster.redis.kill();
        runs.extend(driven);
        runs.extend(drive(&cluster, 10).await);
        tokio::time::sleep(Duration::from_millis(1000)).await;
        cluster.redis.restart();
        runs.extend(drive(&cluster, 10).await);
    }
    cluster.check(&runs).await;
}

/// proves: the rebuild from the event log of parked, queued, running and ended runs (N1).
#[tokio::test(flavor = "multi_thread")]
async fn f18_redis_wiped() {
    let mut cluster = Processes::start_as(|| Shape { slots: 2, ..Shape::new(2, 1) }).await;
    for _ in 0..repeats(1) {
        let ended = cluster.begin(json!({"goal": "hello"})).await;
        cluster.outcome(ended).await;
        let asking = cluster.begin(json!({"goal": "which?", "agent_id": "ask"})).await;
        let pays = json!({
            "goal": "p", "agent_id": "spend", "max_cost_usd": 0.02, "on_exhausted": "pause",
            "inputs": {"usd": 0.01, "calls": 3},
        });
        let paused = cluster.begin(pays).await;
        let parked = |trace: &trace::Trace| {
            let status = trace.root().map(|root| root.status.clone());
            matches!(status, Some(Status::InputRequired { .. } | Status::Paused { .. }))
        };
        cluster.until(asking, "parked", parked).await;
        cluster.until(paused, "parked", parked).await;
        let busy = [cluster.begin(sleep(4000)).await, cluster.begin(sleep(4000)).await];
        for run in busy {
            running(&cluster, run, 1).await;
        }
        let queued = cluster.begin(json!({"goal": "later"})).await;
        cluster.until(queued, "there", |trace| trace.root().is_some()).await;

        cluster.redis.wipe();
        for run in busy {
            let outcome = cluster.outcome(run).await;
            assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
        }
        assert_eq!(cluster.outcome(queued).await.context.status, EndStatus::Completed);
        let answered = json!({"child_id": "root", "question": 1, "answer": "that"});
        cluster.tell(Subject::Input, &json!({"trace_id": asking, "answered": answered})).await;
        assert_eq!(cluster.outcome(asking).await.context.status, EndStatus::Completed);
        let raise = json!({"child_id": "root", "max_cost_usd": 0.03});
        cluster.tell(Subject::Admin(Action::Raise), &json!({"trace_id": paused, "raise": raise})).await;
        let outcome = cluster.outcome(paused).await;
        assert_eq!(outcome.context.budget.spent.cost_usd, Usd::from_cents(3), "{outcome:#?}");
        cluster.check(&[ended, asking, paused, busy[0], busy[1], queued]).await;
    }
}

/// proves: the rebuild when no coordinator has seen the store before its loss.
#[tokio::test(flavor = "multi_thread")]
async fn f18_redis_wiped_while_no_coordinator_runs() {
    let mut cluster = Processes::start(2, 2).await;
    let asking = cluster.begin(json!({"goal": "which?", "agent_id": "ask"})).await;
    cluster
        .until(asking, "parked", |trace| {
            trace.root().is_some_and(|root| matches!(root.status, Status::InputRequired { .. }))
        })
        .await;
    let mut runs = drive(&cluster, 20).await;
    cluster.kill("c1");
    cluster.kill("c2");
    cluster.redis.wipe();
    cluster.run("c1");
    cluster.run("c2");
    let answered = json!({"child_id": "root", "question": 1, "answer": "that"});
    cluster.tell(Subject::Input, &json!({"trace_id": asking, "answered": answered})).await;
    assert_eq!(cluster.outcome(asking).await.context.status, EndStatus::Completed);
    runs.push(asking);
    cluster.check(&runs).await;
}

/// proves: a coordinator checks for lost writes even without new messages: only the store knows a
/// retry that waits for its time.
#[tokio::test(flavor = "multi_thread")]
async fn f18_redis_wiped_while_all_is_quiet() {
    let settings = json!({"retry_base_ms": 8_000, "retry_max_ms": 8_000});
    let mut cluster = Processes::start_as(|| Shape { settings, ..Shape::new(1, 1) }).await;
    let run = cluster.begin(json!({"goal": "again", "agent_id": "fail", "inputs": {"times": 1}})).await;
    cluster
        .until(run, "waiting for a retry", |trace| {
            let status = trace.root().map(|root| root.status.clone());
            matches!(status, Some(Status::Working(Phase::Queued { sent_at: None, .. })))
        })
        .await;
    // Two heartbeats, so that the check caused by the first commit is over.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    cluster.redis.wipe();
    let outcome = cluster.outcome(run).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 2));
    cluster.check(&[run]).await;
}

/// proves: a coordinator notices that a new server has less data than the one before, and rebuilds
/// from the event log. A replica stops following while its master continues; then the master dies
/// and the stale replica replaces it.
#[tokio::test(flavor = "multi_thread")]
async fn f19_a_stale_replica_of_redis_takes_over() {
    let redis = RedisServer::start();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &redis.port().to_string()]);
    let proxy = Proxy::start(redis.port()).await;
    let redis_url = Some(format!("redis://127.0.0.1:{}", proxy.port()));
    let mut cluster = Processes::start_as(|| Shape { redis_url, redis, ..Shape::new(2, 2) }).await;
    eventually("the replica follows", async || {
        tell(&replica, &["INFO", "replication"]).await.contains("master_link_status:up")
    })
    .await;
    let mut runs = drive(&cluster, 18).await;
    tell(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    runs.extend(drive(&cluster, 18).await);
    cluster.redis.kill();
    proxy.lead_to(replica.port());
    let store = Redis::connect(&replica.url(), Default::default(), PARTITIONS).await.unwrap();
    cluster.store = Store::Redis(store);
    runs.extend(drive(&cluster, 12).await);
    cluster.check(&runs).await;
    let noticed = |name: &str| cluster.log(name).contains("has lost acknowledged writes");
    assert!(noticed("c1") || noticed("c2"), "no coordinator noticed the lost write");
}

/// proves: a missing script is loaded again, and a write that is refused for lack of memory changes
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f20_redis_without_its_scripts_and_without_memory() {
    let cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for _ in 0..repeats(1) {
        for _ in 0..5 {
            tell(&cluster.redis, &["SCRIPT", "FLUSH"]).await;
            runs.extend(drive(&cluster, 6).await);
        }
        tell(&cluster.redis, &["CONFIG", "SET", "maxmemory", "1"]).await;
        runs.extend(drive(&cluster, 20).await);
        tokio::time::sleep(Duration::from_secs(3)).await;
        tell(&cluster.redis, &["CONFIG", "SET", "maxmemory", "0"]).await;
        runs.extend(drive(&cluster, 6).await);
    }
    cluster.check(&runs).await;
}
