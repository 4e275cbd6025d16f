//! A worker is killed before and after each kind of step: the result is the same, finished steps
//! are not repeated, and the model server's bill equals the booked cost.

use std::time::Duration;

use domain::{subject::Subject, wire::EndStatus};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::SOON,
    processes::LEASE,
    servers::{Gate, ModelServer, Prompt, Reply},
};

use super::{
    agent, call, check_bill, cluster, finished, say,
    survives::{A_CALL, Story, survives},
};

/// Writes a file, spawns a child, reads the file and returns its text.
fn author(prompt: &Prompt) -> Reply {
    if prompt.task().starts_with("look up") {
        return say("forty-two");
    }
    match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/plan.md", "content": "ask, then tell"})),
        1 => call("spawn", json!({"goal": "look up the answer", "agent_id": "helper"})),
        2 => call("fs_read", json!({"path": "outputs/plan.md"})),
        _ => say(&format!("the plan was: {}", prompt.last())),
    }
}

/// Runs the author with a worker that aborts at `point`, then with a second worker.
async fn author_survives(point: &str, unseen: u64) {
    let agents = json!([agent("author"), agent("helper")]);
    let story = Story { agents, model: author, result: json!("the plan was: ask, then tell"), calls: 5 };
    survives(story, point, unseen).await;
}

/// proves: the hold of a call that was not made, or whose answer was lost, is booked as estimated
/// (B10).
#[tokio::test(flavor = "multi_thread")]
async fn b10_killed_before_a_call_and_between_its_answer_and_the_journal() {
    author_survives("held:2", 0).await;
    author_survives("answered:2", 1).await;
}

/// proves: a journaled answer is booked from the journal and its call is not repeated: the bill
/// equals the booked cost (b5).
#[tokio::test(flavor = "multi_thread")]
async fn b10_killed_when_an_answer_is_written_down() {
    author_survives("written:1", 0).await;
    author_survives("written:4", 0).await;
}

/// proves: after a tool has answered, the tool may run again, but its turn is not paid again; a
/// child is started once.
#[tokio::test(flavor = "multi_thread")]
async fn p_killed_after_a_tool_and_after_a_spawn() {
    author_survives("called:1", 0).await;
    author_survives("called:2", 0).await;
}

/// Writes a file and hands over to another agent, which reads it and returns its text.
fn heir(prompt: &Prompt) -> Reply {
    match (prompt.task().as_str(), prompt.turn()) {
        ("go on", 0) => call("fs_read", json!({"path": "outputs/plan.md"})),
        ("go on", _) => say(&format!("the plan was: {}", prompt.last())),
        (_, 0) => call("fs_write", json!({"path": "outputs/plan.md", "content": "ask, then tell"})),
        (_, _) => call("delegate", json!({"goal": "go on", "agent_id": "helper"})),
    }
}

/// proves: handed-over files exist for every later attempt of the caller or the child, and only one
/// child exists.
#[tokio::test(flavor = "multi_thread")]
async fn g10_killed_around_files_that_are_handed_over() {
    // In order: the child is admitted before the caller's last entry is written; the entry is
    // written; the child has copied the files; the child has read one.
    for point in ["called:2", "finished:1", "received:1", "called:3"] {
        let agents = json!([agent("author"), agent("helper")]);
        let story = Story { agents, model: heir, result: json!("the plan was: ask, then tell"), calls: 4 };
        survives(story, point, 0).await;
    }
}

/// proves: if the journal's last entry is the result, it is reported again and nothing else is
/// done.
#[tokio::test(flavor = "multi_thread")]
async fn f03_killed_after_the_result_was_written_and_after_it_was_reported() {
    author_survives("finished:3", 0).await;
    author_survives("reported:3", 0).await;
}

