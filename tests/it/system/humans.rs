//! Questions with choices, defaults and reminders, and `approve` steps: on real servers with the
//! command line, and in one process.

use std::process::Command;

use domain::{
    subject::{Filter, Subject},
    wire::{DeadLetter, EndStatus, Question},
};
use serde_json::{Value, json};
use trace::Trace;
use trellis_tests::{
    cluster::{Cluster, eventually},
    processes::binary,
    servers::ModelServer,
};

use crate::agents;

/// The output and the exit code of a command in a cluster.
fn trellis(nats: &str, arguments: &[&str]) -> String {
    let output = Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{} exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
}

fn asks(question: &'static str) -> impl Fn(&Trace) -> bool {
    move |trace: &Trace| trace.contexts().iter().any(|node| format!("{:?}", node.status).contains(question))
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_the_command_line_answers_by_choice_number_json_and_approval() {
    let model = ModelServer::start(|prompt| match prompt.turn() {
        0 => agents::call(
            "ask_human",
            json!({"question": "Which colour?", "choices": ["blue"], "default": "red"}),
        ),
        1 => agents::call("ask_human", json!({"question": "Which colour?", "choices": ["blue", "green"]})),
        2 => agents::call(
            "ask_human",
            json!({"question": "How many?", "schema": {"type": "integer", "minimum": 1}}),
        ),
        3 => agents::call(
            "ask_human",
            json!({"question": "Really?", "timeout_ms": 50, "default": "of course"}),
        ),
        _ => agents::say(&prompt.last()),
    })
    .await;
    let painter =
        json!({"agent_id": "painter", "kind": "llm", "model": "test/model", "tools": ["ask_human"]});
    let cluster = agents::cluster(1, &model, json!([painter])).await;
    let nats = cluster.nats.url();
    let steps = json!([
        {"id": "paint", "agent_id": "painter", "task_description": "paint", "output_to": "painted"},
        {"id": "release", "approve": {"who": "the owner", "question": "Good?"}, "input_from": ["painted"]}]);
    let run = cluster.begin(json!({"child_id": "house", "max_cost_usd": 1, "steps": steps})).await;
    let trace = run.to_string();

    cluster.until(run, "asking", asks("Which colour?")).await;
    let described = trellis(&nats, &["runs", "show", &trace]);
    for says in ["question 1 of house › paint: Which colour?", "  1  blue\n  2  green\n", "input_required"]
    {
        assert!(described.contains(says), "{described}");
    }
    assert!(trellis(&nats, &["runs", "list"]).contains("input_required"));
    let refused = trellis(&nats, &["answer", &trace, "red"]);
    assert!(
        refused.contains("it is not one of the choices") && refused.ends_with("exit Some(3)"),
        "{refused}"
    );
    let published =
        json!({"trace_id": run, "answered": {"child_id": "paint", "question": 1, "answer": "black"}});
    cluster.client.publish(Subject::Input, &published).await;
    eventually("the answer is a dead letter", async || {
        let dead = cluster.client.bus.read(&Filter::Dead).await.unwrap();
        let mut dead =
            dead.iter().map(|stored| serde_json::from_slice::<DeadLetter>(&stored.payload).unwrap());
        dead.any(|letter| format!("{letter:?}").contains("it is not one of the choices"))
    })
    .await;
    assert_eq!(
        trellis(&nats, &["answer", &trace, "2", "--by", "Ann"]),
        "`paint` has its answer\n exit Some(0)"
    );

    cluster.until(run, "asking", asks("How many?")).await;
    let refused = trellis(&nats, &["answer", &trace, "0"]);
    assert!(refused.contains("less than the minimum"), "{refused}");
    assert!(trellis(&nats, &["answer", &trace, "3"]).ends_with("exit Some(0)"));

    cluster.until(run, "asking", asks("Good?")).await;
    let question = cluster.client.bus.read(&Filter::QuestionsOf(run)).await.unwrap().pop().unwrap();
    let question: Question = serde_json::from_slice(&question.payload).unwrap();
    assert!(question.question.as_str().contains("painted: of course"), "{question:?}");
    assert!(
        question.question.as_str().contains("this is the default"),
        "the agent did not see the default: {question:?}"
    );
    assert!(question.form.approval);
    let refused = trellis(&nats, &["answer", &trace, "release", "perhaps"]);
    assert!(refused.contains("it neither approves nor denies"), "{refused}");
    assert!(
        trellis(&nats, &["answer", &trace, "release", "approve", "--by", "Bob"]).ends_with("exit Some(0)")
    );
    let outcome = cluster.client.outcome(run, &"house".parse().unwrap()).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(outcome.graph.unwrap().steps[1].answered_by.as_ref().unwrap().as_str(), "Bob");
    let given: Vec<Value> = cluster.client.trace(run).await.contexts()[1]
        .answers
        .iter()
        .map(|given| json!([given.answer, given.by, given.default]))
        .collect();
    assert_eq!(json!(given), json!([["green", "Ann", false], ["3", null, false], ["of course", null, true]]));
    assert_eq!(model.bill().len(), 5, "the invalid question cost a turn, and was asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_an_embedded_run_reminds_and_takes_the_default_by_its_timers() {
    let cluster = Cluster::embedded();
    let approve = json!({"who": "nobody", "timeout_ms": 2500, "otherwise": "approve", "remind_every_ms": 1000,
        "choices": ["later", "now"]});
    let steps = json!([{"id": "ok", "approve": approve, "output_to": "when"},
        {"id": "after", "agent_id": "echo", "task_description": "t", "input_from": ["when"]}]);
    let outcome = cluster.client.run(json!({"steps": steps})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(outcome.outputs["when"].to_text(), "later");
    let asked = cluster.client.bus.read(&Filter::QuestionsOf(outcome.trace_id)).await.unwrap();
    let asked = asked.iter().map(|stored| serde_json::from_slice::<Question>(&stored.payload).unwrap());
    let asked: Vec<(u32, u32)> = asked.map(|question| (question.number, question.reminder)).collect();
    // A timer may be late; then the question expires before a reminder is due.
    let all = [(1, 0), (1, 1), (1, 2)];
    assert!(!asked.is_empty() && all.starts_with(&asked), "one question, asked up to three times: {asked:?}");
    cluster.stop().await;
}
