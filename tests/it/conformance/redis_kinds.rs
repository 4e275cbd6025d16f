//! The store on a Redis cluster, and on a master that sentinels replace.

use std::time::Duration;

use coordinator::store::{COMMANDS, CommitOutcome, Redis, Store, Write};
use tokio::time::Instant;
use trellis_tests::{cluster::SOON, servers::RedisServer};

use super::{
    redis_faults::{BOUND, recovered, tell},
    store::{self, PARTITIONS, commit, trace, version, write},
};

async fn connect(url: &str, namespace: &str) -> Store {
    Store::Redis(Redis::connect(url, namespace.parse().unwrap(), PARTITIONS).await.unwrap())
}

/// Waits until the server's answer contains a text.
async fn until(server: &RedisServer, words: &[&str], said: &str) {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if format!("{:?}", tell(server, words).await).contains(said) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the answer to {words:?} never contained {said}: {:?}", tell(server, words).await);
}

const NODE: [&str; 6] =
    ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--cluster-require-full-coverage", "no"];

/// Three masters with a third of the slots each.
async fn cluster() -> Vec<RedisServer> {
    let nodes: Vec<RedisServer> = (0..3).map(|_| RedisServer::start_with(&NODE)).collect();
    for (node, slots) in nodes.iter().zip([0..5461, 5461..10922, 10922..16384]) {
        let slots: Vec<String> = slots.map(|slot: u16| slot.to_string()).collect();
        let words: Vec<&str> =
            ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
        tell(node, &words).await;
        tell(node, &["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port().to_string()]).await;
    }
    for node in &nodes {
        until(node, &["CLUSTER", "INFO"], "cluster_slots_assigned:16384").await;
        until(node, &["CLUSTER", "INFO"], "cluster_state:ok").await;
    }
    nodes
}

fn url(nodes: &[RedisServer]) -> String {
    let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis-cluster://{}", hosts.join(","))
}

/// Proves the hash tags and one pipeline per partition: without them a script would use keys of
/// several slots.
#[tokio::test]
async fn a_cluster_does_all_that_one_node_does() {
    let nodes = cluster().await;
    store::every(async |namespace| connect(&url(&nodes), namespace).await).await;
    let store = connect(&url(&nodes), "").await;
    store.ping().await.unwrap();
    assert_eq!(store.durability().await.unwrap().appendfsync.as_deref(), Some("always"));
}

/// Adds the user that `trellis auth init` writes for coordinators. Returns its login for an address.
async fn add_coordinator(server: &RedisServer) -> &'static str {
    let allowed: Vec<String> = COMMANDS.iter().map(|command| format!("+{command}")).collect();
    let user = ["ACL", "SETUSER", "coordinator", "on", ">pw-7", "~*", "-@all"];
    let words: Vec<&str> = user.into_iter().chain(allowed.iter().map(String::as_str)).collect();
    tell(server, &words).await;
    "coordinator:pw-7@"
}

#[tokio::test]
async fn s6_the_user_of_coordinators_works_on_a_cluster_and_behind_sentinels() {
    let nodes = cluster().await;
    let mut login = "";
    for node in &nodes {
        login = add_coordinator(node).await;
    }
    let on_a_cluster = connect(&url(&nodes).replace("://", &format!("://{login}")), "").await;
    let master = RedisServer::start();
    add_coordinator(&master).await;
    let sentinel = RedisServer::start_sentinel("main", &master);
    let address = format!("redis-sentinel://{login}127.0.0.1:{}/main", sentinel.port());
    let behind_a_sentinel = connect(&address, "").await;
    for store in [on_a_cluster, behind_a_sentinel] {
        let writes: Vec<Write> = (1..=40).map(|number| write(trace(number), 1)).collect();
        let answers = store.commit(&writes).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, CommitOutcome::Done { .. })), "{answers:?}");
        assert_eq!(version(&store, trace(7)).await, Some(1));
    }
}

#[tokio::test]
async fn f20_a_flushed_script_is_loaded_again_on_a_cluster() {
    let nodes = cluster().await;
    let store = connect(&url(&nodes), "").await;
    for version in 1..=2 {
        for node in &nodes {
            tell(node, &["SCRIPT", "FLUSH"]).await;
        }
        let writes: Vec<Write> = (1..=40).map(|number| write(trace(number), version)).collect();
        let answers = store.commit(&writes).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, CommitOutcome::Done { .. })), "{answers:?}");
    }
}

