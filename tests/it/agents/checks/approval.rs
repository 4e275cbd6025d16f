//! The approval of humans.

use domain::{subject::Subject, wire::EndStatus};
use serde_json::json;
use trellis_tests::{
    processes::Processes,
    servers::{ModelServer, Prompt},
};

use super::{decisions, tool_errors};
use crate::agents::{call, check_bill, cluster, finished, say};

/// Waits for question `number` of the root, stops the worker, and answers.
async fn answer(cluster: &mut Processes, run: domain::TraceId, number: usize, question: &str, answer: &str) {
    cluster
        .until(run, "asking", |trace| {
            trace.root().is_some_and(|root| {
                root.answers.len() + 1 == number && format!("{:?}", root.status).contains(question)
            })
        })
        .await;
    cluster.kill("w1");
    cluster.run("w1");
    let answered = json!({"child_id": "root", "question": number, "answer": answer});
    cluster.client.publish(Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
}

/// proves: a human is asked once about every listed tool call and every expensive model call, even
/// if a worker is killed. A yes lets the call proceed; any other answer denies it with the human's
/// words.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_human_approves_calls_once_each() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/a", "content": "first"})),
        1 => call("fs_write", json!({"path": "outputs/b", "content": "second"})),
        2 => call("ask_human", json!({"question": "Which colour?"})),
        _ => say(&format!("{} it is", prompt.last())),
    })
    .await;
    let checks = json!([
        {"name": "dear", "approval": {"above_usd": 0.5}},
        {"name": "writes", "approval": {}, "tools": ["fs.write"]},
        {"name": "questions", "approval": {}, "tools": ["ask_human"]},
    ]);
    let mut cluster = cluster(1, &model, json!([super::checked(checks)])).await;
    let run = cluster.begin(json!({"goal": "paint", "agent_id": "checked", "max_cost_usd": 1})).await;
    answer(&mut cluster, run, 1, "wants to call the tool fs.write with", "Yes.").await;
    answer(&mut cluster, run, 2, "second", "not before lunch").await;
    answer(&mut cluster, run, 3, "wants to call the tool ask_human", "ok").await;
    answer(&mut cluster, run, 4, "Which colour?", "blue").await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "blue it is", "{outcome:#}");
    let journal = cluster.client.journal(run, &"root".parse().unwrap()).await;
    assert_eq!(decisions(&journal), ["writes before_tool deny"]);
    let errors = tool_errors(&journal);
    assert!(
        errors.len() == 1 && errors[0].contains("a human did not approve it: not before lunch"),
        "{errors:?}"
    );
    assert_eq!(trace.root().unwrap().answers.len(), 4, "each question was asked once");
    assert_eq!(model.bill().len(), 4, "no model call was repeated");
    check_bill(&model, &[&trace], 0);
}

/// proves: an expensive model call waits for a human, and is made only after a yes.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_dear_model_call_needs_a_human() {
    let model = ModelServer::start(|_: &Prompt| say("done")).await;
    let checks = json!([{"name": "dear", "approval": {"above_usd": 0.0001}}]);
    let mut cluster = cluster(1, &model, json!([super::checked(checks)])).await;
    for (said, status, calls) in [("no", EndStatus::Failed, 0), ("approve", EndStatus::Completed, 1)] {
        let run = cluster.begin(json!({"goal": said, "agent_id": "checked", "max_cost_usd": 1})).await;
        answer(&mut cluster, run, 1, "wants to call the model test/model, which may cost up to $", said)
            .await;
        let (outcome, trace) = finished(&cluster, run).await;
        assert_eq!(outcome["status"], json!(status), "{outcome:#}");
        assert_eq!((model.bill().len(), trace.root().unwrap().answers.len()), (calls, 1));
    }
}
