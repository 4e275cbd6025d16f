//! Checks that a program or an MCP server decides, and checks on program agents.

use domain::wire::{EndStatus, HistoryStep};
use serde_json::{Value, json};
use trellis_tests::servers::{ModelServer, Prompt};

use super::{checked, decisions, embedded, run, tool_errors};
use crate::agents::{call, say};

fn program(name: &str, script: &str) -> Value {
    json!({"name": name, "on": ["before_tool"], "timeout_ms": 3000, "program": {"command": ["sh", "-c", script]}})
}

/// proves: a check program that fails, is late or prints nonsense denies the call; a working
/// program receives only the call.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_program_that_fails_or_is_late_denies() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_list", json!({"path": "."})),
        _ => say("done"),
    })
    .await;
    let cases = [
        ("exits", "exit 3", "it failed: it ended with exit status: 3"),
        ("late", "sleep 600", "it did not answer within 3000 ms"),
        ("silent", "true", "its answer can't be understood"),
        ("chatty", "echo yes", "its answer can't be understood"),
        ("says-no", r#"echo '{"decision": "deny", "reason": "not on a Monday"}'"#, "not on a Monday"),
        ("absent", "exec /no/such/program", "it failed"),
    ];
    for (name, script, reason) in cases {
        let cluster = embedded(model.settings(), json!([checked(json!([program(name, script)]))])).await;
        let (_, journal) = run(&cluster, name).await;
        assert_eq!(decisions(&journal), [format!("{name} before_tool deny")]);
        let errors = tool_errors(&journal);
        assert!(errors[0].contains(reason), "{name}: {errors:?}");
        cluster.stop().await;
    }
    // The program receives the call, runs in its own directory, and has no secrets.
    let script = r#"
import json, os, sys
asked = json.loads(sys.stdin.readline())
clean = not os.path.exists("input.json") and "OPENAI_API_KEY" not in os.environ
right = asked["moment"] == "before_tool" and asked["tool"] == "fs.list" and asked["arguments"] == {"path": "."}
print(json.dumps({"decision": "change" if clean and right else "halt", "arguments": {"path": "outputs"}}))
"#;
    let check =
        json!({"name": "moves", "on": ["before_tool"], "program": {"command": ["python3", "-c", script]}});
    let cluster = embedded(model.settings(), json!([checked(json!([check]))])).await;
    let (outcome, journal) = run(&cluster, "moves").await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(decisions(&journal), ["moves before_tool change"]);
    let asked = journal.iter().find_map(|entry| entry.step.as_model()).unwrap();
    assert_eq!(
        asked.tool_calls[0].arguments.value(),
        &json!({"path": "outputs"}),
        "the journal has the changed arguments"
    );
    cluster.stop().await;
}

/// proves: an unreachable server denies: no call proceeds without an answer.
#[tokio::test(flavor = "multi_thread")]
async fn b16_an_mcp_check_without_its_server_denies() {
    let model = ModelServer::start(|_: &Prompt| say("done")).await;
    let check = json!({"name": "guard", "on": ["before_call"], "mcp": {"tool": "guard:check"}});
    let cluster = embedded(model.settings(), json!([checked(json!([check]))])).await;
    let (outcome, _) = run(&cluster, "x").await;
    let error = outcome.context.error.clone().unwrap().message;
    assert!(error.contains("denied by the check `guard`: it failed: this worker has no MCP tool"), "{error}");
    assert!(model.bill().is_empty());
    cluster.stop().await;
}