/// proves: a call in flight ends with its worker and its hold is booked; the next attempt makes the
/// call again.
#[tokio::test(flavor = "multi_thread")]
async fn f02_a_worker_killed_in_a_model_call() {
    let gate = Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |prompt: &Prompt| match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/a", "content": "a"})),
        _ => Reply { gate: Some(at.clone()), ..say("done") },
    })
    .await;
    let mut cluster = cluster(2, &model, json!([agent("slow")])).await;
    let run = cluster.begin(json!({"goal": "wait", "agent_id": "slow"})).await;
    gate.reached().await;
    let worker = cluster.client.trace(run).await.root().unwrap().attempts[0].worker_id.clone();
    cluster.kill(worker.as_str());
    gate.reached().await;
    gate.open();
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!((&outcome["status"], &outcome["result"]), (&json!("completed"), &json!("done")));
    assert_eq!(outcome["attempts"], 2);
    assert_eq!(
        model.bill().iter().filter(|line| line.turn == 0).count(),
        1,
        "the first call was paid only once"
    );
    check_bill(&model, &[&trace], A_CALL);
}

/// proves: the journal's fence. A worker is stopped in a model call until its lease has expired,
/// then resumed. When its call is answered, its entry and its result are refused, and its cost is
/// booked.
#[tokio::test(flavor = "multi_thread")]
async fn f05_a_worker_stopped_in_a_model_call_and_resumed_after_its_lease() {
    let gate = Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |prompt: &Prompt| match prompt.turn() {
        0 => {
            Reply { gate: Some(at.clone()), ..call("fs_write", json!({"path": "outputs/a", "content": "a"})) }
        }
        _ => say("done"),
    })
    .await;
    let mut cluster = cluster(2, &model, json!([agent("slow")])).await;
    let run = cluster.begin(json!({"goal": "wait", "agent_id": "slow"})).await;
    gate.reached().await;
    let worker = cluster.client.trace(run).await.root().unwrap().attempts[0].worker_id.clone();
    cluster.pause(worker.as_str());
    gate.reached().await;
    // Both calls are answered: the stopped worker finds its answer when it is resumed.
    gate.open();
    let outcome = cluster.outcome(run).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 2));
    tokio::time::sleep(LEASE).await;
    cluster.resume(worker.as_str());
    // On SIGTERM the worker first publishes the cost of its call if it has read the answer;
    // otherwise the hold is booked (B10). The check waits until the queue has no cost reports.
    cluster.stop(worker.as_str()).await;
    let raw = async_nats::jetstream::new(async_nats::connect(cluster.nats.url()).await.unwrap());
    for tries in 0.. {
        let mut reports = raw.get_stream("AGENT_REPORT").await.unwrap();
        if reports.info().await.unwrap().state.messages == 0 {
            break;
        }
        assert!(tries < 3_600, "the coordinators did not read the cost reports");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.check(&[run]).await;
    let steps = cluster.client.journal(run, &"root".parse().unwrap()).await;
    let attempts: Vec<u32> = steps.iter().map(|entry| entry.attempt).collect();
    assert!(attempts.iter().all(|attempt| *attempt == 2), "the stopped worker wrote an entry: {steps:#?}");
    let unseen =
        if cluster.client.trace(run).await.root().unwrap().budget.estimated.is_zero() { 0 } else { A_CALL };
    check_bill(&model, &[&cluster.client.trace(run).await], unseen);
}

/// A journal entry of a superseded attempt can't be stored.
#[tokio::test(flavor = "multi_thread")]
async fn t5_an_entry_behind_a_step_that_is_not_the_last_is_refused() {
    let model = ModelServer::start(author).await;
    let cluster = cluster(1, &model, json!([agent("author"), agent("helper")])).await;
    let run = cluster.begin(json!({"goal": "write it down", "agent_id": "author"})).await;
    finished(&cluster, run).await;
    let subject = Subject::History(trellis_tests::subjects::pool(), run, "root".parse().unwrap());
    let late = bus::Outgoing {
        subject,
        id: None,
        headers: Default::default(),
        payload: Value::Null.to_string().into(),
        expect_last: Some(1),
    };
    let refused = tokio::time::timeout(SOON, cluster.client.bus.publish(late)).await.unwrap();
    assert_eq!(refused, Err(bus::PublishError::WrongSequence));
}
