//! The messages between a program and its worker.

use domain::{
    Usd,
    subject::{Filter, Subject},
    wire::{EndStatus, HistoryEntry, HistoryStep, Outcome},
};
use serde_json::{Value, json};
use trellis_tests::cluster::{Cluster, SOON};

use super::{apply, cluster, error, python, result};

async fn run(cluster: &Cluster, agent: Value) -> Outcome {
    let id = agent["agent_id"].clone();
    apply(&cluster.client, vec![agent]).await;
    cluster.client.run(json!({"goal": "two words", "agent_id": id, "inputs": {"a": 1}})).await
}

pub(super) async fn journal(cluster: &Cluster, outcome: &Outcome) -> Vec<HistoryEntry> {
    let subject =
        Subject::History(trellis_tests::subjects::pool(), outcome.trace_id, outcome.context.child_id.clone());
    let stored = cluster.client.bus.read(&Filter::One(subject)).await.unwrap();
    stored.iter().map(|message| serde_json::from_slice(&message.payload).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_program_is_an_agent_whose_output_is_its_result() {
    let cluster = cluster(&[&[]]);
    let shell =
        |id: &str, script: &str| json!({"agent_id": id, "kind": "command", "command": ["sh", "-c", script]});
    assert_eq!(result(&run(&cluster, shell("plain", "echo hello; echo world")).await), "hello\nworld");
    let count = json!({"agent_id": "count", "kind": "command", "command": ["wc", "-l"], "tools": []});
    assert_eq!(result(&run(&cluster, count).await), "1", "the program reads its input to the end");
    let failed = run(&cluster, shell("failed", "echo no luck >&2; exit 3")).await;
    assert_eq!(failed.context.status, EndStatus::Failed);
    assert_eq!(error(&failed), "the program ended with exit code 3: no luck");
    let absent = json!({"agent_id": "absent", "kind": "command", "command": ["no-such-program"]});
    assert!(error(&run(&cluster, absent).await).contains("`no-such-program` could not be run"));
    let long = shell("long", "head -c 2000000 /dev/zero | tr '\\0' x");
    assert!(error(&run(&cluster, long).await).contains("the maximum bytes of a line = "));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_a_program_gets_its_goal_inputs_tools_and_answers() {
    let cluster = cluster(&[&[]]);
    let body = r#"
same = start == json.load(open("input.json"))
wrote = ask(type="tool", id="1", tool="fs.write", arguments={"path": "outputs/a.txt", "content": "hi"})
read = ask(type="tool", id="2", tool="fs.read", arguments={"path": "outputs/a.txt"})
bad = ask(type="tool", id="3", arguments={})
unknown = ask(type="tool", id="4", tool="no.such", arguments={})
say(type="progress", message="nearly")
say(type="result", result={"goal": start["goal"], "inputs": start["inputs"], "same": same, "wrote": wrote["is_error"],
    "read": read, "bad": bad, "unknown": unknown["is_error"], "file": open("outputs/a.txt").read()})
"#;
    let outcome = run(&cluster, python("talks", body)).await;
    let said = result(&outcome);
    assert_eq!(said["goal"], "two words");
    assert_eq!(said["inputs"], json!({"a": 1}));
    assert_eq!((&said["same"], &said["wrote"], &said["file"]), (&json!(true), &json!(false), &json!("hi")));
    assert_eq!((&said["read"]["id"], &said["read"]["type"]), (&json!("2"), &json!("answer")));
    assert!(said["read"]["text"].as_str().unwrap().contains("hi"), "{said}");
    assert_eq!((&said["bad"]["is_error"], &said["bad"]["id"]), (&json!(true), &json!("3")));
    assert!(said["bad"]["text"].as_str().unwrap().contains("missing field `tool`"), "{said}");
    assert_eq!(said["unknown"], true);
    let journal = journal(&cluster, &outcome).await;
    let HistoryStep::Result(last) = &journal.last().unwrap().step else { panic!("{journal:#?}") };
    let report = last.sandbox.as_ref().unwrap();
    // Only few machines delegate cgroups to a test.
    let missing: Vec<_> = report.missing.iter().map(|missing| missing.layer).collect();
    assert!(missing.iter().all(|layer| *layer == domain::agent::Layer::Cgroup), "{report:?}");
    assert_eq!(report.applied.len() + missing.len(), 6, "the report lacks a layer: {report:?}");
    cluster.stop().await;
}

/// A program that waits for an answer gets one, even to an invalid message. A line that may be its
/// result is stored as plain output.
#[tokio::test(flavor = "multi_thread")]
async fn i4_a_message_that_can_not_be_understood_never_leaves_a_program_waiting() {
    let cluster = cluster(&[&[]]);
    let body = r#"
def send(text):
    print(text, flush=True)
    return json.loads(sys.stdin.readline())
lines = ['{"type": "toool", "id": "1"}', '{"type": "tool", "id": "2"', '{"type": "tool", "id": 3, "tool": "fs.list"}',
    '{"type": "tool", "id": "4", "tool": "fs.list", "args": {}}']
say(type="result", result=[send(line) for line in lines])
"#;
    let said = result(&run(&cluster, python("mumbles", body)).await);
    let answer = |n: usize| (said[n]["id"].clone(), said[n]["text"].as_str().unwrap().to_owned());
    for (n, id, says) in [
        (0, json!("1"), "did you mean `tool`?"),
        (1, json!(null), "not valid JSON"),
        (2, json!("3"), "expected a string"),
        (3, json!("4"), "unknown field `args`"),
    ] {
        assert!(answer(n).0 == id && answer(n).1.contains(says), "{n}: {said}");
    }
    let plain = python("prints", "print(json.dumps({'type': 'tol', 'total': 7}))");
    assert_eq!(result(&run(&cluster, plain).await), json!(r#"{"type": "tol", "total": 7}"#));
    let babbles = "while True: say(type='tool', nonsense=True)";
    let outcome = run(&cluster, python("babbles", babbles)).await;
    assert!(
        error(&outcome).contains("the maximum number of invalid messages = 100 (built in)"),
        "{}",
        error(&outcome)
    );
    cluster.stop().await;
}

/// Death by a signal is never a result, whichever process of the sandbox it hits. Another attempt
/// may succeed.
#[tokio::test(flavor = "multi_thread")]
async fn i4_a_program_that_is_killed_is_tried_again_and_never_counts_as_done() {
    let cluster = cluster(&[&[]]);
    let mut agent = python(
        "dies",
        "import os, signal; print('half a result', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    );
    agent["limits"] = json!({"max_retries_total": 1});
    let outcome = run(&cluster, agent).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Failed, 2));
    assert!(error(&outcome).contains("signal 9 (SIGKILL)"), "{}", error(&outcome));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l_each_question_is_a_step_and_the_limit_is_named() {
    let cluster = cluster(&[&[]]);
    let body = r#"
for n in range(100):
    ask(type="tool", id=str(n), tool="fs.list", arguments={})
"#;
    let mut agent = python("asks", body);
    agent["limits"] = json!({"max_steps": 3});
    let outcome = run(&cluster, agent).await;
    assert_eq!(outcome.context.status, EndStatus::Failed);
    assert!(error(&outcome).contains("max_steps"), "{}", error(&outcome));
    let journal = journal(&cluster, &outcome).await;
    let tools = journal.iter().filter(|entry| matches!(entry.step, HistoryStep::Tool(_))).count();
    assert_eq!(tools, 3, "the fourth call is not answered");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_model_calls_go_through_the_worker_and_costs_are_booked_once_by_their_key() {
    let cluster = cluster(&[&[]]);
    let body = r#"
first = ask(type="model", id="m", messages=[{"role": "user", "content": "hello"}])
say(type="cost", key="search-1", usd=0.25, tokens=7)
say(type="cost", key="search-1", usd=0.25, tokens=7)
say(type="result", result=first)
"#;
    let mut agent = python("pays", body);
    agent["model"] = json!("scripted");
    agent["script"] = json!([{"say": "hi there", "usage": {"input_tokens": 1000, "output_tokens": 1000}}]);
    let outcome = run(&cluster, agent).await;
    let said = result(&outcome);
    assert_eq!(said["text"], "hi there");
    assert_eq!(said["usage"]["input_tokens"], 1000);
    // 1,000 tokens at 3 dollars a million, 1,000 at 15, and the 25 cents that the program reported.
    assert_eq!(outcome.context.budget.spent.cost_usd, Usd::from_nanos(18_000_000 + 250_000_000));
    assert_eq!(outcome.context.budget.spent.tokens.count(), 2007);
    cluster.stop().await;
}

/// proves: a journal does not grow with a program's prompts, which may differ in every call.
#[tokio::test(flavor = "multi_thread")]
async fn w5_the_prompts_of_a_program_are_kept_once_and_again_with_another_system_message() {
    let cluster = cluster(&[&[]]);
    let body = r#"
def model(n, system):
    system = {"role": "system", "content": system}
    user = {"role": "user", "content": "question " + str(n)}
    return ask(type="model", id=str(n), messages=[system, user])["text"]
say(type="result", result=[model(n, "plan" if n < 4 else "judge") for n in range(6)])
"#;
    let mut agent = python("asks", body);
    agent["model"] = json!("scripted");
    agent["script"] = json!((0..6).map(|n| json!({"say": format!("answer {n}")})).collect::<Vec<_>>());
    let outcome = run(&cluster, agent).await;
    assert_eq!(result(&outcome)[5], "answer 5");
    let journal = journal(&cluster, &outcome).await;
    let steps: Vec<_> = journal.iter().filter_map(|entry| entry.step.as_model()).collect();
    let is_kept: Vec<bool> = steps.iter().map(|step| step.prompt.is_some()).collect();
    assert_eq!(is_kept, [true, false, false, false, true, false]);
    let texts = |step: usize| -> Vec<&str> {
        let prompt = steps[step].prompt.as_ref().unwrap();
        prompt.messages.iter().map(|message| message.text.as_str()).collect()
    };
    assert_eq!((texts(0), texts(4)), (vec!["plan", "question 0"], vec!["judge", "question 4"]));
    cluster.stop().await;
}

/// A program can report any sum. No more than its budget is booked, the program is notified, and
/// the rest waits for a decision.
#[tokio::test(flavor = "multi_thread")]
async fn b18_a_cost_of_a_program_beyond_its_budget_is_disputed() {
    let cluster = cluster(&[&[]]);
    let body = r#"
fits = ask(type="cost", id="1", key="search", usd=0.004)
again = ask(type="cost", id="2", key="search", usd=0.004)
beyond = ask(type="cost", id="3", key="everything", usd=900000)
say(type="result", result=[fits, again, beyond])
"#;
    let mut agent = python("boasts", body);
    agent["max_cost_usd"] = json!(0.01);
    let outcome = run(&cluster, agent).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    let said = result(&outcome);
    assert_eq!((&said[0]["is_error"], &said[1]["is_error"]), (&json!(false), &json!(false)), "{said}");
    assert_eq!((&said[2]["is_error"], &said[2]["id"]), (&json!(true), &json!("3")), "{said}");
    assert!(said[2]["text"].as_str().unwrap().contains("disputed"), "{said}");
    let budget = &outcome.context.budget;
    assert_eq!((budget.spent.cost_usd, budget.overspent.cost_usd), (Usd::from_cents(1), Usd::ZERO));
    assert_eq!(budget.disputed.cost_usd, Usd::from_nanos(900_000_000_000_000 - 6_000_000));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_program_that_asks_a_human_is_started_again_and_answered_from_the_journal() {
    let cluster = cluster(&[&[]]);
    let body = r#"
first = ask(type="model", id="m", messages=[{"role": "user", "content": "hello"}])
answer = ask(type="tool", id="h", tool="ask_human", arguments={"question": "red or blue?"})
second = ask(type="model", id="n", messages=[{"role": "user", "content": "hello"}])
say(type="result", result=[first["text"], answer["text"], second["text"]])
"#;
    let mut agent = python("asks-people", body);
    agent["model"] = json!("scripted");
    agent["script"] = json!([{"say": "one"}, {"say": "two"}]);
    apply(&cluster.client, vec![agent]).await;
    let accepted = cluster.client.accepted(json!({"goal": "choose", "agent_id": "asks-people"})).await;
    let question = Filter::One(Subject::Question(accepted.trace_id, accepted.child_id.clone()));
    let mut follow = cluster.client.bus.follow(&[question], bus::From::Start).await.unwrap();
    let asked: Value = serde_json::from_slice(&follow.next().await.unwrap().payload).unwrap();
    let input = json!({"trace_id": accepted.trace_id, "answered": {"child_id": accepted.child_id,
        "question": asked["number"], "answer": "blue"}});
    cluster.client.publish(Subject::Input, &input).await;
    let outcome = cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
    let said = result(&outcome);
    assert_eq!((&said[0], &said[2]), (&json!("one"), &json!("two")), "each answer once, in order");
    assert!(said[1].as_str().unwrap().contains("blue"), "{said}");
    let journal = journal(&cluster, &outcome).await;
    let models = journal.iter().filter(|entry| matches!(entry.step, HistoryStep::Model(_))).count();
    assert_eq!(models, 2, "paid calls are not made again");
    cluster.stop().await;
}

/// A program whose result does not fit `output_schema` runs again: with the reason, with its
/// outputs as it left them, and its requests are repeated. The old answers would lead to the same
/// result.
#[tokio::test(flavor = "multi_thread")]
async fn g1_a_program_whose_result_was_refused_begins_anew_behind_it() {
    let cluster = cluster(&[&[]]);
    let body = r#"
import os
before = open("outputs/log.txt").read() if os.path.exists("outputs/log.txt") else ""
answer = ask(type="model", id="m", messages=[{"role": "user", "content": "a number, please"}])
ask(type="tool", id="w", tool="fs.write", arguments={"path": "outputs/log.txt", "content": before + answer["text"] + ";"})
asked = ask(type="tool", id="h", tool="ask_human", arguments={"question": "sure?"})["text"] if "refused" in start else ""
text = answer["text"]
say(type="result", result={"n": int(text) if text.isdigit() else text, "log": open("outputs/log.txt").read(),
    "refused": start.get("refused", ""), "asked": asked, "files": sorted(os.listdir("outputs"))})
"#;
    let mut agent = python("numbers", body);
    agent["model"] = json!("scripted");
    agent["script"] = json!([{"say": "many"}, {"say": "a few"}, {"say": "7"}, {"say": "8"}]);
    apply(&cluster.client, vec![agent]).await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let accepted = cluster
        .client
        .accepted(json!({"goal": "count", "agent_id": "numbers", "output_schema": schema}))
        .await;
    let question = Filter::One(Subject::Question(accepted.trace_id, accepted.child_id.clone()));
    let mut follow = cluster.client.bus.follow(&[question], bus::From::Start).await.unwrap();
    for number in 1..=2 {
        let asked =
            tokio::time::timeout(SOON, follow.next()).await.expect("a refused result leads to a question");
        let asked: Value = serde_json::from_slice(&asked.unwrap().payload).unwrap();
        assert_eq!(asked["number"], number);
        let answered =
            json!({"child_id": accepted.child_id, "question": number, "answer": format!("yes {number}")});
        let input = json!({"trace_id": accepted.trace_id, "answered": answered});
        cluster.client.publish(Subject::Input, &input).await;
    }
    let outcome = cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let said = result(&outcome);
    assert_eq!((&said["n"], &said["log"]), (&json!(7), &json!("many;a few;7;")));
    assert!(said["asked"].as_str().unwrap().contains("yes 2"), "{said}");
    assert!(said["refused"].as_str().unwrap().contains("integer"), "{said}");
    let journal = journal(&cluster, &outcome).await;
    let models = journal.iter().filter(|entry| entry.step.as_model().is_some()).count();
    assert_eq!(models, 3, "not one call for each attempt: {journal:#?}");
    assert_eq!((outcome.context.retries, outcome.context.steps), (2, 8));
    cluster.stop().await;
}
