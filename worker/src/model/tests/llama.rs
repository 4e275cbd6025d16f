//! Against a real model.

use serde_json::{Value, json};
use shared::Json;
use tests::servers::Llama;

use super::{Protocol, Question, models, provider};

#[tokio::test]
async fn b3_a_real_model_answers_in_the_shape_it_is_told_and_says_what_it_used() {
    let server = Llama::start();
    let models = models([
        ("local", provider(Protocol::Openai, &server.v1())),
        ("claude", provider(Protocol::Anthropic, &server.v1())),
    ]);
    let schema = json!({"type": "object", "required": ["capital"], "additionalProperties": false,
        "properties": {"capital": {"type": "string", "enum": ["Paris", "Rome"]}}});
    let question = Question {
        schema: Some(Json::from(schema.clone())),
        max_tokens: 24,
        ..Question::user("What is the capital of France?")
    };
    let (answer, said) = question.ask(&models, "local/smollm2").await;
    let answer = answer.unwrap();
    let text = answer.text.unwrap();
    assert_eq!(said.concat(), text);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(jsonschema::is_valid(&schema, &value), "{text}");
    let usage = answer.usage.unwrap();
    assert!(usage.input_tokens > 5 && (1..=24).contains(&usage.output_tokens), "{usage:?}");

    // In words alone it may miss the shape; it answers, and counts the same way.
    let (answer, said) = question.ask(&models, "claude/smollm2").await;
    let answer = answer.unwrap();
    assert!(!said.is_empty());
    let usage = answer.usage.unwrap();
    assert!(usage.input_tokens > 5 && (1..=24).contains(&usage.output_tokens), "{usage:?}");
}
