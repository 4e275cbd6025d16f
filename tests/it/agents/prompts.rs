//! Prompts as the model server receives them, as snapshots: nothing appears twice, and the agent
//! learns its id, its keys and its limits.

use std::fmt::Write;

use domain::wire::EndStatus;
use serde_json::{Value, json};
use trellis_tests::servers::{ModelServer, Prompt};

use super::{agent, call, foreign::embedded, say};

/// A readable prompt: its messages, the names of its tools, and its schema.
fn rendered(body: &Value) -> String {
    let mut text = String::new();
    for message in body["messages"].as_array().unwrap() {
        let role = message["role"].as_str().unwrap();
        write!(text, "--- {role}").unwrap();
        for called in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &called["function"];
            write!(text, " calls {} {}", function["name"].as_str().unwrap(), function["arguments"]).unwrap();
        }
        let content = message["content"].as_str().unwrap_or_default();
        write!(text, "\n{}\n", shortened(content)).unwrap();
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    let tools: Vec<&str> = tools.map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    writeln!(text, "--- tools: {}", tools.join(", ")).unwrap();
    writeln!(text, "--- schema: {}", body["response_format"]).unwrap();
    text
}

/// Replaces a run of one letter by its length.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut run = 1;
        while letters.next_if_eq(&letter).is_some() {
            run += 1;
        }
        match run {
            1..40 => short.extend(std::iter::repeat_n(letter, run)),
            more => write!(short, "[{letter} × {more}]").unwrap(),
        }
    }
    short
}

fn with(mut value: Value, more: Value) -> Value {
    for (name, more) in more.as_object().unwrap() {
        value[name] = more.clone();
    }
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_c_w8_prompts_are_as_in_their_snapshots() {
    let model = ModelServer::start(|prompt: &Prompt| match (prompt.task().as_str(), prompt.turn()) {
        ("lead", 0) => {
            let share = json!(["system", "context"]);
            call("spawn", json!({"goal": "follow", "agent_id": "described", "share": share}))
        }
        ("use tools", 0) => call("fs_write", json!({"path": "outputs/a.txt", "content": "A"})),
        ("answer with JSON" | "answer with JSON and tools", _) => say("{\"n\": 1}"),
        _ => say("done"),
    })
    .await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let agents = json!([
        with(agent("plain"), json!({"tools": []})),
        with(agent("described"), json!({"system_prompt": null, "description": "counts ants", "tools": []})),
        with(agent("filing"), json!({"tools": ["fs.write"], "limits": {"max_steps": 4}})),
        with(agent("reading"), json!({"tools": ["read_context", "write_context"]})),
        with(agent("all-reading"), json!({"tools": ["read_context"], "reads_all_context": true})),
        with(agent("leading"), json!({"tools": ["spawn", "read_context"]})),
    ]);
    let cluster = embedded(model.settings(), agents).await;
    let inputs =
        json!({"tone": "dry", "large": "x".repeat(5000), "rows": ["y".repeat(1500), "z".repeat(1500)]});
    let step = |agent: &str, more: Value| {
        let step =
            json!({"id": format!("of-{agent}"), "agent_id": agent, "task_description": "use the inputs"});
        json!({"steps": [with(step, more)], "inputs": inputs})
    };
    let reads = json!({"input_from": ["tone", "large", "rows"], "output_to": "out"});
    let item = json!({"for_each": "rows", "output_to": "out", "input_from": ["tone"]});
    let cases = [
        ("plain", json!({"goal": "say it", "agent_id": "plain"})),
        ("described", json!({"goal": "say it", "agent_id": "described", "max_tokens": 50_000})),
        ("schema", json!({"goal": "answer with JSON", "agent_id": "plain", "output_schema": schema})),
        (
            "schema_and_tools",
            json!({"goal": "answer with JSON and tools", "agent_id": "filing", "output_schema": schema}),
        ),
        ("tools", json!({"goal": "use tools", "agent_id": "filing"})),
        ("shared", json!({"goal": "lead", "agent_id": "leading", "inputs": inputs})),
        ("inputs_whole", step("plain", reads.clone())),
        ("inputs_by_reference", step("reading", reads.clone())),
        ("reads_all", step("all-reading", json!({"input_from": ["tone"]}))),
        ("item", with(step("reading", item), json!({"inputs": {"tone": "dry", "rows": ["one row"]}}))),
    ];
    for (name, submission) in cases {
        let before = model.prompts().len();
        let outcome = cluster.client.run(submission).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{name}: {outcome:#?}");
        let prompts: Vec<String> = model.prompts()[before..].iter().map(rendered).collect();
        let text = prompts.join("\n======\n");
        assert_eq!(text.matches("\"integer\"").count(), usize::from(name.starts_with("schema")), "{text}");
        insta::assert_snapshot!(format!("prompt_{name}"), text);
    }
    cluster.stop().await;
}

/// A large input is read in passages, from the store as well as from the context's own inputs.
#[tokio::test(flavor = "multi_thread")]
async fn w8_a_large_input_is_read_in_passages_and_by_pointer() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("read_context", json!({"key": "item", "offset": 4000, "length": 500})),
        1 => call("read_context", json!({"key": "rows", "pointer": "/1", "offset": 0})),
        2 => call("read_context", json!({"key": "rows", "pointer": "/7"})),
        3 => call("read_context", json!({"key": "other", "offset": 0})),
        4 => call("read_context", json!({})),
        _ => say("done"),
    })
    .await;
    let reading = with(agent("reading"), json!({"tools": ["read_context"]}));
    let cluster = embedded(model.settings(), json!([reading])).await;
    let step = json!({"id": "each", "agent_id": "reading", "task_description": "read", "for_each": "items",
        "input_from": ["rows"]});
    let inputs =
        json!({"items": ["x".repeat(5000)], "rows": ["y".repeat(1500), "z".repeat(1500)], "other": "secret"});
    let outcome = cluster.client.run(json!({"steps": [step], "inputs": inputs})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let last = model.prompts().pop().unwrap();
    let messages = last["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
    let read: Vec<&str> = messages.map(|message| message["content"].as_str().unwrap()).collect();
    let next = "[bytes 4000 to 4500 of 5000; the next passage is at offset 4500]";
    assert_eq!(read[0], format!("{}\n{next}", "x".repeat(500)));
    assert_eq!(read[1], format!("{}\n[bytes 0 to 1500 of 1500]", "z".repeat(1500)));
    assert!(
        read[2].contains("`rows` has no `/7`") && read[2].contains("a list of 2 elements"),
        "{}",
        read[2]
    );
    assert!(read[3].starts_with("error:") && !read[3].contains("secret"), "{}", read[3]);
    assert_eq!(read[4], "{\"keys\":[\"index\",\"item\",\"rows\"]}");
    cluster.stop().await;
}
