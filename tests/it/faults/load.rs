//! Many contexts, deep trees and many concurrent holds, and messages larger than the server
//! accepts.

use domain::{
    Usd,
    subject::{Filter, Subject},
    wire::{EndStatus, SubmitAnswer},
};
use serde_json::json;
use trace::ContextNode;
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, Shape, fresh_trace},
    servers::NatsServer,
};

use super::size;

/// proves: queues are long enough (`max_ack_pending`), and limits hold exactly.
#[tokio::test(flavor = "multi_thread")]
async fn f29_many_pending_a_wide_fan_out_and_the_deepest_tree() {
    let limits = json!({"limits": {"max_children": 1_000, "max_contexts": 10_000, "timeout_ms": 600_000}});
    let cluster = Processes::start_as(|| Shape { slots: 64, settings: limits, ..Shape::new(2, 2) }).await;
    let mut runs = Vec::new();
    let pending = size("TRELLIS_PENDING", 1_000);
    let items: Vec<usize> = (0..size("TRELLIS_FAN_OUT", 1_000)).collect();
    let wide = json!({
        "inputs": {"items": items},
        "steps": [{"id": "all", "agent_id": "echo", "task_description": "one", "for_each": "items", "output_to": "out"}],
    });
    let wide = cluster.begin(wide).await;
    for number in 0..pending {
        runs.push(cluster.begin(json!({"goal": format!("goal {number}")})).await);
    }
    // L: the root has depth 0, three levels are below it, and a fourth is refused.
    let deep = |depth| json!({"goal": "deep", "agent_id": "tree", "inputs": {"depth": depth, "width": 1}});
    let deepest = cluster.begin(deep(3)).await;
    let too_deep = cluster.begin(deep(4)).await;
    runs.extend([wide, deepest, too_deep]);
    cluster.check(&runs).await;
    for run in [wide, deepest] {
        assert_eq!(cluster.outcome(run).await.context.status, EndStatus::Completed);
    }
    assert_eq!(cluster.client.trace(wide).await.contexts().len(), items.len() + 1);
    let depths = cluster.client.trace(too_deep).await;
    assert_eq!(depths.contexts().iter().map(|node| node.identity.depth).max(), Some(3));
}

/// proves: a hold is taken on all ancestors in one step (B3): the first gets the money, and no
/// money is held twice.
#[tokio::test(flavor = "multi_thread")]
async fn f31_two_hundred_children_and_a_budget_for_ten() {
    let limits = json!({"limits": {"max_children": 200}});
    let cluster = Processes::start_as(|| Shape { slots: 32, settings: limits, ..Shape::new(2, 2) }).await;
    let grow = json!({
        "goal": "grow", "agent_id": "tree", "max_cost_usd": 0.10,
        "inputs": {"depth": 1, "width": 200, "leaf": "spend", "usd": 0.01},
    });
    let run = cluster.begin(grow).await;
    cluster.check(&[run]).await;
    let trace = cluster.client.trace(run).await;
    let paid = |node: &&ContextNode| node.budget.own.cost_usd == Usd::from_cents(1);
    assert_eq!(trace.contexts().iter().filter(paid).count(), 10, "{trace:#?}");
    assert_eq!(trace.root().unwrap().budget.spent.cost_usd, Usd::from_cents(10));
}

/// proves: payloads above the server's `max_payload` are sent by reference: submissions, values,
/// the work of a parent with large children, results. A payload above the largest readable message
/// is a dead letter, or refused, and the queue continues.
#[tokio::test(flavor = "multi_thread")]
async fn f25_messages_larger_than_the_server_takes() {
    let nats = NatsServer::start_with("", "max_payload: 64KB");
    let cluster = Processes::start_as(|| Shape { nats, ..Shape::new(1, 2) }).await;
    let large = "x".repeat(300_000);
    let goals = [
        json!({"goal": "x".repeat(60_000), "inputs": {"value": large}}),
        json!({"goal": "carry", "agent_id": "share", "inputs": {"value": large}}),
        json!({
            "inputs": {"items": [1, 2, 3, 4], "value": large}, "mode": "parallel",
            "steps": [
                {"id": "all", "agent_id": "share", "task_description": "carry", "for_each": "items",
                    "input_from": ["value"], "output_to": "shared"},
                {"id": "sum", "agent_id": "echo", "task_description": "x".repeat(60_000), "input_from": ["shared"]},
            ],
        }),
    ];
    let mut runs = Vec::new();
    for goal in goals {
        runs.push(cluster.begin(goal).await);
    }
    let too_large = json!({"goal": "x", "trace_id": fresh_trace(), "inputs": {"value": "x".repeat(9 << 20)}});
    cluster.tell(Subject::Spawn, &too_large).await;
    let answer = cluster.client.submit(too_large).await;
    assert!(matches!(answer, SubmitAnswer::Refused(_)), "{answer:?}");
    runs.push(cluster.begin(json!({"goal": "the next"})).await);
    for run in &runs {
        let outcome = cluster.outcome(*run).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    }
    cluster.check(&runs).await;
    eventually("two dead letters", async || {
        cluster.client.bus.read(&Filter::Dead).await.is_ok_and(|letters| letters.len() == 2)
    })
    .await;
}
