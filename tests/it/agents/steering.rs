//! Messages to running agents (G13) and the ladder of their budget (B21), as seen in the prompts of
//! their model.

use domain::{
    TraceId,
    subject::{Action, Subject},
    wire::{HistoryEntry, HistoryStep, QueryAnswer},
};
use serde_json::{Value, json};
use trellis_tests::{
    processes::Processes,
    servers::{Gate, INPUT_NANOS, ModelServer, OUTPUT_NANOS, Prompt, Reply},
};

use super::{call, check_bill, cluster, finished, frugal, say, survives::A_CALL};

/// Sends a message by request and returns the answer, which follows the commit.
pub(crate) async fn tell(cluster: &Processes, run: TraceId, key: &str, text: &str) -> QueryAnswer {
    cluster.client.query(json!({"tell": {"trace_id": run, "told": {"id": key, "text": text}}})).await
}

pub(crate) fn number(answer: &QueryAnswer) -> u32 {
    let QueryAnswer::Told { number, .. } = answer else { panic!("{answer:?}") };
    *number
}

/// The numbers of the messages in a journal.
pub(crate) fn told(journal: &[HistoryEntry]) -> Vec<Option<u32>> {
    let number = |entry: &HistoryEntry| {
        if let HistoryStep::Told(told) = &entry.step { Some(told.number) } else { None }
    };
    journal.iter().filter_map(number).collect()
}

/// The texts of the operator's messages in a prompt, in order.
fn messages(prompt: &Value) -> Vec<String> {
    let text = prompt["messages"].to_string();
    text.split("A message from the operator: ")
        .skip(1)
        .map(|rest| rest[..rest.find('.').unwrap()].into())
        .collect()
}

/// Lists files in its first turn, and waits there until the gate is open.
fn waiting(gate: &Gate) -> impl Fn(&Prompt) -> Reply + Send + Sync + 'static {
    let gate = gate.clone();
    move |prompt| match prompt.turn() {
        0 => Reply { gate: Some(gate.clone()), ..call("fs_list", json!({})) },
        1 => call("fs_list", json!({})),
        _ => say("done"),
    }
}

/// The message is sent after the tools' answers, is part of every later call, and is not sent
/// twice.
#[tokio::test(flavor = "multi_thread")]
async fn g13_a_running_agent_sees_messages_before_its_next_call_in_order() {
    let gate = Gate::default();
    let model = ModelServer::start(waiting(&gate)).await;
    let cluster = cluster(1, &model, json!([frugal("lister")])).await;
    let run = cluster.begin(json!({"goal": "list", "agent_id": "lister"})).await;
    gate.reached().await;
    assert_eq!(number(&tell(&cluster, run, "one", "first.").await), 1);
    assert_eq!(
        number(&tell(&cluster, run, "one", "first.").await),
        1,
        "the same message twice is one message"
    );
    let QueryAnswer::Refused(refusal) = tell(&cluster, run, "one", "other.").await else {
        panic!("a conflict")
    };
    assert_eq!(refusal.code, "message_conflict");
    let input =
        json!({"trace_id": run, "told": {"child_id": "root", "id": "two", "text": "second.", "by": "Ann"}});
    cluster.client.publish(Subject::Input, &input).await;
    cluster.until(run, "told", |trace| trace.root().is_some_and(|root| root.told.len() == 2)).await;
    gate.open();
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!((&outcome["result"], &outcome["unseen"]), (&json!("done"), &Value::Null), "{outcome:#}");
    let prompts = model.prompts();
    assert_eq!(prompts.len(), 3, "no further call is made");
    assert!(messages(&prompts[0]).is_empty());
    let second = prompts[1]["messages"].as_array().unwrap();
    assert_eq!(
        second[second.len() - 2]["role"],
        "tool",
        "the answers of tools do not follow their calls: {second:#?}"
    );
    let last = second.last().unwrap();
    let said = "A message from the operator: first.\n\nA message from the operator (Ann): second.";
    assert_eq!((&last["role"], last["content"].as_str()), (&json!("user"), Some(said)));
    assert!(prompts[2].to_string().contains("(Ann): second."), "the messages stay in the window");
    assert_eq!(told(&cluster.client.journal(run, &"root".parse().unwrap()).await), [Some(1), Some(2)]);
    assert_eq!(trace.root().unwrap().unseen(), 0);
    check_bill(&model, &[&trace], 0);
    let QueryAnswer::Refused(refusal) = tell(&cluster, run, "late", "late.").await else {
        panic!("the run has ended")
    };
    assert_eq!(refusal.code, "ended");
}

