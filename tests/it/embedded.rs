//! The whole of it in one process, on the memory bus and store.

use serde_json::json;
use shared::wire::{EndStatus, Payload};
use trellis_tests::cluster::Cluster;

#[tokio::test]
async fn a_bare_goal_is_answered_with_itself() {
    let cluster = Cluster::embedded();
    let outcome = cluster.client.run(json!({"goal": "hello"})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    assert_eq!(outcome.context.result, Some(Payload::Inline("hello".into())));
    cluster.stop().await;
}
