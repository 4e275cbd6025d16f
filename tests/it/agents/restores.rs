//! Restoring an agent during a model call (W5): a paid call is finished.

use domain::{
    subject::{Action, Subject},
    wire::{HistoryEntry, HistoryStep},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::eventually,
    processes::Processes,
    servers::{Gate, ModelServer, Prompt, Reply},
};

use super::{call, check_bill, cluster, finished, frugal, say, survives::count};

async fn restore(cluster: &Processes, run: domain::TraceId, to: u32) {
    let restore = json!({"child_id": "root", "number": 1, "to": to});
    cluster.tell(Subject::Admin(Action::Restore), &json!({"trace_id": run, "restore": restore})).await;
    eventually("the context is restored", async || {
        cluster.client.trace(run).await.root().is_some_and(|root| root.restores.len() == 1)
    })
    .await;
}

/// The hold of the call in flight is nearly the whole budget: booking all of it would end the run.
#[tokio::test(flavor = "multi_thread")]
async fn w5_a_restore_during_a_model_call_lets_it_finish_and_books_its_cost() {
    let gate = Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |prompt: &Prompt| match prompt.turn() {
        0 => call("fs.list", json!({})),
        _ => Reply { gate: Some(at.clone()), ..say("done") },
    })
    .await;
    let cluster = cluster(2, &model, json!([frugal("author")])).await;
    let task = json!({"goal": "write it down", "agent_id": "author", "max_cost_usd": 0.008});
    let run = cluster.begin(task).await;
    gate.reached().await;
    restore(&cluster, run, 1).await;
    gate.open();
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(
        (&outcome["status"], &outcome["result"]),
        (&json!("completed"), &json!("done")),
        "{outcome:#}"
    );
    check_bill(&model, &[&trace], 0);
    let root = trace.root().unwrap();
    assert!(root.budget.estimated.is_zero(), "{:?}", root.budget);
    assert_eq!((root.attempt(), root.retries()), (2, 0), "one more attempt, but no retry");
    let journal = cluster.client.journal(run, &"root".parse().unwrap()).await;
    let answers = count(&journal, |step| matches!(step, HistoryStep::Model(_)));
    assert_eq!(answers, model.bill().len(), "the journal lacks a paid answer: {}", shown(&journal));
}

fn shown(journal: &[HistoryEntry]) -> Value {
    json!(journal)
}
