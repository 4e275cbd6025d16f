//! A payload that is too large for a message is first stored as an object. A slow upload delays no
//! other run.

use std::collections::BTreeSet;

use async_nats::jetstream;
use bus::{Bus, Connect, Nats};
use domain::{TraceId, subject::Subject, wire::EndStatus};
use futures_util::StreamExt;
use serde_json::json;
use trellis_tests::{
    cluster::{Cluster, name},
    processes::fresh_trace,
    servers::{NatsServer, RedisServer},
};

use super::ground;

const BUCKET: &str = "OBJ_AGENT_CORE";

/// A graph whose message fits, but not the message of its first events, which contains its inputs
/// twice.
fn large(trace_id: TraceId) -> serde_json::Value {
    let steps = json!([{"agent_id": "echo", "task_description": "t"}]);
    json!({"trace_id": trace_id, "child_id": "root", "steps": steps, "inputs": {"text": "x".repeat(600_000)}})
}

/// The object store is slow: an upload is acknowledged only after another run was accepted.
///
/// proves: uploads are sent beside the turns. Within a turn, the acknowledgement would come too
/// late, and the large message would be uploaded a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upload_delays_no_other_submission() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let to = Connect::new(nats.url(), Default::default(), "test");
    let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
    let config = coordinator::Config { shards: 1, ..ground::config() };
    let partitions = config.topology.partitions;
    let store =
        coordinator::store::Redis::connect(&redis.url(), Default::default(), partitions).await.unwrap();
    let store = coordinator::store::Store::Redis(store);
    let cluster = Cluster::start(bus, store, vec![config], vec![worker::Config::new(name("worker"))]);
    let (client, root) = (cluster.client.clone(), "root".parse().unwrap());
    client.run(json!({"goal": "is anybody there?"})).await;
    let first = fresh_trace();
    client.publish(Subject::Graph, &large(first)).await;
    assert_eq!(client.outcome(first, &root).await.context.status, EndStatus::Completed);
    assert_eq!(
        client.bus.objects("core/").await.unwrap().len(),
        1,
        "the first events are stored as an object"
    );

    // From now on this test is the object store.
    let raw = async_nats::connect(nats.url()).await.unwrap();
    jetstream::new(raw.clone()).delete_stream(BUCKET).await.unwrap();
    let mut stored = raw.subscribe("$O.AGENT_CORE.>").await.unwrap();
    // When our own message arrives, the server has the subscription.
    raw.publish("$O.AGENT_CORE.begin", "".into()).await.unwrap();
    stored.next().await.unwrap();
    let second = fresh_trace();
    client.publish(Subject::Graph, &large(second)).await;
    let mut uploads = BTreeSet::new();
    let chunk = stored.next().await.unwrap();
    client.accepted(json!({"goal": "I do not wait"})).await;
    let acknowledge = async |message: async_nats::Message| {
        let answer = json!({"stream": BUCKET, "seq": 1}).to_string();
        if let Some(to) = message.reply {
            raw.publish(to, answer.into()).await.unwrap();
        }
    };
    uploads.insert(chunk.subject.to_string());
    acknowledge(chunk).await;
    let mut ended = Box::pin(client.outcome(second, &root));
    let outcome = loop {
        tokio::select! {
            outcome = &mut ended => break outcome,
            Some(message) = stored.next() => {
                if message.subject.contains(".C.") {
                    uploads.insert(message.subject.to_string());
                }
                acknowledge(message).await;
            }
        }
    };
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(uploads.len(), 1, "{uploads:?}");
    drop(ended);
    cluster.stop().await;
}
