//! A worker is killed between a check and its call, and between a decision and its journal entry.
//! Nothing is lost, and nothing is done twice.

use serde_json::json;
use trellis_tests::servers::{Prompt, Reply};

use super::decisions;
use crate::agents::{
    agent, call, say,
    survives::{Story, survives},
};

/// Tries a forbidden write, writes a secret, spawns a child, and returns the text that it wrote.
fn author(prompt: &Prompt) -> Reply {
    if prompt.task().starts_with("look up") {
        return say("forty-two");
    }
    match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/plan.md", "content": "FORBIDDEN"})),
        1 => call("fs_write", json!({"path": "outputs/plan.md", "content": "ask sk-SECRET"})),
        2 => call("spawn", json!({"goal": "look up the answer", "agent_id": "helper"})),
        3 => call("fs_read", json!({"path": "outputs/plan.md"})),
        _ => say(&format!("the plan was: {}", prompt.last())),
    }
}

/// Runs the author with a worker that aborts at `point`. `unseen` is the number of answers lost in
/// the crash.
async fn author_survives(point: &str, unseen: u64) {
    let mut author_agent = agent("author");
    author_agent["checks"] = json!([
        {"name": "words", "pattern": {"deny": ["FORBIDDEN"]}, "on": ["before_tool"]},
        {"name": "keys", "then": "redact", "pattern": {"deny": ["sk-[A-Z]+"]}},
        {"name": "task", "then": "redact", "pattern": {"deny": ["write it"]}, "on": ["before_call"]},
    ]);
    let agents = json!([author_agent, agent("helper")]);
    let result = json!("the plan was: ask [redacted:keys]");
    let journal = survives(Story { agents, model: author, result, calls: 6 }, point, unseen).await;
    let told = decisions(&journal);
    let expected = ["task before_call change", "words before_tool deny", "keys after_call change"];
    assert_eq!(told, expected, "{point}: each decision is in the journal once");
    assert!(!serde_json::to_string(&journal).unwrap().contains("SECRET"), "{point}");
}

/// proves: a passed check survives its worker, and its call is made once.
#[tokio::test(flavor = "multi_thread")]
async fn b16_killed_between_a_check_and_its_call() {
    author_survives("checked:1", 0).await;
    author_survives("checked:4", 0).await;
}

/// proves: a decision that is not in the journal is made again by the next attempt; the cost of an
/// answer lost with it is booked.
#[tokio::test(flavor = "multi_thread")]
async fn b16_killed_between_a_decision_and_its_entry() {
    author_survives("decided:1", 0).await;
    author_survives("decided:2", 1).await;
    author_survives("decided:3", 1).await;
}

/// proves: a journaled denial that the model has not received is delivered by the next attempt, and
/// the call is not made.
#[tokio::test(flavor = "multi_thread")]
async fn b16_killed_between_a_denial_and_the_answer_to_the_model() {
    author_survives("written:1", 0).await;
    author_survives("written:2", 0).await;
}
