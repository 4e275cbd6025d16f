//! Messages to agents, and amends of graphs, while coordinators are killed.

use domain::{
    span::Headers,
    wire::{EndStatus, QueryAnswer},
};
use serde_json::json;
use trellis_tests::{
    processes::{LEASE, Processes},
    servers::{Gate, ModelServer, Reply},
    subjects::query_of,
};

use crate::agents::{self, steering};

/// proves: a message is identified by the id of its sender. The coordinator is killed at every
/// point between receiving and answering it. The sender gets no answer and sends it again: it is
/// one message, and the agent sees it once.
async fn killed_at(point: &str) {
    let gate = Gate::default();
    let held = gate.clone();
    let model = ModelServer::start(move |prompt| Reply {
        gate: (prompt.turn() == 0).then(|| held.clone()),
        calls: if prompt.turn() == 0 { vec![("fs_list".into(), json!({}))] } else { Vec::new() },
        ..agents::say("done")
    })
    .await;
    let profile = json!({"agent_id": "author", "kind": "llm", "model": "test/model", "tools": ["fs.list"]});
    let mut cluster: Processes = agents::cluster(1, &model, json!([profile])).await;
    let run = cluster.begin(json!({"goal": "write", "agent_id": "author"})).await;
    gate.reached().await;
    cluster.kill("c1");
    cluster.run_with("c1", &["--crash-at", point]);
    // Ticks of the worker may come first and crash the coordinator too; then this request gets no
    // answer.
    let query = json!({"tell": {"trace_id": run, "told": {"id": "one", "text": "first."}}});
    let payload = serde_json::to_vec(&query).unwrap();
    while cluster.is_running("c1") {
        let (headers, payload) = (Headers::new(), payload.clone().into());
        cluster.client.bus.request(&query_of(&payload), &headers, payload, LEASE).await.ok();
    }
    cluster.gone("c1").await;
    cluster.run("c1");
    cluster.all_there().await;
    assert_eq!(steering::number(&steering::tell(&cluster, run, "one", "first.").await), 1, "{point}");
    gate.open();
    let (outcome, trace) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["status"], json!(EndStatus::Completed), "{point}: {outcome:#}");
    assert_eq!(trace.root().unwrap().told.len(), 1, "{point}: one message");
    let journal = cluster.client.journal(run, &"root".parse().unwrap()).await;
    assert_eq!(steering::told(&journal), [Some(1)], "{point}: seen once");
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_a_coordinator_killed_before_its_commit_of_a_message() {
    killed_at("decided:1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_a_coordinator_killed_between_commit_and_answer_of_a_message() {
    killed_at("committed:1").await;
    killed_at("sent:1").await;
}

/// proves: an amend is identified by the id of its sender. The coordinator is killed between
/// receiving and answering it. The sender gets no answer and sends it again: it is one amend, and
/// the graph runs its steps.
async fn amend_killed_at(point: &str) {
    let gate = Gate::default();
    let held = gate.clone();
    let model = ModelServer::start(move |prompt| Reply {
        gate: prompt.task().contains("do first").then(|| held.clone()),
        ..agents::say("done")
    })
    .await;
    let profile = json!({"agent_id": "author", "kind": "llm", "model": "test/model", "tools": []});
    let mut cluster: Processes = agents::cluster(1, &model, json!([profile])).await;
    let step =
        |name: &str| json!({"id": name, "agent_id": "author", "task_description": format!("do {name}")});
    let run = cluster.begin(json!({"steps": [step("first"), step("second")]})).await;
    gate.reached().await;
    cluster.kill("c1");
    cluster.run_with("c1", &["--crash-at", point]);
    let graph = json!({"steps": [step("first"), step("third"), step("fourth")]});
    let query = json!({"amend": {"trace_id": run, "amend": {"id": "one", "revision": 0, "graph": graph}}});
    let payload = serde_json::to_vec(&query).unwrap();
    while cluster.is_running("c1") {
        let (headers, payload) = (Headers::new(), payload.clone().into());
        cluster.client.bus.request(&query_of(&payload), &headers, payload, LEASE).await.ok();
    }
    cluster.gone("c1").await;
    cluster.run("c1");
    cluster.all_there().await;
    let answer = cluster.client.query(serde_json::from_slice(&payload).unwrap()).await;
    let QueryAnswer::Amended { revision, .. } = answer else { panic!("{point}: {answer:?}") };
    assert_eq!(revision, 1, "{point}: one amend");
    gate.open();
    let (outcome, _) = agents::finished(&cluster, run).await;
    let steps = outcome["graph"]["succeeded"].clone();
    assert_eq!(steps, json!(["first", "third", "fourth"]), "{point}: {outcome:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_a_coordinator_killed_before_its_commit_of_an_amend() {
    amend_killed_at("decided:1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_a_coordinator_killed_between_commit_and_answer_of_an_amend() {
    amend_killed_at("committed:1").await;
    amend_killed_at("sent:1").await;
}
