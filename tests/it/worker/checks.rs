//! The checks of an agent (B16) over several attempts, and the handling of a denied answer: a
//! scripted model, and a coordinator that follows a script.

use bus::Outgoing;
use domain::{
    Amount, Dimension, Tokens, Usd, decode,
    span::Headers,
    subject::{Filter, Subject},
    wire::{
        Answer, Ask, Checkpoint, ChildResult, EndStatus, Execute, FailureKind, GivenAnswer, HistoryEntry,
        HistoryStep, HoldDenied, Payload, ToolOutput, ToolStep, Verdict,
    },
};
use serde_json::{Value, json};
use trellis_tests::script::{Bench, Script, agreeable, given, inline, work};
use world::{cents, id};

fn agent(checks: &Value, script: &Value) -> Execute {
    let mut work = work("root", "echo", json!({}));
    let profile = json!({"agent_id": "checked", "kind": "llm", "model": "scripted", "checks": checks,
        "script": script});
    work.agent = decode::value(&profile).unwrap();
    work.model = Some("scripted".parse().unwrap());
    work
}

/// Each claim gets the next of these.
fn in_turn(works: Vec<Execute>) -> Script {
    let mut works = works.into_iter();
    Box::new(move |_, mut answer| {
        if let Answer::Claimed(claimed) = &mut answer {
            claimed.work = works.next().expect("no more attempts");
        }
        Some(answer)
    })
}

/// Runs one attempt after the other. Returns their verdicts.
async fn attempts(works: Vec<Execute>) -> (Bench, Vec<Verdict>) {
    let bench = Bench::start(vec![works[0].clone()], in_turn(works.clone())).await;
    for work in &works {
        bench.dispatch(work).await;
        bench.until_done().await;
    }
    let verdicts = bench.verdicts().await;
    assert_eq!(verdicts.len(), works.len(), "{verdicts:#?}");
    (bench, verdicts)
}

fn with_answers(work: &Execute, answers: &[GivenAnswer]) -> Execute {
    Execute { answers: answers.to_vec(), ..work.clone() }
}

fn question(verdict: &Verdict) -> &str {
    let Verdict::InputRequired { question, .. } = verdict else { panic!("{verdict:#?}") };
    question.as_str()
}

async fn journal(bench: &Bench, work: &Execute) -> Vec<HistoryEntry> {
    let filter =
        Filter::One(Subject::History(trellis_tests::subjects::pool(), work.trace_id, work.child_id.clone()));
    let stored = bench.bus.read(&filter).await.unwrap();
    stored.iter().map(|stored| decode::json(&stored.payload).unwrap()).collect()
}

/// The outputs of the tools in a journal: the tool, whether it failed, and the text.
fn outputs(journal: &[HistoryEntry]) -> Vec<(&str, bool, &str)> {
    fn tool(entry: &HistoryEntry) -> Option<&ToolStep> {
        if let HistoryStep::Tool(step) = &entry.step { Some(step) } else { None }
    }
    fn text(step: &ToolStep) -> &str {
        let ToolOutput::Inline(text) = &step.output else { panic!("{step:#?}") };
        text
    }
    journal.iter().filter_map(tool).map(|step| (step.tool.as_str(), step.is_error, text(step))).collect()
}

/// Only a hold for the last report fits.
fn closing_only() -> Script {
    Box::new(|ask, answer| {
        let denied = HoldDenied {
            context: id("root"),
            dimension: Dimension::Cost,
            asked: cents(20),
            limit: cents(30),
            spent: Amount::ZERO,
            held: cents(20),
            left_usd: Usd::ZERO,
            left_tokens: Tokens::new(1),
            pause: false,
        };
        let fits = !matches!(ask, Ask::Hold(hold) if !hold.closing);
        Some(if fits { answer } else { Answer::Denied(denied) })
    })
}

#[tokio::test(start_paused = true)]
async fn b7_b16_a_last_report_that_a_check_denied_is_no_result() {
    let checks = json!([{"name": "keys", "on": ["after_call"], "pattern": {"deny": ["sk-[a-z]+"]}}]);
    let mut work = agent(&checks, &json!([{"say": "the key is sk-abc", "closing": true}]));
    work.budget.closing_reserve_usd = Usd::from_cents(10);
    let is_refused = |verdicts: &[Verdict]| {
        let [Verdict::Failed(failure)] = verdicts else { panic!("{verdicts:#?}") };
        assert_eq!(failure.kind, FailureKind::Budget);
        assert!(failure.message.contains("the last report was denied by the check `keys`"), "{failure:?}");
    };
    let bench = Bench::run(work.clone(), closing_only()).await;
    bench.until_done().await;
    is_refused(&bench.verdicts().await);
    // The next attempt, if the first one was lost after the answer.
    let entries = journal(&bench, &work).await;
    let bench = Bench::start(vec![work.clone()], closing_only()).await;
    for entry in entries.iter().filter(|entry| entry.step.as_result().is_none()) {
        let payload = serde_json::to_vec(entry).unwrap().into();
        let subject = Subject::History(trellis_tests::subjects::pool(), work.trace_id, work.child_id.clone());
        let message = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
        bench.bus.publish(message).await.unwrap();
    }
    bench.dispatch(&work).await;
    bench.until_done().await;
    is_refused(&bench.verdicts().await);
    assert!(!bench.asks().iter().any(|(_, ask)| matches!(ask, Ask::Hold(_))), "no hold was asked for");
}

