//! Reruns in a cluster (G15): the earlier run is read from the store or from its log, and kept as
//! long as a rerun needs it.

use std::time::Duration;

use domain::{
    Usd,
    subject::Subject,
    wire::{EndStatus, Outcome, QueryAnswer, SubmitAnswer},
};
use serde_json::{Value, json};
use trellis_tests::cluster::{Client, eventually};

use super::ground::{Ground, config, query};

const AT_ONCE: Duration = Duration::from_millis(1);

async fn apply(client: &Client, last: &str) {
    client.run(json!({"goal": "is anybody there?"})).await;
    let agents = json!([
        {"agent_id": "last", "kind": "builtin", "builtin": last},
    ]);
    let applied = query(client, json!({"apply_agents": {"agents": agents}})).await;
    assert!(matches!(applied, QueryAnswer::Applied { .. }), "{applied:?}");
}

fn graph() -> Value {
    json!({"mode": "sequential", "child_id": "story", "limits": {"max_result_bytes": 500}, "steps": [
        {"id": "pay", "agent_id": "spend", "task_description": "pay", "output_to": "paid"},
        {"id": "tell", "agent_id": "echo", "task_description": "a long story ".repeat(100), "output_to": "story"},
        {"id": "end", "agent_id": "last", "task_description": "end it", "input_from": ["paid"], "output_to": "end"},
    ]})
}

fn taken(outcome: &Outcome) -> Vec<(String, usize)> {
    let steps = outcome.graph.as_ref().unwrap().steps.iter();
    steps.map(|step| (step.id.to_string(), step.taken_from.len())).collect()
}

async fn g15_a_rerun_pays_only_for_what_it_runs(ground: Ground) {
    let cluster = ground.start(config());
    let client = &cluster.client;
    apply(client, "fail").await;
    let earlier = client.run(graph()).await;
    assert_eq!(earlier.context.status, EndStatus::Failed, "{earlier:?}");
    assert!(earlier.context.budget.spent.cost_usd > Usd::default());
    apply(client, "echo").await;
    let again = client.run(json!({"rerun": {"trace_id": earlier.trace_id}, "child_id": "story"})).await;
    assert_eq!(again.context.status, EndStatus::Completed, "{again:?}");
    assert_eq!(again.context.budget.spent.cost_usd, Usd::default());
    assert_eq!(taken(&again), [("pay".into(), 1), ("tell".into(), 1), ("end".into(), 0)]);
    assert_eq!(again.outputs["story"], earlier.outputs["story"]);

    // The large result is the earlier run's object.
    let known = query(client, json!({"branches": {"trace_id": earlier.trace_id}})).await;
    let QueryAnswer::Branches { branches } = known else { panic!("{known:?}") };
    assert_eq!(branches.len(), 1, "{branches:?}");
    assert!(branches[0].taken && branches[0].trace_id == again.trace_id, "{branches:?}");
    let unknown = client.submit(json!({"rerun": {"trace_id": "f".repeat(32)}})).await;
    assert!(matches!(unknown, SubmitAnswer::Refused(refusal) if refusal.code == "malformed"));
    let other = query(client, json!({"branches": {"trace_id": again.trace_id}})).await;
    assert_eq!(other, QueryAnswer::Branches { branches: Vec::new() });
    cluster.stop().await;

    // The end of the retention: first the rerun is removed, then the run that owns the object.
    let cluster = ground.start(coordinator::Config { retention: AT_ONCE, ..config() });
    eventually("both runs are removed", async || {
        let (new, old) = (ground.has(again.trace_id).await, ground.has(earlier.trace_id).await);
        assert!(old || !new, "the rerun has lost its object");
        !old
    })
    .await;
    cluster.stop().await;

    // The log outlives the object, so the step with the large result runs again.
    let cluster = ground.start(config());
    let late = cluster.client.run(json!({"rerun": {"trace_id": earlier.trace_id}, "child_id": "late"})).await;
    assert_eq!(taken(&late), [("pay".into(), 1), ("tell".into(), 0), ("end".into(), 0)]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_in_memory() {
    g15_a_rerun_pays_only_for_what_it_runs(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_on_servers() {
    g15_a_rerun_pays_only_for_what_it_runs(Ground::on_servers().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_a_published_rerun_is_one_run() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let client = &cluster.client;
    apply(client, "fail").await;
    let earlier = client.run(graph()).await;
    apply(client, "echo").await;
    let trace_id = "a".repeat(32);
    let message = json!({"rerun": {"trace_id": earlier.trace_id}, "trace_id": trace_id, "child_id": "story"});
    client.publish(Subject::Graph, &message).await;
    client.publish(Subject::Graph, &message).await;
    let outcome = client.outcome(trace_id.parse().unwrap(), &"story".parse().unwrap()).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    // The same message again, now by request: it is the same run.
    let again = client.accepted(message).await;
    assert_eq!(again.trace_id.to_string(), trace_id);
    assert!(client.bus.read(&domain::subject::Filter::Dead).await.unwrap().is_empty());
    cluster.stop().await;
}
