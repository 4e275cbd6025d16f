//! A misbehaving model provider, and agents that want more than their limits.

use std::{collections::BTreeMap, time::Duration};

use domain::{Usd, wire::EndStatus};
use serde_json::{Value, json};
use trellis_tests::{
    checker,
    processes::{Processes, Shape},
    servers::{Gate, ModelServer, Prompt, Reply},
};

const CAP: Usd = Usd::from_cents(50);

async fn cluster(model: &ModelServer, settings: Value, agents: Value) -> Processes {
    let worker = model.settings();
    let cluster = Processes::start_as(|| Shape { worker, settings, ..Shape::new(1, 2) }).await;
    cluster.apply(agents).await;
    cluster
}

fn say(text: &str) -> Reply {
    Reply { text: text.into(), input_tokens: 100, output_tokens: 20, ..Reply::default() }
}

/// proves: a call with an unknown end costs its hold (B10), a cost above the hold is booked and
/// shown (B11), refused calls cost nothing and are retried within the retries, and a call ends with
/// its agent's deadline. The server's bill confirms it (b5).
#[tokio::test(flavor = "multi_thread")]
async fn f32_a_provider_that_reports_nothing_takes_more_refuses_hangs_and_breaks_off() {
    let gate = Gate::default();
    let hangs = gate.clone();
    let calls = std::sync::Mutex::new(BTreeMap::<String, u32>::new());
    let model = ModelServer::start(move |prompt: &Prompt| {
        let before = {
            let mut calls = calls.lock().unwrap();
            let count = calls.entry(prompt.task()).or_default();
            *count += 1;
            *count - 1
        };
        let refuse = Reply { status: Some(429), ..Reply::default() };
        match (prompt.task().as_str(), before) {
            ("silent", _) => Reply { no_usage: true, ..say("who knows what it cost") },
            ("greedy", _) => {
                Reply { input_tokens: 40_000, output_tokens: prompt.max_tokens(), ..say("a lot") }
            }
            ("storm", _) | ("squall", 0..3) => refuse,
            ("hangs", _) => Reply { gate: Some(hangs.clone()), ..say("hours later") },
            ("half", 0) => Reply { breaks_off: true, ..say("this breaks off in the middle") },
            _ => say("whole"),
        }
    })
    .await;
    let agent = json!({"agent_id": "one", "kind": "llm", "model": "test/model", "tools": []});
    let cluster = cluster(&model, json!({}), json!([agent])).await;
    let mut runs = BTreeMap::new();
    for task in ["silent", "greedy", "storm", "squall", "hangs", "half", "plain"] {
        let mut goal = json!({"goal": task, "agent_id": "one", "max_cost_usd": CAP});
        if task == "hangs" {
            goal["timeout_ms"] = json!(4_000);
        }
        runs.insert(task, cluster.begin(goal).await);
    }
    let all: Vec<_> = runs.values().copied().collect();
    cluster.check(&all).await;
    gate.open();
    let ended = async |task: &str| cluster.outcome(runs[task]).await.context;
    for (task, retries) in [("silent", 0), ("greedy", 0), ("squall", 3), ("half", 1), ("plain", 0)] {
        let context = ended(task).await;
        assert_eq!(
            (context.status, context.retries),
            (EndStatus::Completed, retries),
            "{task}: {context:#?}"
        );
    }
    assert_eq!(ended("hangs").await.status, EndStatus::TimedOut);
    let storm = ended("storm").await;
    assert_eq!(storm.status, EndStatus::Failed);
    assert!(storm.budget.spent.is_zero(), "refused calls are free: {storm:#?}");
    let bill = model.bill();
    for (task, run) in &runs {
        let budget = ended(task).await.budget;
        let billed = bill.iter().filter(|line| line.task == *task).map(|line| line.nanos).sum();
        let wrong =
            checker::against_bill(&cluster.client.trace(*run).await, Usd::from_nanos(billed), CAP, Usd::ZERO);
        assert!(wrong.is_empty(), "{task}: {}", wrong.join("\n"));
        let estimated = matches!(*task, "silent" | "hangs" | "half");
        assert_eq!(!budget.estimated.is_zero(), estimated, "{task}: {budget:?}");
    }
}

/// proves: limits on contexts, children and depth hold in one trace regardless of its agents' calls
/// (t7), and each agent ends: every model answer requests twelve more agents.
#[tokio::test(flavor = "multi_thread")]
async fn f30_an_agent_that_spawns_without_end() {
    let model = ModelServer::start(|prompt: &Prompt| {
        let spawn = |n: u32| {
            let goal = format!("{}.{}.{n}", prompt.task(), prompt.turn());
            ("spawn".to_owned(), json!({"goal": goal, "agent_id": "bomb"}))
        };
        Reply { calls: (0..12).map(spawn).collect(), takes: Duration::from_millis(20), ..say("more") }
    })
    .await;
    let (contexts, children, depth) = (60, 8, 3);
    let limits =
        json!({"max_contexts": contexts, "max_children": children, "max_depth": depth, "max_steps": 30});
    let bomb = json!({"agent_id": "bomb", "kind": "llm", "model": "test/model", "tools": ["spawn"]});
    let cluster = cluster(&model, json!({"limits": limits}), json!([bomb])).await;
    let run = cluster.begin(json!({"goal": "b", "agent_id": "bomb", "max_cost_usd": 2})).await;
    cluster.check(&[run]).await;
    let trace = cluster.client.trace(run).await;
    assert_eq!(trace.contexts().len(), contexts, "the number of contexts that the limit allows");
    assert_eq!(trace.contexts().iter().map(|node| node.identity.depth).max(), Some(depth));
    let billed = Usd::from_nanos(model.billed_nanos());
    let wrong = checker::against_bill(&trace, billed, Usd::from_cents(200), Usd::ZERO);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
