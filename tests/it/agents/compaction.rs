//! Full windows (W7): the prompts of the model, the journal, the cost, and the state after a killed
//! worker.

use std::sync::atomic::{AtomicUsize, Ordering};

use domain::{
    ChildId, TraceId,
    subject::Filter,
    wire::{CompactionKind, HistoryEntry, HistoryStep},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually},
    servers::{INPUT_NANOS, Llama, ModelServer, OUTPUT_NANOS, Prompt, Reply},
    subjects::admin_of,
};

use super::{call, check_bill, cluster, finished, foreign::embedded, say};

/// The cost of one call.
const A_CALL: u64 = 100 * INPUT_NANOS + 20 * OUTPUT_NANOS;
const WINDOW: usize = 2000;

pub(super) fn is_summary(body: &Value) -> bool {
    body["messages"][0]["content"].as_str().unwrap_or_default().starts_with("You condense")
}

/// A model that makes `calls` tool calls regardless of its window, then answers; it also writes
/// summaries.
pub(super) async fn looping(
    calls: usize,
    tool: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> ModelServer {
    let (made, summaries) = (AtomicUsize::new(0), AtomicUsize::new(0));
    ModelServer::start(move |prompt: &Prompt| {
        if is_summary(&prompt.body) {
            return say(&format!(
                "SUMMARY {}: the word is tulip",
                summaries.fetch_add(1, Ordering::Relaxed) + 1
            ));
        }
        match made.fetch_add(1, Ordering::Relaxed) {
            n if n < calls => tool(n + 1),
            _ => say("done"),
        }
    })
    .await
}

/// A call with long arguments and a short output.
pub(super) fn long_call(n: usize) -> Reply {
    let content = format!("note {n}: {}", "words and more words ".repeat(45));
    call("fs_write", json!({"path": "outputs/note.txt", "content": content}))
}

pub(super) fn profile(more: Value) -> Value {
    let mut agent = json!({"agent_id": "long", "kind": "llm", "model": "test/model", "system_prompt": "You loop.",
        "tools": ["fs.write", "fs.read"], "window_tokens": WINDOW,
        "limits": {"max_steps": 60, "max_tokens_per_step": 100}});
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent
}

async fn journal(cluster: &Cluster, trace: TraceId) -> Vec<HistoryEntry> {
    cluster.client.journal(trace, &"root".parse().unwrap()).await
}

async fn run(cluster: &Cluster, more: Value) -> (Value, Vec<HistoryEntry>) {
    let mut goal = json!({"goal": "loop for long", "agent_id": "long"});
    goal.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let outcome = cluster.client.run(goal).await;
    let entries = journal(cluster, outcome.trace_id).await;
    (serde_json::to_value(&outcome).unwrap(), entries)
}

pub(super) fn summaries(entries: &[HistoryEntry]) -> Vec<u32> {
    entries.iter().filter_map(|entry| entry.step.as_model()?.summary_of).collect()
}

pub(super) fn compacted(entries: &[HistoryEntry], how: CompactionKind) -> usize {
    let is =
        |entry: &&HistoryEntry| matches!(entry.step, HistoryStep::Compacted { how: its, .. } if its == how);
    entries.iter().filter(is).count()
}

/// The prompts of the agent itself, and the prompts for its summaries.
fn prompts(model: &ModelServer) -> (Vec<String>, Vec<String>) {
    let (summaries, own): (Vec<Value>, Vec<Value>) = model.prompts().into_iter().partition(is_summary);
    let text = |body: &Value| {
        let messages = body["messages"].as_array().unwrap();
        messages.iter().map(|message| format!("{message}\n")).collect::<String>()
    };
    (own.iter().map(text).collect(), summaries.iter().map(text).collect())
}

/// Every prompt contains the role, the task and the newest exchange, and fits into the window.
fn check_prompts(own: &[String]) {
    for (n, prompt) in own.iter().enumerate() {
        assert!(prompt.contains("You loop.") && prompt.contains("Your task: loop for long"), "{prompt}");
        assert!(n == 0 || prompt.contains(&format!("note {n}")), "the newest exchange is missing: {prompt}");
        assert!(prompt.len() / 3 < WINDOW, "{} bytes: {prompt}", prompt.len());
    }
}

/// The window is far from full: only the rung triggers the compaction, once.
#[tokio::test(flavor = "multi_thread")]
async fn b21_a_rung_of_the_budget_compacts_the_window() {
    let model = looping(12, long_call).await;
    let ladder = json!({"window_tokens": 1_000_000, "on_budget": [{"at": 0.005, "compact": true}]});
    let cluster = embedded(model.settings(), json!([profile(ladder)])).await;
    let budget = format!("0.{:09}", 1000 * A_CALL);
    let (outcome, entries) = run(&cluster, json!({"max_cost_usd": budget})).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    let rung = entries.iter().position(|entry| matches!(entry.step, HistoryStep::Rung(_))).unwrap();
    let summed =
        entries.iter().position(|entry| entry.step.as_model().is_some_and(|s| s.summary_of.is_some()));
    assert_eq!((summed, summaries(&entries).len()), (Some(rung + 1), 1), "{entries:#?}");
    let (own, _) = prompts(&model);
    assert!(!own.last().unwrap().contains("note 1:") && own.last().unwrap().contains("SUMMARY 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn w7_the_oldest_exchanges_become_a_summary_that_is_paid_and_summarised_in_turn() {
    let model = looping(20, long_call).await;
    let cluster = embedded(model.settings(), json!([profile(json!({"fallback_model": "test/cheap"}))])).await;
    let (outcome, entries) = run(&cluster, json!({})).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    let to = summaries(&entries);
    assert!(to.len() >= 3 && to.is_sorted(), "{to:?}");
    assert_eq!(compacted(&entries, CompactionKind::Dropped), 0);
    let (own, summed) = prompts(&model);
    check_prompts(&own);
    assert!(own.last().unwrap().contains(&format!("SUMMARY {}", to.len())), "{}", own.last().unwrap());
    assert!(own.last().unwrap().contains(&format!("Your steps 1 to {} are summarised", to.last().unwrap())));
    assert!(
        summed[1].contains("SUMMARY 1: the word is tulip"),
        "a summary contains the previous one: {}",
        summed[1]
    );
    // The cheaper model writes the summary; a summary is neither a step nor an answer, and is paid
    // like any call.
    let cheap =
        |entry: &&HistoryEntry| entry.step.as_model().is_some_and(|step| step.model.as_str() == "test/cheap");
    assert_eq!(entries.iter().filter(cheap).count(), to.len());
    assert_eq!(outcome["steps"], 20, "{outcome:#}");
    assert_eq!(model.billed_nanos(), (21 + to.len() as u64) * A_CALL);
    let spent: u64 =
        entries.iter().filter_map(|entry| Some(entry.step.as_model()?.cost.amount.cost_usd.nanos())).sum();
    assert_eq!(spent, model.billed_nanos());

    // A branch from after the first summary begins with the summary; a branch from before it begins
    // with all entries.
    let at = |number: u32| json!({"branch_from": {"trace_id": outcome["trace_id"], "child_id": "root", "step": number}});
    let first = entries
        .iter()
        .find(|entry| entry.step.as_model().is_some_and(|step| step.summary_of.is_some()))
        .unwrap();
    let before = model.prompts().len();
    let (branch, copied) = run(&cluster, at(first.number)).await;
    assert_eq!(branch["result"], "done", "{branch:#}");
    assert_eq!(summaries(&copied), [to[0] + 1], "the copies follow the first entry of the branch");
    let shown = model.prompts()[before].to_string();
    assert!(shown.contains("SUMMARY 1") && !shown.contains("note 1:"), "{shown}");
    let before = model.prompts().len();
    run(&cluster, at(4)).await;
    let shown = model.prompts()[before].to_string();
    assert!(!shown.contains("SUMMARY") && shown.contains("note 1:") && shown.contains("note 2:"), "{shown}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w7_without_a_summary_the_oldest_are_dropped_and_the_prompt_mentions_it() {
    let model = looping(12, long_call).await;
    let cluster = embedded(model.settings(), json!([profile(json!({"compaction": "drop"}))])).await;
    let (outcome, entries) = run(&cluster, json!({})).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    assert_eq!(summaries(&entries), [] as [u32; 0]);
    assert!(compacted(&entries, CompactionKind::Dropped) >= 2, "{entries:#?}");
    let (own, summed) = prompts(&model);
    check_prompts(&own);
    assert_eq!(summed.len(), 0);
    let last = own.last().unwrap();
    assert!(
        last.contains("Your steps 1 to ") && last.contains("no longer shown, because your window is full"),
        "{last}"
    );
    assert!(last.contains("history/step_001.json"), "{last}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w7_too_little_money_for_a_summary_drops_the_oldest() {
    let model = looping(12, long_call).await;
    let mut settings = model.settings();
    settings["prices"]["test/dear"] = json!({"input": 100_000, "output": 100_000});
    let cluster = embedded(settings, json!([profile(json!({"fallback_model": "test/dear"}))])).await;
    let (outcome, entries) = run(&cluster, json!({})).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    assert_eq!(summaries(&entries), [] as [u32; 0]);
    assert!(compacted(&entries, CompactionKind::Dropped) >= 2, "{entries:#?}");
    check_prompts(&prompts(&model).0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w7_old_tool_outputs_become_references_first_and_can_be_read_again() {
    let model = looping(10, |n| match n {
        1 => call("fs_write", json!({"path": "outputs/a.txt", "content": "text of the file ".repeat(90)})),
        10 => call("fs_read", json!({"path": "history/step_004.json", "first_line": 1, "lines": 200})),
        n => call("fs_read", json!({"path": "outputs/a.txt", "first_line": 1, "lines": n})),
    })
    .await;
    let cluster = embedded(model.settings(), json!([profile(json!({"window_tokens": 3000}))])).await;
    let (outcome, entries) = run(&cluster, json!({})).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    assert!(compacted(&entries, CompactionKind::References) >= 1, "{entries:#?}");
    assert_eq!((summaries(&entries).len(), compacted(&entries, CompactionKind::Dropped)), (0, 0));
    let (own, _) = prompts(&model);
    let last = own.last().unwrap();
    assert!(last.contains("[output of `fs.read`, 15"), "{last}");
    assert!(last.contains("`fs.read` shows `history/step_004.json`"), "{last}");
    let mut tools = entries.iter().rev().filter_map(|entry| match &entry.step {
        HistoryStep::Tool(step) => Some(step),
        _ => None,
    });
    let read = tools.next().unwrap();
    assert!(!read.is_error && format!("{read:?}").contains("text of the file"), "{read:?}");
    cluster.stop().await;
}

/// The newest exchange stays. If it does not fit, its tool outputs become references; if it still
/// does not fit, the agent ends with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn w7_a_newest_exchange_that_does_not_fit_is_shown_by_reference_or_ends_the_agent() {
    let model = looping(2, |n| match n {
        1 => call("fs_write", json!({"path": "outputs/a.txt", "content": "line of the file\n".repeat(500)})),
        _ => {
            let read =
                ("fs_read".to_owned(), json!({"path": "outputs/a.txt", "first_line": 1, "lines": 500}));
            Reply { calls: vec![read.clone(), read], ..call("", json!({})) }
        }
    })
    .await;
    let window = json!({"window_tokens": 4000});
    let cluster = embedded(model.settings(), json!([profile(window)])).await;
    let (outcome, entries) = run(&cluster, json!({})).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    assert!(compacted(&entries, CompactionKind::References) >= 1, "{entries:#?}");
    assert!(
        prompts(&model).0.last().unwrap().contains("[output of `fs.read`, 8"),
        "{:?}",
        prompts(&model).0.last()
    );
    cluster.stop().await;

    let model = looping(1, |_| {
        call("fs_write", json!({"path": "outputs/a.txt", "content": "line of the file\n".repeat(500)}))
    })
    .await;
    let cluster = embedded(model.settings(), json!([profile(json!({}))])).await;
    let (outcome, _) = run(&cluster, json!({})).await;
    assert_eq!(outcome["error"]["kind"], "limit_exceeded", "{outcome:#}");
    let why = outcome["error"]["message"].as_str().unwrap();
    assert!(why.contains("window_tokens = ") && why.contains("the newest step"), "{why}");
    assert_eq!(model.prompts().len(), 1, "no call with a prompt beyond the window was made");
    cluster.stop().await;
}

/// A restore to before a compaction makes the window complete again.
#[tokio::test(flavor = "multi_thread")]
async fn w7_a_restore_to_before_a_compaction_brings_the_window_back() {
    let model = looping(8, |n| match n {
        7 => call("ask_human", json!({"question": "Go on?"})),
        n => long_call(n),
    })
    .await;
    let tools = json!({"tools": ["fs.write", "ask_human"]});
    let cluster = embedded(model.settings(), json!([profile(tools)])).await;
    let client = &cluster.client;
    let accepted = client.accepted(json!({"goal": "loop for long", "agent_id": "long"})).await;
    let (trace, root): (TraceId, ChildId) = (accepted.trace_id, accepted.child_id.clone());
    let asks = async || !client.bus.read(&Filter::QuestionsOf(trace)).await.unwrap().is_empty();
    eventually("the agent asks a question", asks).await;
    assert!(!summaries(&journal(&cluster, trace).await).is_empty());
    let before = model.prompts().len();
    let restore = json!({"trace_id": trace, "restore": {"child_id": root, "number": 1, "to": 4}});
    client.publish(admin_of(&restore), &restore).await;
    let outcome = client.outcome(trace, &root).await;
    assert_eq!(outcome.context.result.as_ref().unwrap().value(), "done", "{outcome:#?}");
    let shown = model.prompts()[before].to_string();
    assert!(!shown.contains("SUMMARY") && shown.contains("note 1:") && shown.contains("note 2:"), "{shown}");
    cluster.stop().await;
}

/// A worker is killed around the call that writes a summary. The call is paid once or its hold is
/// booked, and the agent continues with one summary of the same entries.
#[tokio::test(flavor = "multi_thread")]
async fn w7_killed_before_in_and_after_a_summary() {
    const CALLS: usize = 8;
    let model = looping(CALLS, long_call).await;
    let quiet = cluster(1, &model, json!([profile(json!({}))])).await;
    let submission = json!({"goal": "loop for long", "agent_id": "long"});
    let (outcome, _) = finished(&quiet, quiet.begin(submission.clone()).await).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    let calls = model.prompts();
    let first = calls.iter().position(is_summary).expect("the window overflows") + 1;
    let last = calls.iter().rposition(is_summary).unwrap() + 1;
    for (point, at, unseen) in [("held", first, 0), ("answered", first, 1), ("written", last, 0)] {
        let model = looping(CALLS, long_call).await;
        let mut cluster = cluster(1, &model, json!([profile(json!({}))])).await;
        cluster.stop("w1").await;
        cluster.run_with("w1", &["--crash-at", &format!("{point}:{at}")]);
        let run = cluster.begin(submission.clone()).await;
        cluster.gone("w1").await;
        cluster.run("w1");
        let (outcome, trace) = finished(&cluster, run).await;
        assert_eq!(outcome["result"], "done", "{point}: {outcome:#}");
        check_bill(&model, &[&trace], unseen * A_CALL);
        assert_eq!(model.prompts().len(), calls.len() + usize::try_from(unseen).unwrap(), "{point}");
        let entries = cluster.client.journal(run, &"root".parse().unwrap()).await;
        let written = summaries(&entries);
        assert_eq!(
            written.len(),
            calls.iter().filter(|body| is_summary(body)).count(),
            "{point}: {entries:#?}"
        );
        assert_eq!(outcome["steps"], CALLS, "{point}: {outcome:#}");
    }
}

/// A real small model writes the summaries; the agent continues after each of three full windows.
#[tokio::test(flavor = "multi_thread")]
async fn w7_a_real_model_summarises_three_times_and_the_agent_goes_on() {
    let llama = Llama::start();
    let model = looping(12, |n| {
        let content = format!("note {n}: {}", "a few words ".repeat(25));
        call("fs_write", json!({"path": "outputs/note.txt", "content": content}))
    })
    .await;
    let mut settings = model.settings();
    settings["providers"]["local"] = json!({"protocol": "openai", "base_url": llama.v1()});
    settings["prices"]["local/smollm2"] = json!({"input": 1, "output": 2});
    let small = json!({"fallback_model": "local/smollm2", "timeout_ms": 0, "tools": ["fs.write"], "window_tokens": 900,
        "limits": {"max_steps": 60, "max_tokens_per_step": 32}});
    let cluster = embedded(settings, json!([profile(small)])).await;
    let (outcome, entries) = run(&cluster, json!({})).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    let texts: Vec<String> = entries
        .iter()
        .filter_map(|entry| entry.step.as_model().filter(|step| step.summary_of.is_some())?.text.clone())
        .collect();
    assert!(texts.len() >= 3 && texts.iter().all(|text| !text.trim().is_empty()), "{texts:?}");
    let (own, _) = prompts(&model);
    check_prompts(&own);
    let shown = Value::from(texts.last().unwrap().trim()).to_string();
    assert!(own.last().unwrap().contains(shown.trim_matches('"')), "{shown}: {}", own.last().unwrap());
    cluster.stop().await;
}
