//! A worker is killed between a check and its call, and between a decision and its entry in the journal: nothing is lost,
//! nothing is done twice.

use serde_json::json;
use trellis_tests::servers::{Prompt, Reply};

use super::decisions;
use crate::agents::{
    agent, call, say,
    survives::{Story, survives},
};

/// Tries a forbidden write, writes a secret, spawns a child, and returns what it wrote.
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

/// Runs it with a worker that aborts at `point`. `unseen` answers are lost with it.
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

/// proves: a check that has passed is not lost with its worker, and its call is made once.
#[tokio::test(flavor = "multi_thread")]
async fn b16_killed_between_a_check_and_its_call() {
    author_survives("checked:1", 0).await;
    author_survives("checked:4", 0).await;
}

/// proves: a decision that was not written down is made again by the next attempt; of an answer that was lost with it the
/// cost is booked.
#[tokio::test(flavor = "multi_thread")]
async fn b16_killed_between_a_decision_and_its_entry() {
    author_survives("decided:1", 0).await;
    author_survives("decided:2", 1).await;
    author_survives("decided:3", 1).await;
}

/// proves: a decision that was written down and not told is told by the next attempt, and the call is not made.
#[tokio::test(flavor = "multi_thread")]
async fn b16_killed_between_a_denial_and_the_answer_to_the_model() {
    author_survives("written:1", 0).await;
    author_survives("written:2", 0).await;
}