/// A message during the agent's last call comes too late, and the outcome reports it as unseen.
#[tokio::test(flavor = "multi_thread")]
async fn g13_messages_after_the_last_call_are_in_the_outcome() {
    let gate = Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |_: &Prompt| Reply { gate: Some(at.clone()), ..say("done") }).await;
    let cluster = cluster(1, &model, json!([frugal("lister")])).await;
    let run = cluster.begin(json!({"goal": "list", "agent_id": "lister"})).await;
    gate.reached().await;
    tell(&cluster, run, "late", "one more thing.").await;
    gate.open();
    let (outcome, _) = finished(&cluster, run).await;
    assert_eq!((&outcome["status"], &outcome["unseen"]), (&json!("completed"), &json!(1)), "{outcome:#}");
}

/// proves: a journaled message is not requested again, an unjournaled one is. A worker is killed
/// when a message is committed and no later call was made, and when the message is in its journal.
#[tokio::test(flavor = "multi_thread")]
async fn g13_killed_before_and_after_a_message_is_written_down() {
    for killed_at in ["in the call before", "told:1"] {
        let gate = Gate::default();
        let model = ModelServer::start(waiting(&gate)).await;
        let mut cluster = cluster(1, &model, json!([frugal("lister")])).await;
        if killed_at == "told:1" {
            cluster.stop("w1").await;
            cluster.run_with("w1", &["--crash-at", killed_at]);
        }
        let run = cluster.begin(json!({"goal": "list", "agent_id": "lister"})).await;
        gate.reached().await;
        assert_eq!(number(&tell(&cluster, run, "one", "first.").await), 1);
        let lost = if killed_at == "told:1" {
            gate.open();
            cluster.gone("w1").await;
            0
        } else {
            cluster.kill("w1");
            1
        };
        cluster.run("w1");
        if lost == 1 {
            gate.reached().await;
            gate.open();
        }
        let (outcome, trace) = finished(&cluster, run).await;
        assert_eq!(outcome["result"], "done", "{killed_at}: {outcome:#}");
        let journal = cluster.client.journal(run, &"root".parse().unwrap()).await;
        assert_eq!(told(&journal), [Some(1)], "{killed_at}: once");
        for prompt in &model.prompts()[1 + lost..] {
            assert_eq!(messages(prompt), ["first"], "{killed_at}: each call has the message once");
        }
        check_bill(&model, &[&trace], lost as u64 * A_CALL);
    }
}

/// A restore revokes messages that came later; unseen messages are still delivered (W5).
#[tokio::test(flavor = "multi_thread")]
async fn g13_w5_a_restore_revokes_seen_messages_and_a_branch_keeps_them() {
    let gate = Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |prompt: &Prompt| match prompt.turn() {
        0 => Reply { gate: Some(at.clone()), ..call("fs_list", json!({})) },
        1 => call("ask_human", json!({"question": "go on?"})),
        _ => say("done"),
    })
    .await;
    let mut asks = frugal("asks");
    asks["tools"] = json!(["fs.list", "ask_human"]);
    let cluster = cluster(1, &model, json!([asks])).await;
    let run = cluster.begin(json!({"goal": "ask", "agent_id": "asks"})).await;
    gate.reached().await;
    tell(&cluster, run, "one", "first.").await;
    gate.open();
    let asking = |trace: &trace::Trace| {
        trace.root().is_some_and(|root| format!("{:?}", root.status).contains("go on?"))
    };
    cluster.until(run, "asking", asking).await;
    // Entries: a model's answer, a tool's, the message, the question.
    let branch = json!({"goal": "ask", "agent_id": "asks", "hitl": "fail",
        "branch_from": {"trace_id": run, "child_id": "root", "step": 3}});
    let branched = cluster.begin(branch).await;
    let (outcome, _) = finished(&cluster, branched).await;
    assert_eq!(outcome["error"]["kind"], "input_required", "{outcome:#}");
    let journal = cluster.client.journal(branched, &"root".parse().unwrap()).await;
    assert_eq!(told(&journal), [None], "the branch has only the copied message");
    assert_eq!(messages(model.prompts().last().unwrap()), ["first"]);
    tell(&cluster, run, "two", "second.").await;
    let restore = json!({"child_id": "root", "number": 1, "to": 2});
    cluster
        .client
        .publish(Subject::Admin(Action::Restore), &json!({"trace_id": run, "restore": restore}))
        .await;
    cluster
        .until(run, "asking a second time", |trace| {
            asking(trace) && trace.root().unwrap().restores.len() == 1
        })
        .await;
    assert_eq!(
        messages(model.prompts().last().unwrap()),
        ["second"],
        "the restore removed the first message"
    );
    let answered = json!({"child_id": "root", "question": 2, "answer": "yes"});
    cluster.client.publish(Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
    let (outcome, _) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
}

