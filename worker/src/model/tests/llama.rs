//! Calls to a real model.

use domain::Json;
use serde_json::{Value, json};
use tests::servers::Llama;

use super::{Protocol, TestRequest, models, provider};

#[tokio::test]
async fn b3_a_real_model_matches_the_schema_and_reports_its_usage() {
    let server = Llama::start();
    let models = models([
        ("local", provider(Protocol::Openai, &server.v1())),
        ("claude", provider(Protocol::Anthropic, &server.v1())),
    ]);
    let schema = json!({"type": "object", "required": ["capital"], "additionalProperties": false,
        "properties": {"capital": {"type": "string", "enum": ["Paris", "Rome"]}}});
    let request = TestRequest {
        schema: Some(Json::from(schema.clone())),
        max_tokens: 24,
        ..TestRequest::user("What is the capital of France?")
    };
    let (answer, pieces) = request.send(&models, "local/smollm2").await;
    let answer = answer.unwrap();
    let text = answer.text.unwrap();
    assert_eq!(pieces.concat(), text);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(jsonschema::is_valid(&schema, &value), "{text}");
    let usage = answer.usage.unwrap();
    assert!(usage.input_tokens > 5 && (1..=24).contains(&usage.output_tokens), "{usage:?}");

    // With the schema only in the prompt, the answer may not match. It still comes with its usage.
    let (answer, pieces) = request.send(&models, "claude/smollm2").await;
    let answer = answer.unwrap();
    assert!(!pieces.is_empty());
    let usage = answer.usage.unwrap();
    assert!(usage.input_tokens > 5 && (1..=24).contains(&usage.output_tokens), "{usage:?}");
}