#[tokio::test(start_paused = true)]
async fn b16_an_answer_that_a_check_halted_is_not_shown_and_no_branch_ends_with_it() {
    let checks =
        json!([{"name": "keys", "on": ["after_call"], "then": "halt", "pattern": {"deny": ["sk-[a-z]+"]}}]);
    let script = json!([{"say": "the key is sk-abc"}]);
    let work = agent(&checks, &script);
    let mut branch = agent(&json!([]), &script);
    branch.child_id = id("branch");
    branch.branch_from =
        Some(Checkpoint { trace_id: work.trace_id, child_id: work.child_id.clone(), step: 1 });
    let bench = Bench::start(vec![work.clone(), branch.clone()], agreeable()).await;
    let mut heard = bench.bus.subscribe(&Filter::StreamsOf(work.trace_id)).await.unwrap();
    for work in [&work, &branch] {
        bench.dispatch(work).await;
        bench.until_done().await;
        let verdict = bench.verdicts().await.pop();
        assert!(matches!(&verdict, Some(Verdict::Halted { check, .. }) if check == "keys"), "{verdict:#?}");
    }
    let end = Subject::Stream(work.trace_id, work.child_id.clone());
    bench.bus.broadcast(&end, &Headers::new(), "the end".into()).await.unwrap();
    let first = heard.next().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&first.payload), "the end", "other live output was sent first");
}