/// Two rungs: the agent receives the remaining budget, and continues with the cheaper model. Each
/// rung applies once, from exactly the next call on.
#[tokio::test(flavor = "multi_thread")]
async fn b21_an_agent_sees_its_remaining_budget_and_continues_with_a_cheaper_model() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0..5 => Reply { input_tokens: 1000, output_tokens: 500, ..call("fs_list", json!({})) },
        _ => say("done"),
    })
    .await;
    let a_call = 1000 * INPUT_NANOS + 500 * OUTPUT_NANOS;
    let mut thrifty = frugal("thrifty");
    thrifty["fallback_model"] = json!("test/cheap");
    thrifty["on_budget"] = json!([{"at": 0.15, "tell": true}, {"at": 0.25, "model": "cheaper"}]);
    let cluster = cluster(1, &model, json!([thrifty])).await;
    let usd = 10.0 * a_call as f64 / 1e9;
    let run = cluster.begin(json!({"goal": "list", "agent_id": "thrifty", "max_cost_usd": usd})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    // After the second call 0.2 is spent, after the third 0.3.
    let models: Vec<String> = model.bill().iter().map(|line| line.model.clone()).collect();
    assert_eq!(models, ["model", "model", "model", "cheap", "cheap", "cheap"].map(String::from));
    let says = |prompt: &Value| prompt.to_string().matches("Your budget: 15 % is spent; left: $").count();
    assert_eq!(model.prompts().iter().map(says).collect::<Vec<_>>(), [0, 0, 1, 1, 1, 1]);
    let journal = cluster.client.journal(run, &"root".parse().unwrap()).await;
    let rung = |entry: &HistoryEntry| {
        if let HistoryStep::Rung(rung) = &entry.step { Some(rung.number) } else { None }
    };
    assert_eq!(journal.iter().filter_map(rung).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(trace.root().unwrap().lifecycle.rungs, 2);
    check_bill(&model, &[&trace], 0);
}

/// The tool's answer contains every step of the failed pipeline.
#[tokio::test(flavor = "multi_thread")]
async fn g5_g10_an_agent_gets_every_step_of_a_pipeline_that_failed() {
    let graph = json!({"steps": [
        {"id": "look", "agent_id": "lister", "task_description": "look"},
        {"id": "check", "agent_id": "nobody-answers", "task_description": "check", "retries": 0},
        {"id": "write", "agent_id": "lister", "task_description": "write"},
    ]});
    let model = ModelServer::start(move |prompt| match (prompt.task().as_str(), prompt.turn()) {
        ("plan", 0) => call("run_pipeline", json!({"graph": graph})),
        ("look", _) => say("many ants"),
        (_, _) => say("done"),
    })
    .await;
    let mut planner = frugal("planner");
    planner["tools"] = json!(["run_pipeline"]);
    let broken = json!({"agent_id": "nobody-answers", "kind": "builtin", "builtin": "fail"});
    let cluster = cluster(1, &model, json!([planner, frugal("lister"), broken])).await;
    let run = cluster.begin(json!({"goal": "plan", "agent_id": "planner"})).await;
    let (outcome, _) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], json!("done"), "{outcome:#}");
    let prompts = model.prompts();
    let last = prompts.last().unwrap()["messages"].to_string().replace('\\', "");
    for part in ["what its steps did", "many ants", r#""status":"failed""#, r#""status":"skipped""#] {
        assert!(last.contains(part), "no {part} in {last}");
    }
}
