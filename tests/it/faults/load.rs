//! Many contexts, deep trees and many holds at once.

use coordinator::trace::ContextNode;
use serde_json::json;
use shared::{Usd, wire::EndStatus};
use trellis_tests::processes::{Processes, Shape};

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
    assert_eq!(depths.contexts().iter().map(|node| node.depth).max(), Some(3));
}

/// proves: a hold is taken on all ancestors in one step (B3): the first gets the money, and no money is held twice.
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
