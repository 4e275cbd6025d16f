//! Calls to aimock, over all four protocols.

use std::time::Duration;

use domain::{
    Json,
    wire::{ToolCall, Usage},
};
use serde_json::{Value, json};
use tests::servers::AiMock;

use super::{Completion, Error, Message, Models, Protocol, TestRequest, is_unknown, models, provider, tool};

const ALL: [&str; 4] = ["openai/m", "anthropic/m", "gemini/m", "ollama/m"];

fn all(server: &AiMock) -> Models {
    models([
        ("openai", provider(Protocol::Openai, &server.v1())),
        ("anthropic", provider(Protocol::Anthropic, &server.v1())),
        ("gemini", provider(Protocol::Gemini, &server.gemini())),
        ("ollama", provider(Protocol::Ollama, &server.ollama())),
        ("router", provider(Protocol::Openai, &server.openrouter())),
    ])
}

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

#[tokio::test]
async fn b3_text_comes_in_pieces_and_with_its_usage() {
    let text = "An answer that is long enough to come in more than one piece.";
    let used = json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18});
    let server = AiMock::start(&json!([
        {"match": {"userMessage": "short"}, "response": {"content": text, "finishReason": "length", "usage": used}},
        {"match": {}, "response": {"content": text, "usage": used}},
    ]));
    let models = all(&server);
    for model in ALL {
        let (answer, pieces) = TestRequest::user("hello").send(&models, model).await;
        // aimock reports no usage over the Ollama protocol, even if the fixture has one.
        let counted = (model != "ollama/m").then(|| usage(11, 7));
        let answer = answer.unwrap();
        let named = answer.named.clone();
        let said = Some(text.into());
        let whole = Completion { text: said, calls: Vec::new(), usage: counted, cut_off: false, named };
        assert_eq!(answer, whole, "{model}");
        // Ollama gives its answers no ids, and aimock gives those of Gemini no names at all.
        let (id, by) = (answer.named.id.is_some(), answer.named.model.is_some());
        let given =
            (model.starts_with("openai") || model.starts_with("anthropic"), !model.starts_with("gemini"));
        assert_eq!((id, by), given, "{model}: {:?}", answer.named);
        assert!(pieces.len() > 1, "{model}: {pieces:?}");
        assert_eq!(pieces.concat(), text, "{model}");
        if model != "ollama/m" {
            let (answer, _) = TestRequest::user("short").send(&models, model).await;
            assert!(answer.unwrap().cut_off, "{model}");
        }
    }
    let billed: Vec<_> = server.bill().iter().map(|call| call.tokens().unwrap()).collect();
    assert_eq!(billed, [(11, 7); 7]);
}

#[tokio::test]
async fn b3_cached_written_and_reasoning_tokens_are_parts() {
    let used = json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 4}});
    let server = AiMock::start(&json!([{"match": {}, "response": {"content": "yes", "usage": used}}]));
    let (answer, _) = TestRequest::user("hello").send(&all(&server), "router/m").await;
    let expected = Usage {
        input_tokens: 50,
        cached_tokens: 30,
        cache_write_tokens: 10,
        output_tokens: 9,
        reasoning_tokens: 4,
    };
    assert_eq!(answer.unwrap().usage, Some(expected));
}

#[tokio::test]
async fn b10_usage_that_is_not_reported_is_unknown() {
    let server = AiMock::start(&json!([{"match": {}, "response": {"content": "yes"}}]));
    let models = all(&server);
    // For OpenAI, aimock invents the usage.
    for model in ["anthropic/m", "gemini/m", "ollama/m"] {
        let (answer, _) = TestRequest::user("hello").send(&models, model).await;
        assert_eq!(answer.unwrap().usage, None, "{model}");
    }
}