#[tokio::test(start_paused = true)]
async fn b16_an_answer_approves_only_the_call_that_it_was_given_to() {
    let checks = json!([{"name": "boss", "tools": ["fs.write"], "approval": {}}]);
    let write = json!({"call": [{"tool": "fs.write", "arguments": {"path": "outputs/a", "content": "x"}}]});
    let work = agent(&checks, &json!([write, write, {"say": "{last}"}]));
    let other = given("Is it sunny?", "yes");
    let bench = Bench::run(with_answers(&work, std::slice::from_ref(&other)), agreeable()).await;
    bench.until_done().await;
    let verdicts = bench.verdicts().await;
    let asked = question(&verdicts[0]);
    assert!(asked.contains("wants to call the tool fs.write with"), "{asked}");
    let withdrawn = GivenAnswer { withdrawn: true, ..given(asked, "yes") };
    let (yes, no) = (given(asked, "yes"), given(asked, "no"));
    let works = [
        vec![other.clone()],
        vec![other.clone(), withdrawn.clone()],
        vec![other.clone(), withdrawn.clone(), yes.clone()],
        vec![other, withdrawn, yes, no],
    ];
    let works = works.iter().map(|answers| with_answers(&work, answers)).collect();
    let (bench, verdicts) = attempts(works).await;
    for verdict in &verdicts[..3] {
        assert_eq!(question(verdict), asked, "the second call also needs an approval");
    }
    let entries = journal(&bench, &work).await;
    let outputs = outputs(&entries);
    assert!(!outputs[0].1, "the approved first call failed: {outputs:?}");
    assert!(outputs[1].2.contains("a human did not approve it: no"), "{outputs:?}");
    assert_eq!(outputs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn g7_an_answer_to_another_question_is_no_answer() {
    let ask = json!([{"call": [{"tool": "ask_human", "arguments": {"question": "Which colour?"}}]},
        {"say": "{last}"}]);
    let work = agent(&json!([]), &ask);
    let (other, colour) = (given("May it write?", "yes"), given("Which colour?", "blue"));
    let works = vec![
        with_answers(&work, std::slice::from_ref(&other)),
        with_answers(&work, &[other.clone(), colour.clone()]),
    ];
    let (_, verdicts) = attempts(works).await;
    assert_eq!(question(&verdicts[0]), "Which colour?");
    assert_eq!(verdicts[1], inline("blue"));
}

#[tokio::test(start_paused = true)]
async fn b16_a_rate_never_denies_the_result_of_a_child_that_it_allowed() {
    let checks = json!([{"name": "slow", "tools": ["spawn"], "rate": {"per_minute": 1}}]);
    let spawn = |goal: &str| json!({"tool": "spawn", "arguments": {"agent_id": "kid", "goal": goal}});
    let script = json!([{"call": [spawn("one"), spawn("two")]}, {"say": "end"}]);
    let work = agent(&checks, &script);
    let child = id("root-1-1");
    let result = ChildResult {
        child_id: child.clone(),
        status: EndStatus::Completed,
        result: Some(Payload::Inline("paid for".into())),
        error: None,
    };
    let resumed = Execute { children: vec![result], ..work.clone() };
    let (bench, verdicts) = attempts(vec![work.clone(), resumed]).await;
    assert_eq!(verdicts[0], Verdict::Waiting { children: vec![child], hand_over: false });
    assert_eq!(verdicts[1], inline("end"));
    let entries = journal(&bench, &work).await;
    let outputs = outputs(&entries);
    let denied = outputs.iter().find(|output| output.1).unwrap();
    assert!(denied.2.contains("1 calls a minute are allowed"), "the second call was not denied: {outputs:?}");
    assert!(outputs.contains(&("agent:spawn", false, "paid for")), "{outputs:?}");
    let spawned = bench.asks().iter().filter(|(_, ask)| matches!(ask, Ask::Spawn(_))).count();
    assert_eq!((outputs.len(), spawned), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn b16_a_rate_never_denies_the_answer_to_a_question_that_it_allowed() {
    let checks = json!([
        {"name": "slow", "tools": ["ask_human", "fs.list", "fs.write"], "rate": {"per_minute": 1}},
        {"name": "boss", "tools": ["fs.write"], "approval": {}},
    ]);
    let ask = json!({"tool": "ask_human", "arguments": {"question": "Is it sunny?"}});
    let script = json!([{"call": [ask, {"tool": "fs.list"}]}, {"say": "end"}]);
    let work = agent(&checks, &script);
    let (bench, verdicts) =
        attempts(vec![work.clone(), with_answers(&work, &[given("Is it sunny?", "yes")])]).await;
    assert_eq!((question(&verdicts[0]), &verdicts[1]), ("Is it sunny?", &inline("end")));
    let entries = journal(&bench, &work).await;
    let shown = outputs(&entries);
    assert!(shown.contains(&("ask_human", false, "yes")), "{shown:?}");
    assert!(shown.iter().any(|output| (output.0, output.1) == ("fs.list", true)), "{shown:?}");
    // The same for a question that a check asks.
    let write = json!({"tool": "fs.write", "arguments": {"path": "outputs/a", "content": "x"}});
    let work = agent(&checks, &json!([{"call": [write, {"tool": "fs.list"}]}, {"say": "end"}]));
    let bench = Bench::run(work.clone(), agreeable()).await;
    bench.until_done().await;
    let asked = question(&bench.verdicts().await[0]).to_owned();
    let (bench, _) = attempts(vec![work.clone(), with_answers(&work, &[given(&asked, "yes")])]).await;
    let entries = journal(&bench, &work).await;
    let shown = outputs(&entries);
    let ended: Vec<(&str, bool)> = shown.iter().map(|output| (output.0, output.1)).collect();
    assert_eq!(ended, [("fs.list", true), ("fs.write", false)], "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn b16_w5_a_resumed_branch_has_its_files_as_its_checks_changed_them() {
    let write = json!({"path": "outputs/a", "content": "the key is sk-abc"});
    let script = json!([
        {"call": [{"tool": "fs.write", "arguments": write}]},
        {"call": [{"tool": "ask_human", "arguments": {"question": "Go on?"}}]},
        {"call": [{"tool": "fs.read", "arguments": {"path": "outputs/a"}}]},
        {"say": "{last}"},
    ]);
    let source = agent(&json!([]), &script);
    let checks = json!([{"name": "keys", "then": "redact", "on": ["before_tool"], "pattern": {"deny": ["sk-[a-z]+"]}}]);
    let mut branch = agent(&checks, &script);
    branch.child_id = id("branch");
    branch.branch_from =
        Some(Checkpoint { trace_id: source.trace_id, child_id: source.child_id.clone(), step: 1 });
    let resumed = with_answers(&branch, &[given("Go on?", "yes")]);
    let works = vec![source.clone(), branch.clone(), resumed.clone()];
    let bench = Bench::start(vec![source.clone(), branch.clone()], in_turn(works.clone())).await;
    for work in &works {
        bench.dispatch(work).await;
        bench.until_done().await;
    }
    let verdicts = bench.verdicts().await;
    let last = serde_json::to_string(&verdicts[2]).unwrap();
    assert!(last.contains("the key is [redacted:keys]") && !last.contains("sk-abc"), "{last}");
}