#[tokio::test]
async fn f16_a_cluster_that_lost_a_node_fails_in_bounded_time_and_is_found_again() {
    let mut nodes = cluster().await;
    let store = connect(&url(&nodes), "").await;
    let writes = |version| (1..=40).map(|number| write(trace(number), version)).collect::<Vec<_>>();
    store.commit(&writes(1)).await.unwrap();
    nodes[1].kill();
    let began = Instant::now();
    assert!(store.commit(&writes(2)).await.is_err());
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    nodes[1].restart();
    for node in &nodes {
        until(node, &["CLUSTER", "INFO"], "cluster_slots_ok:16384").await;
    }
    let ids: Vec<_> = (1..=40).map(trace).collect();
    let began = Instant::now();
    let loaded = loop {
        match store.load(&ids).await {
            Ok(loaded) => break loaded,
            Err(error) => assert!(began.elapsed() < SOON, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let version =
        |loaded: &coordinator::store::LoadedRecord| loaded.record.as_ref().map(|record| record.version);
    assert!(loaded.iter().all(|loaded| matches!(version(loaded), Some(1 | 2))), "{loaded:?}");
    assert!(loaded.iter().any(|loaded| version(loaded) == Some(1)), "the traces of the killed node");
}

/// Proves that the fields of all pieces are counted: the cursor of one server is meaningless on the
/// server that replaces it.
#[tokio::test]
async fn a_large_trace_is_read_whole_while_another_node_takes_over() {
    let nodes = cluster().await;
    let store = connect(&url(&nodes), "").await;
    let fields: Vec<_> = (0..20_000).map(|n| (format!("f{n}"), Some(n.to_string()))).collect();
    commit(&store, Write { fields: fields.clone(), ..write(trace(1), 1) }).await;
    let mut homes = Vec::new();
    for node in &nodes {
        if format!("{:?}", tell(node, &["KEYS", "*"]).await).contains(&trace(1).to_string()) {
            homes.push(node);
        }
    }
    let [home] = homes[..] else { panic!("the key is not on exactly one node") };
    let replica = RedisServer::start_with(&NODE);
    tell(&replica, &["CLUSTER", "MEET", "127.0.0.1", &home.port().to_string()]).await;
    let id: String = redis::from_redis_value(tell(home, &["CLUSTER", "MYID"]).await).unwrap();
    until(&replica, &["CLUSTER", "NODES"], &id).await;
    tell(&replica, &["CLUSTER", "REPLICATE", &id]).await;

    until(&replica, &["INFO", "replication"], "master_link_status:up").await;

    let (taken, is_taken) = tokio::sync::watch::channel(false);
    let taking_over = async {
        tell(&replica, &["CLUSTER", "FAILOVER"]).await;
        until(&replica, &["INFO", "replication"], "role:master").await;
        taken.send_replace(true);
    };
    let loading = async {
        let mut whole = 0;
        while whole < 2 {
            // Errors are allowed during the failover.
            let Ok(loaded) = store.load(&[trace(1)]).await else { continue };
            assert_eq!(loaded[0].record.as_ref().map(|record| record.fields.len()), Some(fields.len()));
            whole += usize::from(*is_taken.borrow());
        }
    };
    let both = async { tokio::join!(taking_over, loading) };
    tokio::time::timeout(SOON, both).await.expect("the store reads again after the change");
}

/// Proves that a new connection asks the sentinels again: the old address never answers.
#[tokio::test]
async fn f16_a_sentinels_new_master_is_found() {
    let mut master = RedisServer::start();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    until(&replica, &["INFO", "replication"], "master_link_status:up").await;
    let sentinel = RedisServer::start_sentinel("main", &master);
    until(&sentinel, &["SENTINEL", "REPLICAS", "main"], &replica.port().to_string()).await;
    let store = connect(&format!("redis-sentinel://127.0.0.1:{}/main", sentinel.port()), "").await;
    assert_eq!(commit(&store, write(trace(1), 1)).await, CommitOutcome::Done { counter: 1 });
    // `WAIT` would only wait for writes of its own connection.
    until(&replica, &["KEYS", "*"], &trace(1).to_string()).await;
    master.kill();
    until(&replica, &["INFO", "replication"], "role:master").await;
    recovered(&store).await;
    assert_eq!(version(&store, trace(1)).await, Some(1));
    assert_eq!(commit(&store, write(trace(1), 2)).await, CommitOutcome::Done { counter: 2 });
}
