//! Checks around tool calls.

use domain::{subject::Filter, wire::EndStatus};
use serde_json::json;
use trellis_tests::servers::{ModelServer, Prompt};

use super::{checked, counts, decisions, embedded, everything, passes, prompts, run, tool_errors};
use crate::agents::{call, say};

/// proves: a denied call is not made, the model gets the check's name and reason, and every
/// decision is in the journal.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_denied_tool_call_is_not_made_and_the_model_gets_the_reason() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/a", "content": "rm -rf /"})),
        1 => call("fs_list", json!({"path": "outputs"})),
        _ => say(&format!("found: {}", prompt.last())),
    })
    .await;
    let checks = json!([
        {"name": "no-rm", "pattern": {"deny": ["rm -rf"]}, "tools": ["fs.write"]},
        {"name": "paths", "schema": {"required": ["path"]}, "on": ["before_tool"]},
        {"name": "small", "size": {"max_bytes": 10_000}},
    ]);
    let cluster = embedded(model.settings(), json!([checked(checks)])).await;
    let (outcome, journal) = run(&cluster, "tidy up").await;
    let result = outcome.context.result.clone().unwrap().to_text();
    assert!(result.starts_with("found: ") && !result.contains("outputs/a"), "the file was written: {result}");
    assert_eq!(decisions(&journal), ["no-rm before_tool deny"]);
    let errors = tool_errors(&journal);
    assert!(errors[0].contains("denied by the check `no-rm`: it matches pattern 1 of 1"), "{errors:?}");
    assert!(prompts(&model).contains("denied by the check `no-rm`"), "the model receives the reason");
    // `small` ran before and after three calls; of the tool calls, one passed `paths` and `small`
    // before and after.
    assert!(passes(&journal) > 6, "the journal lacks decisions to pass: {journal:#?}");
    assert_eq!(counts(&cluster, &outcome).await, [0, 1, 0]);
    // One event reports it.
    let events = cluster.client.bus.read(&Filter::EventsOf(outcome.trace_id)).await.unwrap();
    let events: String = events.iter().map(|event| String::from_utf8_lossy(&event.payload)).collect();
    let seen = events.matches(r#""type":"checked""#).count();
    assert_eq!(seen, 1);
    cluster.stop().await;
}

/// proves: redacted text is missing from model, tool, journal, events and live output.
#[tokio::test(flavor = "multi_thread")]
async fn b16_redacted_text_is_stored_nowhere() {
    // The tool receives the redacted text of the first secret. The second secret is in the model's
    // own answer.
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/a", "content": "the key is sk-SECRET1, keep it"})),
        1 => call("fs_read", json!({"path": "outputs/a"})),
        _ => say(&format!("{} and my own sk-SECRET2", prompt.last())),
    })
    .await;
    let checks = json!([{"name": "keys", "then": "redact", "pattern": {"deny": ["sk-[A-Z0-9]+"]}}]);
    let cluster = embedded(model.settings(), json!([checked(checks)])).await;
    let trace_id = trellis_tests::processes::fresh_trace();
    let mut heard = cluster.client.bus.subscribe(&Filter::StreamsOf(trace_id)).await.unwrap();
    let (outcome, journal) = super::run_as(&cluster, trace_id, "keep the key").await;
    let result = outcome.context.result.clone().unwrap().to_text();
    assert!(
        result.contains("the key is [redacted:keys], keep it"),
        "the tool did not get the redacted text: {result}"
    );
    assert!(result.ends_with("and my own [redacted:keys]"), "{result}");
    assert!(!everything(&cluster, trace_id).await.contains("SECRET"));
    assert!(!prompts(&model).contains("SECRET"), "the model receives its own text redacted");
    let mut said = String::new();
    while !said.contains("my own") {
        let piece = tokio::time::timeout(trellis_tests::cluster::SOON, heard.next()).await.unwrap().unwrap();
        said.push_str(&String::from_utf8_lossy(&piece.payload));
    }
    assert!(!said.contains("SECRET"), "{said}");
    assert!(!decisions(&journal).is_empty());
    cluster.stop().await;
}

/// proves: the output of a tool is redacted or denied before the model and the journal get it.
#[tokio::test(flavor = "multi_thread")]
async fn b16_the_output_of_a_tool_is_checked_before_anybody_reads_it() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/a", "content": "card 4111111111111111 ok"})),
        1 => call("fs_write", json!({"path": "outputs/b", "content": "PRIVATE"})),
        2 => call("fs_read", json!({"path": "outputs/a"})),
        3 => call("fs_read", json!({"path": "outputs/b"})),
        _ => say("done"),
    })
    .await;
    let checks = json!([
        {"name": "cards", "then": "redact", "pattern": {"deny": ["[0-9]{16}"]}, "on": ["after_tool"]},
        {"name": "private", "pattern": {"deny": ["PRIVATE"]}, "on": ["after_tool"]},
    ]);
    let cluster = embedded(model.settings(), json!([checked(checks)])).await;
    let (outcome, journal) = run(&cluster, "read").await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(decisions(&journal), ["cards after_tool change", "private after_tool deny"]);
    let seen = prompts(&model);
    assert!(seen.contains("card [redacted:cards] ok"), "{seen}");
    let errors = tool_errors(&journal);
    assert!(errors[0].contains("its output was denied by the check `private`"), "{errors:?}");
    cluster.stop().await;
}

/// proves: the rate of tool calls is computed from the journal, and the agent receives the time of
/// the next possible call.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_rate_denies_a_tool_call_beyond_it() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0..=2 => call("fs_list", json!({"path": "."})),
        _ => say("done"),
    })
    .await;
    let checks = json!([{"name": "slow", "rate": {"per_minute": 2}, "tools": ["fs.list"]}]);
    let cluster = embedded(model.settings(), json!([checked(checks)])).await;
    let (_, journal) = run(&cluster, "list").await;
    assert_eq!(decisions(&journal), ["slow before_tool deny"]);
    let errors = tool_errors(&journal);
    assert!(errors[0].contains("2 calls a minute are allowed; try again in"), "{errors:?}");
    cluster.stop().await;
}

/// proves: a halting check ends the context as aborted, with the check's name and reason.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_check_halts_the_context() {
    let model =
        ModelServer::start(|_: &Prompt| call("fs_write", json!({"path": "../a", "content": "x"}))).await;
    let halts = |moment: &str| json!([{"name": "inside", "then": "halt", "pattern": {"deny": ["\\.\\./|not in the workspace"]}, "on": [moment]}]);
    for (moment, calls) in [("before_tool", 1), ("after_tool", 2), ("after_call", 3)] {
        let cluster = embedded(model.settings(), json!([checked(halts(moment))])).await;
        let (outcome, journal) = run(&cluster, "escape").await;
        assert_eq!(outcome.context.status, EndStatus::Aborted, "{moment}: {outcome:#?}");
        let reason = outcome.context.reason.clone().unwrap();
        assert_eq!(reason, "check `inside` halted it");
        let said = serde_json::to_string(&outcome.context.error).unwrap();
        assert!(said.contains("it matches pattern 1"), "{said}");
        assert_eq!(decisions(&journal), [format!("inside {moment} halt")]);
        assert_eq!(counts(&cluster, &outcome).await, [0, 0, 1]);
        assert_eq!(model.bill().len(), calls, "no further model call is made");
        cluster.stop().await;
    }
}
