//! A NATS server that is stopped, killed or wiped, and started again.

use std::time::Duration;

use trellis_tests::processes::{Processes, Shape};

use super::{drive, repeats, size};

/// proves: clients reconnect; messages that were committed and could not be sent are sent by the outbox.
#[tokio::test(flavor = "multi_thread")]
async fn f11_nats_restarted_under_load() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for _ in 0..repeats(1) {
        runs.extend(drive(&cluster, 30).await);
        cluster.nats.stop();
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.nats.restart();
        runs.extend(drive(&cluster, 30).await);
    }
    cluster.check(&runs).await;
}

/// proves: a redelivery of finished work is answered from the trace's state (the acks of the last 100 ms are lost with
/// the server), and an outbox that could not be sent is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn f12_nats_killed_under_load() {
    let mut cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    for round in 0..size("TRELLIS_NATS_KILLS", 3) {
        let driven = drive(&cluster, 15 + round % 7).await;
        cluster.nats.kill();
        runs.extend(driven);
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.nats.restart();
        runs.extend(drive(&cluster, 10).await);
    }
    cluster.check(&runs).await;
}

/// proves: readers of a queue create its consumer again, and attempts are counted by the coordinator: the server's count
/// of deliveries starts again.
#[tokio::test(flavor = "multi_thread")]
async fn f15_consumers_deleted_under_load() {
    let cluster = Processes::start_as(|| Shape { slots: 4, ..Shape::new(2, 2) }).await;
    let raw = async_nats::jetstream::new(async_nats::connect(cluster.nats.url()).await.unwrap());
    let mut runs = Vec::new();
    for _ in 0..repeats(2) {
        runs.extend(drive(&cluster, 20).await);
        let streams = ["AGENT_INTAKE", "AGENT_EXECUTE", "AGENT_REPORT"];
        for name in streams {
            let stream = raw.get_stream(name).await.unwrap();
            let consumers: Vec<String> = {
                use futures_util::TryStreamExt;
                stream.consumer_names().try_collect().await.unwrap()
            };
            for consumer in consumers {
                stream.delete_consumer(&consumer).await.unwrap();
            }
        }
        runs.extend(drive(&cluster, 20).await);
    }
    cluster.check(&runs).await;
}
