//! Coordinators that are killed while they handle the answers of humans (G7).

use domain::{
    subject::{Filter, Subject},
    wire::EndStatus,
};
use serde_json::json;
use trace::{Event, LoggedEvents, Trace};
use trellis_tests::processes::{Processes, Shape};

use super::publish;

/// A coordinator aborts at `point` when the answers to an agent and to an `approve` step are its
/// first messages.
async fn answered_by_one_that_dies(point: &str) {
    let mut cluster = Processes::start_as(|| Shape::new(1, 1)).await;
    let asks = json!({"id": "asks", "agent_id": "ask", "task_description": "which way?", "output_to": "way"});
    let approve = json!({"id": "ok", "approve": {"who": "anybody"}, "output_to": "decision"});
    let run = cluster.begin(json!({"mode": "parallel", "steps": [asks, approve]})).await;
    cluster
        .until(run, "asking", |trace: &Trace| trace.root().is_some_and(|root| root.lifecycle.questions == 2))
        .await;
    cluster.stop("c1").await;
    for (child, answer) in [("asks", "left"), ("ok", "approve")] {
        let answered = json!({"child_id": child, "question": 1, "answer": answer, "by": "Ann"});
        // Sent twice, each answer applies once.
        for _ in 0..2 {
            publish(&cluster, Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
        }
    }
    cluster.run_with("c1", &["--crash-at", point]);
    cluster.gone("c1").await;
    cluster.run("c1");
    let outcome = cluster.outcome(run).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(
        [outcome.outputs["way"].to_text(), outcome.outputs["decision"].to_text()],
        ["left", "approve"]
    );
    let steps = outcome.graph.unwrap().steps;
    assert_eq!((steps[0].attempts, steps[1].attempts), (2, 0));
    assert_eq!(steps[1].answered_by.as_ref().unwrap().as_str(), "Ann");
    let log = cluster.client.bus.read(&Filter::EventsOf(run)).await.unwrap();
    let log = log.iter().map(|stored| serde_json::from_slice::<LoggedEvents>(&stored.payload).unwrap());
    let answers =
        log.flat_map(|logged| logged.events).filter(|event| matches!(event, Event::Answered { .. }));
    assert_eq!(answers.count(), 2, "each answer counts once");
    cluster.check(&[run]).await;
}

/// proves: an answer that is decided and not committed is handled again.
#[tokio::test(flavor = "multi_thread")]
async fn g7_an_answer_is_decided_by_a_coordinator_that_dies_before_the_commit() {
    answered_by_one_that_dies("decided").await;
}

/// proves: a committed answer resumes its agent, although no message about it was sent.
#[tokio::test(flavor = "multi_thread")]
async fn g7_an_answer_is_committed_by_a_coordinator_that_dies_before_it_sends() {
    answered_by_one_that_dies("committed").await;
}

/// proves: an answer that is delivered again changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn g7_an_answer_is_sent_on_by_a_coordinator_that_dies_unacknowledged() {
    answered_by_one_that_dies("sent").await;
}
