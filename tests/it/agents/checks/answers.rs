//! Checks around model calls.

use domain::{
    subject::Filter,
    wire::{EndStatus, FailureKind},
};
use serde_json::json;
use trellis_tests::servers::{ModelServer, Prompt};

use super::{checked, counts, decisions, embedded, prompts, run};
use crate::agents::{call, check_bill, say};

/// proves: for a denied prompt no hold is taken and nothing is sent, and the agent ends as refused.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_denied_prompt_is_not_sent_and_costs_nothing() {
    let model = ModelServer::start(|_: &Prompt| say("hello")).await;
    let checks = json!([
        {"name": "cheap", "cost": {"max_usd_per_call": 1}},
        {"name": "topic", "pattern": {"deny": ["(?i)weapons"]}, "on": ["before_call"]},
    ]);
    let cluster = embedded(model.settings(), json!([checked(checks)])).await;
    let (outcome, journal) = run(&cluster, "tell me about Weapons").await;
    let error = outcome.context.error.clone().unwrap();
    assert_eq!((outcome.context.status, error.kind), (EndStatus::Failed, FailureKind::Refused));
    assert_eq!(error.message, "the model call was denied by the check `topic`: it matches pattern 1 of 1");
    assert_eq!(decisions(&journal), ["topic before_call deny"]);
    assert!(model.bill().is_empty() && outcome.context.budget.spent.is_zero());
    let held = cluster.client.bus.read(&Filter::EventsOf(outcome.trace_id)).await.unwrap();
    assert!(
        held.iter().all(|message| !String::from_utf8_lossy(&message.payload).contains(r#""type":"held""#))
    );
    // A check can also bound the worst-case cost of a call.
    let checks = json!([{"name": "cheap", "cost": {"max_usd_per_call": 0.0001}}]);
    cluster.client.apply(json!([checked(checks)])).await;
    let (outcome, _) = run(&cluster, "be cheap").await;
    let error = outcome.context.error.clone().unwrap().message;
    assert!(error.contains("denied by the check `cheap`: the call may cost $"), "{error}");
    assert!(model.bill().is_empty());
    cluster.stop().await;
}

/// proves: a redaction in a message stays in every later call of every attempt.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_redacted_message_stays_redacted_in_every_later_call() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_list", json!({"path": "."})),
        1 => call("ask_human", json!({"question": "Which?"})),
        _ => say("done"),
    })
    .await;
    let checks = json!([
        {"name": "keys", "then": "redact", "pattern": {"deny": ["sk-[A-Z]+"]}, "on": ["before_call"]},
        {"name": "shout", "on": ["before_call"], "program": {"command": ["python3", "-c", SHOUT]}},
    ]);
    let cluster = embedded(model.settings(), json!([checked(checks)])).await;
    let trace_id = trellis_tests::processes::fresh_trace();
    let answer = async {
        trellis_tests::cluster::eventually("the agent asks a question", async || {
            let trace = cluster.client.trace(trace_id).await;
            trace.root().is_some_and(|root| format!("{:?}", root.status).contains("Which?"))
        })
        .await;
        let answered = json!({"child_id": "root", "question": 1, "answer": "the quiet one"});
        let message = json!({"trace_id": trace_id, "answered": answered});
        cluster.client.publish(domain::subject::Subject::Input, &message).await;
    };
    let run = super::run_as(&cluster, trace_id, "use sk-HIDDEN and be quiet");
    let ((outcome, journal), ()) = tokio::join!(run, answer);
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let seen = model.prompts();
    assert_eq!(seen.len(), 3);
    for prompt in &seen {
        let text = prompt.to_string();
        assert!(text.contains("use [redacted:keys] and be QUIET") && !text.contains("HIDDEN"), "{text}");
    }
    assert!(seen[2].to_string().contains("the QUIET one"));
    // Each check changed the task once; the program changed the human's answer once.
    let expected = ["keys before_call change", "shout before_call change", "shout before_call change"];
    assert_eq!(decisions(&journal), expected);
    cluster.stop().await;
}

