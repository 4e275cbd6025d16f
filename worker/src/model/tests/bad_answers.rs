//! Bad answers of providers: answers without end, repeated calls, and impossible indexes of calls.

use domain::wire::ToolCall;
use serde_json::{Value, json};

use super::{Error, Protocol, TestRequest, replay::Replay};

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn openai(delta: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
}

fn gemini(part: &Value) -> String {
    format!("data: {}\n\n", json!({"candidates": [{"content": {"parts": [part]}}]}))
}

fn chunk(index: u64, id: &str, name: &str, arguments: &str) -> String {
    let function = json!({"name": name, "arguments": arguments});
    openai(&json!({"tool_calls": [{"index": index, "id": id, "function": function}]}))
}

async fn calls(protocol: Protocol, body: &str) -> Vec<ToolCall> {
    let server = Replay::stream(body).await;
    let (answer, _) = TestRequest::user("hello").send(&server.models(protocol), "p/m").await;
    answer.unwrap().calls
}

#[tokio::test]
async fn b10_an_endless_answer_is_cut_off_and_may_be_charged() {
    let long = "a".repeat(64 << 10);
    let started = |block: &Value| event("content_block_start", &json!({"index": 0, "content_block": block}));
    let more = |delta: &Value| event("content_block_delta", &json!({"index": 0, "delta": delta}));
    let called = started(&json!({"type": "tool_use", "id": "a", "name": "t"}));
    let indexes: String = (0..2000).map(|index| chunk(index, "a", "t", "")).collect();
    let lines = |message: &Value| format!("{}\n", json!({"message": message, "done": false}));
    let endless = [
        (Protocol::Openai, String::new(), openai(&json!({"content": long}))),
        (Protocol::Openai, String::new(), openai(&json!({"reasoning_content": long}))),
        (Protocol::Openai, chunk(0, "a", "t", ""), chunk(0, "", "", &long)),
        (Protocol::Openai, String::new(), indexes),
        (Protocol::Anthropic, String::new(), more(&json!({"type": "text_delta", "text": long}))),
        (
            Protocol::Anthropic,
            called.clone(),
            more(&json!({"type": "input_json_delta", "partial_json": long})),
        ),
        (Protocol::Anthropic, String::new(), called),
        (Protocol::Gemini, String::new(), gemini(&json!({"text": long}))),
        (
            Protocol::Gemini,
            String::new(),
            gemini(&json!({"functionCall": {"name": "t", "args": {"a": long}}})),
        ),
        (Protocol::Ollama, String::new(), lines(&json!({"content": long}))),
        (
            Protocol::Ollama,
            String::new(),
            lines(&json!({"tool_calls": [{"function": {"name": "t", "arguments": {"a": long}}}]})),
        ),
    ];
    for (n, (protocol, begins, again)) in endless.into_iter().enumerate() {
        let server = Replay::endless(&begins, &again).await;
        let (answer, _) = TestRequest::user("hello").send(&server.models(protocol), "p/m").await;
        let message = "the answer of `p` is larger than 4 MiB".into();
        assert_eq!(answer, Err(Error::Unknown { message }), "{n}");
    }
}

#[tokio::test]
async fn a_long_answer_in_small_pieces_is_accepted() {
    // With Anthropic the client repeats the earlier arguments in each piece.
    let delta = json!({"index": 0, "delta": {"type": "input_json_delta", "partial_json": "a".repeat(1000)}});
    let block = json!({"index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "t"}});
    let body = event("content_block_start", &block)
        + &event("content_block_delta", &delta).repeat(1000)
        + &event("content_block_stop", &json!({"index": 0}))
        + &event("message_stop", &json!({"type": "message_stop"}));
    let calls = calls(Protocol::Anthropic, &body).await;
    assert_eq!(calls[0].arguments.value().as_str().map(str::len), Some(1_000_000));
}

#[tokio::test]
async fn an_index_only_identifies_a_call() {
    // An index that starts at one, a call in several pieces, and indexes too large for a list.
    let body = chunk(1, "a", "t", "")
        + &chunk(4_000_000_000, "b", "t", "{}")
        + &chunk(u64::MAX, "c", "t", "{}")
        + &chunk(1, "", "", "{\"x\":")
        + &chunk(1, "", "", " 1}")
        + "data: [DONE]\n\n";
    let calls = calls(Protocol::Openai, &body).await;
    let ids_and_arguments: Vec<(&str, &Value)> =
        calls.iter().map(|call| (&*call.id, call.arguments.value())).collect();
    assert_eq!(ids_and_arguments, [("a", &json!({"x": 1})), ("b", &json!({})), ("c", &json!({}))]);
}

#[tokio::test]
async fn a_repeated_call_counts_once() {
    let twice = |second: &str| chunk(0, "a", "t", "{}") + second + "data: [DONE]\n\n";
    assert_eq!(calls(Protocol::Openai, &twice(&chunk(1, "a", "t", "{}"))).await.len(), 1);
    for other in [chunk(1, "b", "t", "{}"), chunk(1, "a", "u", "{}"), chunk(1, "a", "t", "{\"x\": 1}")] {
        let calls = calls(Protocol::Openai, &twice(&other)).await;
        assert_eq!(calls.len(), 2, "{other}");
        assert_ne!(calls[0].id, calls[1].id, "{other}");
    }
    // Calls without an id are never merged.
    let call = gemini(&json!({"functionCall": {"name": "t", "args": {}}}));
    let end = "data: {\"candidates\":[{\"content\":{\"parts\":[]},\"finishReason\":\"STOP\"}]}\n\n";
    assert_eq!(calls(Protocol::Gemini, &(call.repeat(2) + end)).await.len(), 2);
}
