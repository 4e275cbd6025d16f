//! A worker is killed before and after each request of a program: the program is run again, gets
//! the earlier answers from the journal, and the model server's bill equals the booked cost.

use domain::{TraceId, wire::HistoryStep};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use trellis_tests::{
    cluster::{SOON, eventually},
    processes::{Processes, fresh_trace},
    servers::{Gate, ModelServer, Prompt, Reply},
};

use super::{processes_with, python};
use crate::agents::{
    check_bill, cluster, cluster_with, finished, say,
    survives::{A_CALL, Story, count, survives},
};

/// Calls its model, writes a file by a tool, spawns another program, reads its file, calls its
/// model again.
const AUTHOR: &str = r#"
def model(text):
    return ask(type="model", id="m", messages=[{"role": "user", "content": text}])["text"]
def tool(name, **arguments):
    return ask(type="tool", id="t", tool=name, arguments=arguments)["text"]
plan = model("make a plan")
tool("fs.write", path="outputs/plan.md", content=plan)
found = tool("spawn", goal="look it up", agent_id="helper")
read = tool("fs.read", path="outputs/plan.md")
say(type="result", result={"found": found, "read": read, "file": open("outputs/plan.md").read(),
    "told": model("tell of " + read)})
"#;

const HELPER: &str = r#"
said = ask(type="model", id="m", messages=[{"role": "user", "content": "what is it?"}])
say(type="result", result=said["text"])
"#;

pub(super) fn paid(agent_id: &str, body: &str) -> Value {
    let mut agent = python(agent_id, body);
    agent["model"] = json!("test/model");
    agent
}

fn answers(prompt: &Prompt) -> Reply {
    match prompt.last().as_str() {
        "make a plan" => say("ask, then tell"),
        "what is it?" => say("forty-two"),
        asked => say(&format!("told: {asked}")),
    }
}

/// Runs the author with a worker that aborts at `point`, then with a second worker.
async fn author_survives(point: &str, unseen: u64) {
    let plan = "ask, then tell";
    let result =
        json!({"found": "forty-two", "read": plan, "file": plan, "told": "told: tell of ask, then tell"});
    let agents = json!([paid("author", AUTHOR), paid("helper", HELPER)]);
    let journal = survives(Story { agents, model: answers, result, calls: 3 }, point, unseen).await;
    assert_eq!(count(&journal, |step| matches!(step, HistoryStep::Model(_))), 2, "{point}: {journal:#?}");
    assert_eq!(count(&journal, |step| matches!(step, HistoryStep::Tool(_))), 3, "{point}: {journal:#?}");
}

/// proves: the hold of a call that was not made, or whose answer was lost, is booked as estimated
/// (B10).
#[tokio::test(flavor = "multi_thread")]
async fn b10_a_program_killed_before_a_call_and_between_its_answer_and_the_journal() {
    author_survives("held:3", 0).await;
    author_survives("answered:1", 1).await;
}

/// proves: a journaled answer is booked from the journal and its call is not repeated: the bill
/// equals the booked cost (b5).
#[tokio::test(flavor = "multi_thread")]
async fn b10_a_program_killed_when_an_answer_is_written_down() {
    author_survives("written:1", 0).await;
    author_survives("written:3", 0).await;
}

/// proves: a tool that has answered may be called again, a child is started once, and the next
/// attempt's program has the file that a tool wrote.
#[tokio::test(flavor = "multi_thread")]
async fn p_a_program_killed_after_a_tool_and_after_a_spawn() {
    author_survives("called:1", 0).await;
    author_survives("called:2", 0).await;
    author_survives("called:4", 0).await;
}

/// proves: if the journal's last entry is the result, it is reported again, and no program is run.
#[tokio::test(flavor = "multi_thread")]
async fn f03_a_program_killed_after_its_result_was_written_and_after_it_was_reported() {
    author_survives("finished:3", 0).await;
    author_survives("reported:3", 0).await;
}

/// Makes two requests, of which the test delays the second, and returns both answers.
const SLOW: &str = r#"
first = ask(type="model", id="1", messages=[{"role": "user", "content": "first"}])
second = ask(**start["inputs"]["second"])
say(type="result", result=[first["text"], second["text"]])
"#;

fn slow(word: &str) -> Value {
    let mut agent = paid("slow", SLOW);
    agent["command"].as_array_mut().unwrap().push(json!(word));
    agent
}

/// proves: a call in flight ends with its worker and its hold is booked; the next attempt makes the
/// call again, and does not pay again for earlier answers.
#[tokio::test(flavor = "multi_thread")]
async fn f02_a_worker_killed_in_a_programs_model_call() {
    let gate = Gate::default();
    let at = gate.clone();
    let model = ModelServer::start(move |prompt: &Prompt| match prompt.last().as_str() {
        "first" => say("one"),
        _ => Reply { gate: Some(at.clone()), ..say("two") },
    })
    .await;
    let word = format!("slow-{}", fresh_trace());
    let mut cluster = cluster(2, &model, json!([slow(&word)])).await;
    let second = json!({"type": "model", "id": "2", "messages": [{"role": "user", "content": "second"}]});
    let goal = json!({"goal": "wait", "agent_id": "slow", "inputs": {"second": second}});
    let run = cluster.begin(goal).await;
    gate.reached().await;
    kill_its_worker(&mut cluster, run).await;
    gate.reached().await;
    gate.open();
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], json!(["one", "two"]), "{outcome:#}");
    assert_eq!(outcome["attempts"], 2);
    // One call for the first request and two for the second: the killed worker's call is billed
    // too.
    assert_eq!(model.bill().len(), 3, "{:#?}", model.bill());
    check_bill(&model, &[&trace], A_CALL);
    eventually("gone", async || processes_with(&word) == 0).await;
}

/// proves: the next attempt repeats only the tool call in flight, and none before it.
#[tokio::test(flavor = "multi_thread")]
async fn f02_a_worker_killed_in_a_programs_tool_call() {
    let model = ModelServer::start(|_: &Prompt| say("one")).await;
    let page = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = page.local_addr().unwrap();
    let mut settings = model.settings();
    settings["http"] = json!({"allow": [address.to_string()]});
    let word = format!("slow-{}", fresh_trace());
    let mut cluster = cluster_with(2, settings, json!([slow(&word)])).await;
    let second = json!({"type": "tool", "id": "2", "tool": "http.get", "arguments": {"url": format!("http://{address}/")}});
    let goal = json!({"goal": "wait", "agent_id": "slow", "inputs": {"second": second}});
    let run = cluster.begin(goal).await;
    let _unanswered = accepted(&page).await;
    kill_its_worker(&mut cluster, run).await;
    let mut answered = accepted(&page).await;
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\nconnection: close\r\n\r\ntwo";
    answered.write_all(answer.as_bytes()).await.unwrap();
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"][0], "one", "{outcome:#}");
    assert!(outcome["result"][1].as_str().unwrap().contains("two"), "{outcome:#}");
    assert_eq!(outcome["attempts"], 2);
    assert_eq!(model.bill().len(), 1, "{:#?}", model.bill());
    check_bill(&model, &[&trace], 0);
    eventually("gone", async || processes_with(&word) == 0).await;
}

async fn kill_its_worker(cluster: &mut Processes, run: TraceId) {
    let worker = cluster.client.trace(run).await.root().unwrap().attempts[0].worker_id.clone();
    cluster.kill(worker.as_str());
}

/// The next request, read to its end.
async fn accepted(page: &TcpListener) -> TcpStream {
    let accepting = async {
        let (mut stream, _) = page.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream
    };
    tokio::time::timeout(SOON, accepting).await.expect("a request arrives")
}
