//! A model's name at its provider is the name in the settings, which is also the name of its price.

use serde_json::{Value, json};

use super::{Protocol, TestRequest, replay::Replay};

/// Names in which the client finds a reasoning effort or a namespace, and some without either.
const NAMES: [&str; 24] = [
    "gpt-4o-mini",
    "claude-sonnet-5",
    "claude-sonnet-5-high",
    "claude-opus-4-6-max",
    "gemini-2.5-flash",
    "gemini-3-pro-high",
    "gemini-2.5-flash-none",
    "qwen-max",
    "qwen3-max",
    "qwen3.8-max",
    "mistral-medium",
    "mistral-medium-latest",
    "gpt-5.1-codex-max",
    "gpt-5-xhigh",
    "deepseek-r1-zero",
    "local-none",
    "local-low",
    "local-minimal",
    "ft:gpt-4o-mini-2024-07-18:acme::Ab1-low",
    "ollama::qwen3:8b",
    "vendor::a::b-max",
    "accounts/acme/models/x-high",
    "qwen3:8b-max",
    "max",
];

/// The name in a request, and its body.
fn named(protocol: Protocol, request: &str) -> (String, Value) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    if protocol != Protocol::Gemini {
        return (body["model"].as_str().unwrap().to_owned(), body);
    }
    let path = head.split(' ').nth(1).unwrap();
    let name = path.strip_prefix("/v1/models/").unwrap();
    (name.strip_suffix(":streamGenerateContent?alt=sse").unwrap().to_owned(), body)
}

#[tokio::test]
async fn b3_the_name_of_a_model_is_sent_as_it_is_written() {
    for protocol in [Protocol::Openai, Protocol::Anthropic, Protocol::Gemini, Protocol::Ollama] {
        let server = Replay::start("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".into()).await;
        let models = server.models(protocol);
        for name in NAMES {
            let (answer, _) = TestRequest::user("hello").send(&models, &format!("p/{name}")).await;
            assert!(answer.is_err());
            let (sent, body) = named(protocol, &server.requests().pop().unwrap());
            assert_eq!(sent, name, "{protocol:?}");
            let effort = ["reasoning_effort", "thinking", "output_config", "think", "reasoning"];
            assert!(effort.iter().all(|field| body.get(field).is_none()), "{protocol:?}, {name}: {body}");
            assert_eq!(body.pointer("/generationConfig/thinkingConfig"), None, "{name}");
        }
    }
}

/// The name still selects the limit field in the client.
#[tokio::test]
async fn b3_a_name_still_decides_how_its_limit_is_named() {
    let server = Replay::start("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".into()).await;
    let models = server.models(Protocol::Openai);
    for (name, limit) in [
        ("gpt-4o", "max_tokens"),
        ("o4-mini", "max_completion_tokens"),
        ("gpt-5.1-codex-max", "max_completion_tokens"),
    ] {
        let _refused = TestRequest::user("hello").send(&models, &format!("p/{name}")).await;
        let (_, body) = named(Protocol::Openai, &server.requests().pop().unwrap());
        assert_eq!(body[limit], json!(100), "{name}: {body}");
    }
}
