//! A cluster as it is deployed: coordinators and workers as processes, with real NATS and Redis
//! servers. Nothing fails here; for faults see `faults/`.

use std::path::Path;

use domain::{
    TraceId, Usd,
    decode::{self, Format},
    span::Headers,
    subject::{Action, Filter, Subject},
    wire::{EndStatus, GraphVerdict, Outcome, Question, SubmitAnswer},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use trace::Status;
use trellis_tests::{
    cluster::SOON,
    processes::{Processes, fresh_trace},
};

fn value(outcome: &Outcome) -> Value {
    match outcome.context.result.as_ref() {
        Some(value) => value.value().clone(),
        None => panic!("no result: {outcome:#?}"),
    }
}

fn example(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    let format = if name.ends_with("json") { Format::Json } else { Format::Yaml };
    decode::parse(&std::fs::read(path).unwrap(), format).unwrap()
}

/// The budget at rest: a cost may be booked after the outcome was published (B9).
async fn spent(cluster: &Processes, run: TraceId) -> Usd {
    cluster.client.trace(run).await.root().unwrap().budget.spent.cost_usd
}

/// Submits with a `traceparent` header.
async fn under(cluster: &Processes, trace: TraceId, message: &Value) -> (TraceId, domain::ChildId) {
    let headers = Headers::from([("traceparent".into(), format!("00-{trace}-00f067aa0ba902b7-01"))]);
    let payload = serde_json::to_vec(message).unwrap().into();
    let answer = cluster.client.bus.request(&Subject::Submit, &headers, payload, SOON).await.unwrap();
    match serde_json::from_slice(&answer).unwrap() {
        SubmitAnswer::Accepted(accepted) => (accepted.trace_id, accepted.child_id),
        SubmitAnswer::Refused(refusal) => panic!("{refusal:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submissions_by_publish_and_by_request_end_once() {
    let cluster = Processes::start(2, 3).await;
    let mut runs = Vec::new();

    let outcome = cluster.client.run(json!({"goal": "hello"})).await;
    assert_eq!((outcome.context.status, value(&outcome)), (EndStatus::Completed, "hello".into()));
    runs.push(outcome.trace_id);

    // Published, with the answer sent to the client's inbox.
    let raw = async_nats::connect(cluster.nats.url()).await.unwrap();
    let inbox = raw.new_inbox();
    let mut answers = raw.subscribe(inbox.clone()).await.unwrap();
    raw.flush().await.unwrap();
    cluster.tell(Subject::Spawn, &json!({"goal": "a", "reply_to": inbox})).await;
    let answer = tokio::time::timeout(SOON, answers.next()).await.unwrap().unwrap();
    let SubmitAnswer::Accepted(accepted) = serde_json::from_slice(&answer.payload).unwrap() else {
        panic!("{answer:?}")
    };
    assert_eq!(value(&cluster.client.outcome(accepted.trace_id, &accepted.child_id).await), "a");
    // A late reader gets the same.
    assert_eq!(value(&cluster.client.outcome(accepted.trace_id, &accepted.child_id).await), "a");
    runs.push(accepted.trace_id);

    // X2: two runs with the same trace id of the caller; the second gets a new one.
    let parent = fresh_trace();
    let (first, first_root) = under(&cluster, parent, &json!({"goal": "one"})).await;
    let (second, second_root) = under(&cluster, parent, &json!({"goal": "two"})).await;
    assert_eq!(first, parent);
    assert_ne!(second, parent);
    assert_eq!(value(&cluster.client.outcome(first, &first_root).await), "one");
    assert_eq!(value(&cluster.client.outcome(second, &second_root).await), "two");
    runs.extend([first, second]);

    // P: two deliveries of one message are one run.
    let twice = fresh_trace();
    for _ in 0..2 {
        cluster.begin_as(twice, json!({"goal": "again"})).await;
    }
    assert_eq!(value(&cluster.outcome(twice).await), "again");
    runs.push(twice);

    cluster.check(&runs).await;
    assert_eq!(cluster.client.bus.read(&Filter::Dead).await.unwrap(), [], "nothing was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_graphs_run_by_publish_and_by_request() {
    let cluster = Processes::start(2, 3).await;
    cluster.apply(example("agents.yaml")["agents"].clone()).await;

    let mut runs = Vec::new();
    for name in ["research.yaml", "map-reduce.json", "race.yaml", "author-and-critic.yaml"] {
        let graph = example(name);
        let accepted = cluster.client.accepted(graph.clone()).await;
        let asked = cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
        let published = cluster.begin(graph).await;
        let told = cluster.client.outcome(published, &accepted.child_id).await;
        for outcome in [&asked, &told] {
            assert_eq!(outcome.context.status, EndStatus::Completed, "{name}: {outcome:#?}");
            assert_eq!(outcome.graph.as_ref().unwrap().verdict, GraphVerdict::Succeeded, "{name}");
        }
        runs.extend([asked.trace_id, told.trace_id]);
    }
    cluster.check(&runs).await;
    for both in runs.chunks(2) {
        assert_eq!(spent(&cluster, both[0]).await, spent(&cluster, both[1]).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancels_answers_stores_and_raises_take_effect() {
    let cluster = Processes::start(2, 3).await;
    let mut runs = Vec::new();

    // G8: a running agent is stopped long before it would end.
    let sleeping = cluster.begin(json!({"goal": "z", "agent_id": "sleep", "inputs": {"ms": 600_000}})).await;
    cluster.until(sleeping, "runs", |trace| trace.root().is_some_and(|root| root.attempt() == 1)).await;
    cluster.cancel(sleeping).await;
    assert_eq!(cluster.outcome(sleeping).await.context.status, EndStatus::Cancelled);
    runs.push(sleeping);

    // G7: a question, an answer.
    let asking = cluster.begin(json!({"goal": "which?", "agent_id": "ask"})).await;
    let filter = Filter::QuestionsOf(asking);
    let mut questions = cluster.client.bus.follow(&[filter], bus::From::Start).await.unwrap();
    let question = tokio::time::timeout(SOON, questions.next()).await.unwrap().unwrap();
    let question: Question = serde_json::from_slice(&question.payload).unwrap();
    let answered = json!({"child_id": question.child_id, "question": question.number, "answer": "that"});
    cluster.tell(Subject::Input, &json!({"trace_id": asking, "answered": answered})).await;
    assert_eq!(value(&cluster.outcome(asking).await), "that");
    runs.push(asking);

    // C: the shared store; a written value is in the outcome.
    let sharing = json!({"goal": "s", "agent_id": "share", "output_to": "note", "inputs": {"key": "root.k", "value": 7}});
    let sharing = cluster.begin(sharing).await;
    let outcome = cluster.outcome(sharing).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(*outcome.outputs["root.k"].value(), json!(7));
    runs.push(sharing);

    // B4, B5: three of five calls fit.
    let capped =
        json!({"goal": "p", "agent_id": "spend", "max_cost_usd": 0.03, "inputs": {"usd": 0.01, "calls": 5}});
    let capped = cluster.begin(capped).await;
    let outcome = cluster.outcome(capped).await;
    assert_ne!(outcome.context.status, EndStatus::Completed);
    runs.push(capped);

    // B8: the same, but the run waits for a larger budget and gets it.
    let pausing = json!({
        "goal": "p", "agent_id": "spend", "max_cost_usd": 0.03, "on_exhausted": "pause",
        "inputs": {"usd": 0.01, "calls": 5},
    });
    let pausing = cluster.begin(pausing).await;
    cluster
        .until(pausing, "paused", |trace| {
            trace.root().is_some_and(|root| matches!(root.status, Status::Paused { .. }))
        })
        .await;
    let raise = json!({"child_id": "root", "max_cost_usd": 0.05});
    cluster.tell(Subject::Admin(Action::Raise), &json!({"trace_id": pausing, "raise": raise})).await;
    assert_eq!(cluster.outcome(pausing).await.context.status, EndStatus::Completed);
    runs.push(pausing);

    cluster.check(&runs).await;
    assert_eq!(spent(&cluster, capped).await, Usd::from_cents(3));
    assert_eq!(spent(&cluster, pausing).await, Usd::from_cents(5));
}
