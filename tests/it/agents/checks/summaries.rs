//! Checks and the summaries of full windows (W7): a summary is not an answer, and its request is
//! not the agent's prompt.

use std::sync::atomic::{AtomicUsize, Ordering};

use domain::{
    subject::Filter,
    wire::{CompactionKind, EndStatus, HistoryEntry},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, SOON},
    processes::fresh_trace,
    servers::{ModelServer, Prompt},
};

use super::decisions;
use crate::agents::{
    compaction::{compacted, is_summary, long_call, profile, summaries},
    foreign::embedded,
    say,
};

const FINAL: &str = "{\"found\": \"all\"}";
const LAST: usize = 12;

/// A model that writes long files until its window is full, then answers with JSON. Its summaries
/// are plain text.
async fn writing() -> ModelServer {
    let made = AtomicUsize::new(0);
    ModelServer::start(move |prompt: &Prompt| {
        if is_summary(&prompt.body) {
            return say("SUMMARY: the word is tulip");
        }
        match made.fetch_add(1, Ordering::Relaxed) {
            n if n < LAST => long_call(n + 1),
            _ => say(FINAL),
        }
    })
    .await
}

async fn run(cluster: &Cluster, more: Value) -> (EndStatus, Vec<HistoryEntry>) {
    let mut task = json!({"goal": "loop for long", "agent_id": "long"});
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let outcome = cluster.client.run(task).await;
    let journal = cluster.client.journal(outcome.trace_id, &outcome.context.child_id).await;
    (outcome.context.status, journal)
}

/// proves: checks of the answer's form do not apply to a summary, and a summary is not shown as an
/// answer.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_summary_is_neither_judged_nor_shown_as_an_answer() {
    let model = writing().await;
    let checks = json!([
        {"name": "form", "then": "halt", "on": ["after_call"], "schema": {"type": "object"}},
        {"name": "braces", "then": "halt", "on": ["after_call"], "pattern": {"allow": ["^\\{"]}},
        {"name": "short", "then": "halt", "on": ["before_call"], "size": {"max_bytes": 3000}},
    ]);
    let cluster = embedded(model.settings(), json!([profile(json!({"checks": checks}))])).await;
    let trace_id = fresh_trace();
    let mut heard = cluster.client.bus.subscribe(&Filter::StreamsOf(trace_id)).await.unwrap();
    let (status, journal) = run(&cluster, json!({"trace_id": trace_id})).await;
    assert_eq!(status, EndStatus::Completed, "{:?}", decisions(&journal));
    assert!(!summaries(&journal).is_empty());
    let mut shown = String::new();
    while !shown.contains("found") {
        let piece = tokio::time::timeout(SOON, heard.next()).await.unwrap().unwrap();
        shown.push_str(&String::from_utf8_lossy(&piece.payload));
    }
    assert!(!shown.contains("tulip"), "{shown}");
    cluster.stop().await;
}

/// proves: a denied summary request drops the summary, and the agent continues.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_denied_summary_is_dropped_and_the_agent_goes_on() {
    let model = writing().await;
    let checks = json!([{"name": "none", "on": ["before_call"], "pattern": {"deny": ["^You condense"]}}]);
    let cluster = embedded(model.settings(), json!([profile(json!({"checks": checks}))])).await;
    let (status, journal) = run(&cluster, json!({})).await;
    assert_eq!(status, EndStatus::Completed, "{:?}", decisions(&journal));
    assert!(compacted(&journal, CompactionKind::Dropped) > 0 && summaries(&journal).is_empty());
    assert!(decisions(&journal).iter().all(|decision| decision == "none before_call deny"));
    assert_eq!(model.bill().len(), LAST + 1, "no summary was made");
    cluster.stop().await;
}

/// proves: the parts of a summary request are redacted before they are cut.
#[tokio::test(flavor = "multi_thread")]
async fn b16_no_part_of_a_secret_is_sent_for_a_summary() {
    let made = AtomicUsize::new(0);
    // The secret crosses the place where the longest part of a transcript is cut.
    let model = ModelServer::start(move |prompt: &Prompt| {
        if is_summary(&prompt.body) {
            return say("SUMMARY: the word is tulip");
        }
        match made.fetch_add(1, Ordering::Relaxed) {
            n if n < LAST => {
                let content = format!("{} sk-{} end", "word ".repeat(700), "SECRET".repeat(200));
                crate::agents::call("fs_write", json!({"path": format!("outputs/{n}"), "content": content}))
            }
            _ => say(FINAL),
        }
    })
    .await;
    let checks = json!([
        {"name": "keys", "then": "redact", "on": ["before_call"], "pattern": {"deny": ["sk-[A-Z]{1200}"]}},
    ]);
    let agent = profile(json!({"checks": checks, "window_tokens": 6000}));
    let cluster = embedded(model.settings(), json!([agent])).await;
    let (status, journal) = run(&cluster, json!({})).await;
    assert_eq!(status, EndStatus::Completed, "{:?}", decisions(&journal));
    let requests: Vec<Value> = model.prompts().into_iter().filter(is_summary).collect();
    assert!(!requests.is_empty());
    for request in requests {
        assert!(!request.to_string().contains("SECRET"), "{request:#}");
    }
    cluster.stop().await;
}

/// proves: without a cheaper model of its own, the agent's summary is written by the model that the
/// ladder selected.
#[tokio::test(flavor = "multi_thread")]
async fn b21_a_summary_is_written_by_the_model_of_the_ladder() {
    let model = writing().await;
    let agent = profile(json!({"on_budget": [{"at": 0.000001, "model": "test/cheap"}]}));
    let cluster = embedded(model.settings(), json!([agent])).await;
    let (status, journal) = run(&cluster, json!({"max_cost_usd": 1})).await;
    assert_eq!(status, EndStatus::Completed);
    let of_summaries: Vec<&str> = journal
        .iter()
        .filter_map(|entry| entry.step.as_model().filter(|step| step.summary_of.is_some()))
        .map(|step| step.model.as_str())
        .collect();
    assert!(
        !of_summaries.is_empty() && of_summaries.iter().all(|model| *model == "test/cheap"),
        "{of_summaries:?}"
    );
    cluster.stop().await;
}