#[tokio::test]
async fn i5_two_tool_calls_of_one_answer_keep_our_names_both_ways() {
    let server = AiMock::start(&json!([
        {"match": {"hasToolResult": true}, "response": {"content": "done"}},
        {"match": {}, "response": {"toolCalls": [
            {"id": "call_a", "name": "fs_read", "arguments": {"path": "a"}},
            {"id": "call_b", "name": "fs_read_2", "arguments": {"x": [1]}},
        ]}},
    ]));
    let models = all(&server);
    for model in ALL {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        // Both names would become `fs_read`.
        let tools = vec![tool("fs.read", parameters.clone()), tool("fs:read", parameters)];
        let mut request = TestRequest { tools, ..TestRequest::user("use them") };
        let (answer, _) = request.send(&models, model).await;
        let calls = answer.unwrap().calls;
        let seen: Vec<_> =
            calls.iter().map(|call| (call.tool.as_str(), call.arguments.value().clone())).collect();
        assert_eq!(seen, [("fs.read", json!({"path": "a"})), ("fs:read", json!({"x": [1]}))], "{model}");
        assert_ne!(calls[0].id, calls[1].id, "{model}");

        let results = calls.iter().map(|call| Message::Tool {
            id: call.id.clone(),
            tool: call.tool.clone(),
            content: format!("result of {}", call.tool),
        });
        let results: Vec<Message> = results.collect();
        request.messages.push(Message::Assistant { text: Some("let me see".into()), calls: calls.clone() });
        request.messages.extend(results);
        let (answer, _) = request.send(&models, model).await;
        assert_eq!(answer.unwrap().text.as_deref(), Some("done"), "{model}");

        let sent = server.journal().pop().unwrap().body.unwrap();
        let names: Vec<_> =
            sent["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["fs_read", "fs_read_2"], "{model}");
        let messages = sent["messages"].as_array().unwrap();
        let asked = messages.iter().find(|message| message["tool_calls"].is_array()).unwrap();
        let names: Vec<_> =
            asked["tool_calls"].as_array().unwrap().iter().map(|call| &call["function"]["name"]).collect();
        assert_eq!(names, ["fs_read", "fs_read_2"], "{model}");
        let results: Vec<&Value> = messages.iter().filter(|message| message["role"] == "tool").collect();
        assert_eq!(results.len(), 2, "{model}");
        assert!(results[1]["content"].to_string().contains("result of fs:read"), "{model}: {results:?}");
    }
}

#[tokio::test]
async fn b15_a_status_decides_whether_and_when_to_retry() {
    let statuses = [
        (400, false),
        (401, false),
        (404, false),
        (409, true),
        (413, false),
        (425, true),
        (429, true),
        (500, true),
        (503, true),
        (529, true),
    ];
    let fixtures = statuses.map(|(status, _)| {
        json!({"match": {"userMessage": format!("give {status}")},
            "response": {"error": {"message": "so it is", "type": "test"}, "status": status, "retryAfter": 7}})
    });
    let server = AiMock::start(&fixtures.into_iter().collect());
    let models = all(&server);
    for model in ALL {
        for (status, expected) in statuses {
            let (answer, pieces) = TestRequest::user(&format!("give {status}")).send(&models, model).await;
            let Err(Error::Refused { message, retryable, retry_after }) = answer else {
                panic!("{model} {status}: {answer:?}")
            };
            assert_eq!(retryable, expected, "{model} {status}");
            assert!(message.contains(&status.to_string()) && message.contains("so it is"), "{message}");
            assert_eq!(retry_after, (status == 429).then_some(Duration::from_secs(7)), "{model} {status}");
            assert!(pieces.is_empty());
        }
    }
    assert!(server.bill().is_empty());
}

#[tokio::test]
async fn b10_an_answer_that_breaks_off_has_an_unknown_outcome() {
    let text = "Much of this is never seen, because the connection ends in the middle of it all.";
    let broken = |name: &str, how: Value| {
        let mut fixture = json!({"match": {"userMessage": name}, "response": {"content": text}});
        fixture.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
        fixture
    };
    let server = AiMock::start(&json!([
        broken("cut", json!({"truncateAfterChunks": 2, "latency": 20})),
        broken("gone", json!({"chaos": {"disconnectRate": 1}})),
        broken("garbage", json!({"chaos": {"malformedRate": 1}})),
    ]));
    let models = all(&server);
    for model in ALL {
        for how in ["cut", "gone", "garbage"] {
            let (answer, pieces) = TestRequest::user(how).send(&models, model).await;
            assert!(is_unknown(&answer), "{model} {how}: {answer:?} after {pieces:?}");
        }
    }
    assert!(server.bill().iter().any(tests::servers::Billed::is_interrupted), "the call was served");
}

#[tokio::test]
async fn b10_a_call_that_hangs_is_dropped_at_its_timeout() {
    let server = AiMock::start(&json!([{"match": {}, "response": {"content": "late"}}]));
    let models = all(&server);
    server.pause();
    for model in ALL {
        let request = TestRequest { timeout: Duration::from_millis(200), ..TestRequest::user("hello") };
        let (answer, _) = request.send(&models, model).await;
        assert!(is_unknown(&answer), "{model}: {answer:?}");
    }
}

#[tokio::test]
async fn an_output_schema_is_enforced_or_in_the_prompt() {
    let server = AiMock::start(&json!([{"match": {}, "response": {"content": "{\"n\": 1}"}}]));
    let models = all(&server);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    for model in ALL {
        for with_tools in [false, true] {
            let tools =
                if with_tools { vec![tool("fs.read", json!({"type": "object"}))] } else { Vec::new() };
            let schema = Some(Json::from(schema.clone()));
            let (answer, _) =
                TestRequest { schema, tools, ..TestRequest::user("count") }.send(&models, model).await;
            answer.unwrap();
            let sent = server.journal().pop().unwrap().body.unwrap();
            let enforced = sent["response_format"]["type"] == "json_schema";
            let in_prompt = sent["messages"].to_string().contains("JSON Schema");
            // aimock does not record the schema that Gemini gets.
            let expected = match (model, with_tools) {
                ("openai/m", false) => (true, false),
                ("gemini/m", false) => (enforced, false),
                (_, _) => (false, true),
            };
            assert_eq!((enforced, in_prompt), expected, "{model}, tools: {with_tools}: {sent}");
        }
    }
}

#[tokio::test]
async fn ids_of_calls_are_unique_in_the_conversation() {
    let call = |path: &str| json!({"id": "call_a", "name": "fs_read", "arguments": {"path": path}});
    let server = AiMock::start(&json!([{"match": {}, "response": {"toolCalls": [call("a"), call("b")]}}]));
    let models = all(&server);
    for model in ALL {
        let before =
            ToolCall { id: "call_a".into(), tool: "fs.read".into(), arguments: Json::from(json!("odd")) };
        let mut request = TestRequest {
            tools: vec![tool("fs.read", json!({"type": "object"}))],
            ..TestRequest::user("go")
        };
        request.messages.push(Message::Assistant { text: None, calls: vec![before] });
        let answered = Message::Tool { id: "call_a".into(), tool: "fs.read".into(), content: "no".into() };
        request.messages.push(answered);
        let calls = request.send(&models, model).await.0.unwrap().calls;
        assert!(
            calls[0].id != calls[1].id && calls.iter().all(|call| call.id != "call_a"),
            "{model}: {calls:?}"
        );
    }
}