/// An MCP server with one tool. It denies arguments that contain `forbidden`, and gives an invalid
/// answer for `riddle`.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "guard", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "check", "description": "checks", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        told = {"decision": "deny", "reason": "the guard says no"} if "forbidden" in json.dumps(given) else {"decision": "pass"}
        text = "who knows" if "riddle" in json.dumps(given) else json.dumps(told)
        result = {"content": [{"type": "text", "text": text}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

/// proves: an MCP tool decides, even one that the agent itself may not call.
#[tokio::test(flavor = "multi_thread")]
async fn b16_an_mcp_tool_decides() {
    let model = ModelServer::start(|_: &Prompt| say("done")).await;
    let mut settings = model.settings();
    settings["mcp"] = json!({"guard": {"command": ["python3", "-c", SERVER]}});
    let tool = json!({"tool": "guard:check"});
    let check = json!({"name": "guard", "on": ["before_call"], "timeout_ms": 60_000, "mcp": tool});
    let cluster = embedded(settings, json!([checked(json!([check]))])).await;
    let (outcome, _) = run(&cluster, "something good").await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let (outcome, _) = run(&cluster, "something forbidden").await;
    let error = outcome.context.error.clone().unwrap().message;
    assert!(error.ends_with("denied by the check `guard`: the guard says no"), "{error}");
    let (outcome, _) = run(&cluster, "a riddle").await;
    let error = outcome.context.error.clone().unwrap().message;
    assert!(error.contains("its answer can't be understood"), "{error}");
    assert_eq!(model.bill().len(), 1);
    cluster.stop().await;
}

/// A program agent: one allowed and one denied tool call, one allowed and one denied model call.
const PROGRAM: &str = r#"
import json, sys
start = json.loads(sys.stdin.readline())
def ask(**line):
    print(json.dumps(line), flush=True)
    return json.loads(sys.stdin.readline())
wrote = ask(type="tool", id="1", tool="fs.write", arguments={"path": "outputs/a.txt", "content": "my key sk-SECRET"})
denied = ask(type="tool", id="2", tool="fs.write", arguments={"path": "outputs/b.txt", "content": "FORBIDDEN"})
answer = ask(type="model", id="3", messages=[{"role": "user", "content": "say sk-SECRET"}])
refused = ask(type="model", id="4", messages=[{"role": "user", "content": "say FORBIDDEN"},
    {"role": "assistant", "content": "an answer that it made up"}, {"role": "user", "content": "go on"}])
bad = ask(type="model", id="5", messages=[{"role": "user", "content": "say damn"}])
print(json.dumps({"type": "result", "result": {"file": open("outputs/a.txt").read(), "wrote": wrote["is_error"],
    "denied": denied, "answer": answer["text"], "refused": refused, "bad": bad}}), flush=True)
"#;

/// proves: the calls of programs pass through the same checks.
#[tokio::test(flavor = "multi_thread")]
async fn b16_the_calls_of_a_program_are_checked_too() {
    let model = ModelServer::start(|prompt: &Prompt| say(&prompt.last().replace("say ", "you said "))).await;
    let checks = json!([
        {"name": "keys", "then": "redact", "pattern": {"deny": ["sk-[A-Z]+"]}},
        {"name": "words", "pattern": {"deny": ["FORBIDDEN"]}},
        {"name": "polite", "pattern": {"deny": ["damn"]}, "on": ["after_call"]},
    ]);
    let mut agent = checked(checks);
    agent["kind"] = json!("command");
    agent["command"] = json!(["python3", "-c", PROGRAM]);
    let cluster = embedded(model.settings(), json!([agent])).await;
    let (outcome, journal) = run(&cluster, "x").await;
    let result = outcome.context.result.clone().unwrap_or_else(|| panic!("{outcome:#?}"));
    let result = result.value();
    assert_eq!((&result["file"], &result["wrote"]), (&json!("my key [redacted:keys]"), &json!(false)));
    assert_eq!(result["answer"], "you said [redacted:keys]");
    let said =
        |key: &str| (result[key]["is_error"].clone(), result[key]["text"].as_str().unwrap().to_owned());
    assert!(
        said("denied").1.contains("denied by the check `words`") && said("denied").0 == true,
        "{result:#}"
    );
    assert!(
        said("refused").1.contains("denied by the check `words`") && said("refused").0 == true,
        "{result:#}"
    );
    assert!(said("bad").1.contains("denied by the check `polite`") && said("bad").0 == true, "{result:#}");
    assert_eq!(model.bill().len(), 2, "the refused prompt was not sent");
    assert!(!serde_json::to_string(&journal).unwrap().contains("SECRET"));
    assert_eq!(journal.iter().filter(|entry| matches!(entry.step, HistoryStep::Tool(_))).count(), 2);
    cluster.stop().await;
}