/// Writes `quiet` in capital letters.
const SHOUT: &str = r#"
import json, sys
asked = json.loads(sys.stdin.readline())
changed = asked["text"].replace("quiet", "QUIET")
print(json.dumps({"decision": "change", "text": changed, "reason": "louder"}))
"#;

/// proves: a denied answer is paid and never shown; the model gets the reason and is called again,
/// within its steps.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_denied_answer_is_paid_and_asked_for_again() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/a", "content": "damn"})),
        1 => say("damn, I could not"),
        _ => say("I could not"),
    })
    .await;
    let checks = json!([{"name": "polite", "pattern": {"deny": ["damn"]}, "on": ["after_call"]}]);
    let cluster = embedded(model.settings(), json!([checked(checks)])).await;
    let trace_id = trellis_tests::processes::fresh_trace();
    let mut heard = cluster.client.bus.subscribe(&Filter::StreamsOf(trace_id)).await.unwrap();
    let (outcome, journal) = super::run_as(&cluster, trace_id, "try").await;
    assert_eq!(outcome.context.result.clone().unwrap().to_text(), "I could not");
    assert_eq!(decisions(&journal), ["polite after_call deny", "polite after_call deny"]);
    assert!(super::tool_errors(&journal).is_empty() && outcome.context.steps == 2, "no tool was called");
    assert_eq!(prompts(&model).matches("Your answer was denied by the check `polite`").count(), 1 + 2);
    check_bill(&model, &[&cluster.client.trace(trace_id).await], 0);
    assert_eq!(model.bill().len(), 3);
    assert_eq!(counts(&cluster, &outcome).await, [0, 2, 0]);
    let piece = tokio::time::timeout(trellis_tests::cluster::SOON, heard.next()).await.unwrap().unwrap();
    let piece = String::from_utf8_lossy(&piece.payload).into_owned();
    assert!(piece.contains("I could not") && !piece.contains("damn"), "the first live output: {piece}");
    cluster.stop().await;
}

/// proves: denied answers use up steps, so a model without an acceptable answer ends at
/// `max_steps`.
#[tokio::test(flavor = "multi_thread")]
async fn b16_l_denied_answers_are_steps() {
    let model = ModelServer::start(|_: &Prompt| say("no JSON")).await;
    let mut agent = checked(json!([{"name": "form", "schema": {"type": "object"}}]));
    agent["limits"] = json!({"max_steps": 3});
    let cluster = embedded(model.settings(), json!([agent])).await;
    let (outcome, journal) = run(&cluster, "answer").await;
    let error = outcome.context.error.clone().unwrap();
    assert_eq!(error.kind, FailureKind::LimitExceeded);
    assert!(error.message.contains("has used 3 of max_steps = 3 (the profile of agent"), "{}", error.message);
    assert_eq!(decisions(&journal).len(), 3);
    cluster.stop().await;
}

/// proves: a model call above the rate waits for its minute, and is denied if the deadline comes
/// first.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_model_call_beyond_its_rate_is_denied_if_it_can_not_wait() {
    let model = ModelServer::start(|_: &Prompt| call("fs_list", json!({"path": "."}))).await;
    let mut agent = checked(json!([{"name": "slow", "rate": {"per_minute": 2}}]));
    agent["timeout_ms"] = json!(50_000);
    let cluster = embedded(model.settings(), json!([agent])).await;
    let (outcome, journal) = run(&cluster, "list").await;
    let error = outcome.context.error.clone().unwrap();
    assert_eq!(error.kind, FailureKind::Refused, "{error:?}");
    assert!(
        error.message.contains("check `slow`: 2 calls a minute are allowed, and there is no time"),
        "{error:?}"
    );
    assert_eq!((decisions(&journal).len(), model.bill().len()), (1, 2));
    cluster.stop().await;
}
