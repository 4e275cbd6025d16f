//! Servers whose disk loses power or is full. Such a disk needs root and a loop device; without
//! them these tests print so and check nothing.

use std::time::Duration;

use trellis_tests::{
    processes::{Processes, Shape},
    servers::{Disk, NatsServer, RedisServer},
};

use super::{drive, repeats};

/// The size of the disk in megabytes: room for all that a test stores.
const DISK: u64 = 192;
/// Power cuts until one has certainly lost unsynced writes.
const CUTS: usize = 8;

#[expect(clippy::print_stderr, reason = "the user of the tests sees which check was skipped")]
fn disks() -> bool {
    let allowed = Disk::allowed();
    if !allowed {
        eprintln!("not checked: this process can't mount a disk (it needs root and a loop device)");
    }
    allowed
}

/// proves: with `sync_interval: always`, as in deploy/, no message is acknowledged before it is on
/// disk. Otherwise the server loses submissions that it accepted.
#[tokio::test(flavor = "multi_thread")]
async fn f13_nats_loses_power_under_load() {
    if !disks() {
        return;
    }
    let shape = || Shape { nats: NatsServer::start_on_disk(DISK), ..Shape::new(2, 2) };
    let mut cluster = Processes::start_as(shape).await;
    let mut runs = Vec::new();
    for _ in 0..repeats(2) {
        runs.extend(drive(&cluster, 15).await);
        cluster.nats.cut_power();
        cluster.nats.restart();
        runs.extend(drive(&cluster, 10).await);
    }
    cluster.check(&runs).await;
}

/// proves: a coordinator notices that the store has lost writes, and rebuilds the traces from the
/// event log. Redis syncs once a second here, so that a power cut loses up to a second of commits
/// whose messages were sent.
#[tokio::test(flavor = "multi_thread")]
async fn f17_redis_loses_power_and_the_last_second() {
    if !disks() {
        return;
    }
    let redis = || RedisServer::start_on_disk(&["--appendfsync", "everysec"], DISK);
    let mut cluster = Processes::start_as(|| Shape { redis: redis(), ..Shape::new(2, 2) }).await;
    let mut runs = Vec::new();
    for _ in 0..CUTS {
        runs.extend(drive(&cluster, 15).await);
        cluster.redis.cut_power();
        cluster.redis.restart();
        runs.extend(drive(&cluster, 10).await);
        cluster.check(&runs).await;
        let noticed = |name: &str| cluster.log(name).contains("has lost acknowledged writes");
        if noticed("c1") || noticed("c2") {
            return;
        }
    }
    panic!("no power cut lost a write");
}

/// proves: failing closed, and recovery. NATS refuses messages that it can't store, and Redis exits
/// when it can't write its log. Submissions and commits are retried, and everything acknowledged is
/// stored.
#[tokio::test(flavor = "multi_thread")]
async fn f24_the_disks_of_nats_and_redis_are_full() {
    if !disks() {
        return;
    }
    let shape = || Shape {
        nats: NatsServer::start_on_disk(DISK),
        redis: RedisServer::start_on_disk(&[], DISK),
        ..Shape::new(2, 2)
    };
    let mut cluster = Processes::start_as(shape).await;
    let mut runs = drive(&cluster, 12).await;
    cluster.redis.fill_disk();
    runs.extend(drive(&cluster, 12).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.redis.restart();
    runs.extend(drive(&cluster, 12).await);
    cluster.nats.fill_disk();
    // Nothing can be submitted now, while agents run, settle and end.
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.nats.restart();
    runs.extend(drive(&cluster, 12).await);
    cluster.check(&runs).await;
}
