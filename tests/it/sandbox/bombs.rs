//! Programs that use more than their limits. None is dangerous without the sandbox: each stops by itself a little above
//! the limit.

use serde_json::json;
use shared::wire::EndStatus;

use super::{apply, cluster, error, result};

#[tokio::test(flavor = "multi_thread")]
async fn i4_f04_bombs_are_put_out_and_the_failure_says_which() {
    let cluster = cluster(&[&[]]);
    let agent = |id: &str, script: &str| {
        json!({"agent_id": id, "kind": "command", "command": ["sh", "-c", script],
            "resources": {"processes": 20, "cpu_seconds": 1}})
    };
    apply(
        &cluster.client,
        vec![
            agent("forks", "for i in $(seq 60); do sleep 5 & done; wait; echo survived"),
            agent(
                "disk",
                "for i in 1 2 3 4 5; do head -c 60000000 /dev/zero > $i; done; sleep 5; echo survived",
            ),
            agent("processor", "while :; do :; done"),
            agent("quiet", "sleep 0; echo survived"),
        ],
    )
    .await;
    let run = async |id: &str| cluster.client.run(json!({"goal": "go", "agent_id": id})).await;
    for (id, says) in [("forks", "more than the 20 allowed"), ("disk", "its workspace holds")] {
        let outcome = run(id).await;
        assert_eq!(outcome.context.status, EndStatus::Failed, "{id}");
        assert!(error(&outcome).contains(says), "{id}: {}", error(&outcome));
    }
    let outcome = run("processor").await;
    assert!(error(&outcome).contains("was ended by signal"), "{}", error(&outcome));
    assert_eq!(result(&run("quiet").await), "survived");
    cluster.stop().await;
}
