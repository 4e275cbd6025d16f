//! The checks judge exactly the text that a model receives. A changed text stays changed when a
//! message is extended, and the addition is judged too.

use std::path::Path;

use domain::wire::{CompactionKind, EndStatus};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually},
    processes::fresh_trace,
    servers::{ModelServer, Prompt},
};

use super::decisions;
use crate::agents::{
    call,
    compaction::{compacted, long_call, looping, profile},
    foreign::embedded,
    say,
};

/// An MCP server whose one tool removes a password from texts and appends each text to the file
/// `judged` of a directory. It answers only once the file `go` exists.
const SERVER: &str = r#"
import json, os, sys, time
directory = sys.argv[1]
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "guard", "version": "1"}}
    elif request["method"] == "tools/list":
        result = {"tools": [{"name": "check", "description": "checks", "inputSchema": {"type": "object"}}]}
    elif request["method"] == "tools/call":
        text = request["params"]["arguments"]["text"]
        with open(directory + "/judged", "a") as judged:
            judged.write(json.dumps(text) + "\n")
        while not os.path.exists(directory + "/go"):
            time.sleep(0.01)
        changed = {"decision": "change", "text": text.replace("hunter2", "[GONE]")}
        decision = changed if "hunter2" in text else {"decision": "pass"}
        result = {"content": [{"type": "text", "text": json.dumps(decision)}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

const SECRET: &str = "the password is hunter2";

/// A cluster with the profile `long` and the check, which uses this directory.
async fn guarded(model: &ModelServer, directory: &Path, mut agent: Value) -> Cluster {
    std::fs::create_dir(directory).unwrap();
    let mut settings = model.settings();
    settings["mcp"] =
        json!({"guard": {"command": ["python3", "-c", SERVER, directory], "writes": [directory]}});
    let tool = json!({"tool": "guard:check"});
    agent["checks"] = json!([{"name": "guard", "on": ["before_call"], "timeout_ms": 60_000, "mcp": tool}]);
    embedded(settings, json!([agent])).await
}

fn open(directory: &Path) {
    std::fs::write(directory.join("go"), "").unwrap();
}

fn judged(directory: &Path) -> Vec<String> {
    let lines = std::fs::read_to_string(directory.join("judged")).unwrap_or_default();
    lines.lines().map(str::to_owned).collect()
}

fn assert_hidden(model: &ModelServer) {
    for prompt in model.prompts() {
        let text = prompt.to_string();
        assert!(text.contains("the password is [GONE]") && !text.contains("hunter2"), "{text}");
    }
}

/// proves: the changed task and inputs stay changed when a notice of dropped exchanges is added to
/// them; each text is judged once.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_change_outlives_a_compaction() {
    let model = looping(15, long_call).await;
    let trace_id = fresh_trace();
    let directory = std::env::temp_dir().join(trace_id.to_string());
    let cluster = guarded(&model, &directory, profile(json!({"compaction": "drop"}))).await;
    open(&directory);
    let task = json!({"goal": "loop for long", "agent_id": "long", "trace_id": trace_id, "inputs": {"note": SECRET}});
    let outcome = cluster.client.run(task).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let journal = cluster.client.journal(trace_id, &outcome.context.child_id).await;
    assert!(compacted(&journal, CompactionKind::Dropped) > 1, "{journal:#?}");
    assert_eq!(model.prompts().len(), 16);
    assert_hidden(&model);
    let mut texts = judged(&directory);
    let all = texts.len();
    texts.sort();
    texts.dedup();
    // All outputs of the tool have the same text, so that text is judged once.
    assert_eq!(texts.len(), all, "a text was checked twice: {texts:#?}");
    cluster.stop().await;
    std::fs::remove_dir_all(directory).unwrap();
}

/// proves: the prompt of the last report is judged, although a check already judged the prompt of
/// the call that the budget denied.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_change_outlives_the_last_report() {
    let model = ModelServer::start(|_: &Prompt| say("this far I came")).await;
    let trace_id = fresh_trace();
    let directory = std::env::temp_dir().join(trace_id.to_string());
    let cluster = guarded(&model, &directory, profile(json!({}))).await;
    open(&directory);
    let task = json!({"goal": "loop for long", "agent_id": "long", "trace_id": trace_id, "inputs": {"note": SECRET},
        "max_cost_usd": 1, "closing_reserve_usd": 0.99999});
    let outcome = cluster.client.run(task).await;
    assert_eq!(outcome.context.status, EndStatus::Aborted, "{outcome:#?}");
    let prompts = model.prompts();
    assert!(prompts.len() == 1 && prompts[0].to_string().contains("Your budget ends here"), "{prompts:#?}");
    assert_hidden(&model);
    cluster.stop().await;
    std::fs::remove_dir_all(directory).unwrap();
}

/// proves: a message that arrives while the first call is checked is judged before it is sent,
/// together with the inputs beside it.
#[tokio::test(flavor = "multi_thread")]
async fn b16_a_message_to_an_agent_is_checked_with_the_prompt_around_it() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_read", json!({"path": "input.json"})),
        _ => say("done"),
    })
    .await;
    let trace_id = fresh_trace();
    let directory = std::env::temp_dir().join(trace_id.to_string());
    let mut agent = profile(json!({"window_tokens": 50_000}));
    agent["tools"] = json!(["fs.write"]);
    let cluster = guarded(&model, &directory, agent).await;
    let task = json!({"goal": "loop for long", "agent_id": "long", "trace_id": trace_id, "inputs": {"note": SECRET}});
    let send_message = async {
        eventually("the first call is checked", async || !judged(&directory).is_empty()).await;
        let message = json!({"id": "one", "text": "the other word is hunter2 too."});
        cluster.client.query(json!({"tell": {"trace_id": trace_id, "told": message}})).await;
        open(&directory);
    };
    let (outcome, ()) = tokio::join!(cluster.client.run(task), send_message);
    let prompts = model.prompts();
    assert!(prompts[0].to_string().contains("the other word is [GONE] too."), "{prompts:#?}");
    assert_hidden(&model);
    let journal = cluster.client.journal(trace_id, &outcome.context.child_id).await;
    let expected = ["guard before_call change", "guard before_call change"];
    assert_eq!(decisions(&journal), expected, "the prompt is checked alone, and with the message");
    cluster.stop().await;
    std::fs::remove_dir_all(directory).unwrap();
}
