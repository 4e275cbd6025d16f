//! Usages that report less than the bill: with reasoning outside of the output, with reasoning only
//! in the total, or spread over several frames of one stream.

use domain::wire::Usage;
use serde_json::{Value, json};

use super::{Protocol, replay::used};

/// A stream of OpenAI's protocol with these usages: the first is with the end of the answer, the
/// others follow.
fn openai(usages: &[Value]) -> String {
    let (first, others) = usages.split_first().unwrap();
    let mut frames = vec![
        json!({"choices": [{"index": 0, "delta": {"content": "yes"}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": first}),
    ];
    frames.extend(others.iter().map(|usage| json!({"choices": [], "usage": usage})));
    let frames: String = frames.iter().map(|frame| format!("data: {frame}\n\n")).collect();
    frames + "data: [DONE]\n\n"
}

/// A stream of Anthropic's protocol with these usages: the first at its beginning, the others at
/// its end.
fn anthropic(usages: &[Value]) -> String {
    let (first, others) = usages.split_first().unwrap();
    let event = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        format!("event: {name}\ndata: {data}\n\n")
    };
    let text = json!({"index": 0, "content_block": {"type": "text", "text": ""}});
    let delta = json!({"index": 0, "delta": {"type": "text_delta", "text": "yes"}});
    let end = |usage| event("message_delta", json!({"delta": {"stop_reason": "end_turn"}, "usage": usage}));
    event("message_start", json!({"message": {"usage": first}}))
        + &event("content_block_start", text)
        + &event("content_block_delta", delta)
        + &event("content_block_stop", json!({"index": 0}))
        + &others.iter().map(end).collect::<String>()
        + &event("message_stop", json!({}))
}

/// A stream of Gemini's protocol with these usages: the last one with the end of the answer.
fn gemini(usages: &[Value]) -> String {
    let last = usages.len() - 1;
    let frame = |(at, usage): (usize, &Value)| {
        let (text, reason) = if at == last { ("yes", json!("STOP")) } else { ("", Value::Null) };
        let candidate = json!({"content": {"parts": [{"text": text}]}, "finishReason": reason});
        format!("data: {}\n\n", json!({"candidates": [candidate], "usageMetadata": usage}))
    };
    usages.iter().enumerate().map(frame).collect()
}

fn chat(prompt: u64, completion: u64, total: u64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total})
}

fn reasoning(tokens: u64, mut usage: Value) -> Value {
    usage["completion_tokens_details"] = json!({"reasoning_tokens": tokens});
    usage
}

fn cached(tokens: u64, mut usage: Value) -> Value {
    usage["prompt_tokens_details"] = json!({"cached_tokens": tokens});
    usage
}

fn usage(input_tokens: u64, cached_tokens: u64, output_tokens: u64, reasoning_tokens: u64) -> Option<Usage> {
    Some(Usage { input_tokens, cached_tokens, output_tokens, reasoning_tokens, cache_write_tokens: 0 })
}

#[tokio::test]
async fn b3_reasoning_apart_from_the_output_is_part_of_the_bill() {
    for (name, reported, expected) in [
        ("xAI", reasoning(196, chat(32, 26, 254)), usage(32, 0, 222, 196)),
        (
            "more reasoning than output, the total without it",
            reasoning(196, chat(32, 26, 58)),
            usage(32, 0, 222, 196),
        ),
        (
            "less reasoning than output, the total with it",
            reasoning(20, chat(32, 26, 78)),
            usage(32, 0, 46, 20),
        ),
        ("no output but reasoning", reasoning(64, chat(32, 0, 96)), usage(32, 0, 64, 64)),
        ("Gemini by OpenAI's protocol", chat(35, 12, 109), usage(35, 0, 74, 0)),
        ("only a total", json!({"prompt_tokens": 35, "total_tokens": 109}), usage(35, 0, 74, 0)),
        ("OpenAI", reasoning(192, chat(32, 210, 242)), usage(32, 0, 210, 192)),
        ("OpenAI, all of it reasoning", reasoning(210, chat(32, 210, 242)), usage(32, 0, 210, 210)),
        ("OpenAI with a cache", cached(20, chat(32, 10, 42)), usage(32, 20, 10, 0)),
        ("no total", json!({"prompt_tokens": 32, "completion_tokens": 10}), usage(32, 0, 10, 0)),
        ("a total that is too small", chat(32, 10, 12), usage(32, 0, 10, 0)),
        (
            "a total that is impossible",
            json!({"prompt_tokens": 32, "completion_tokens": 10, "total_tokens": -1}),
            usage(32, 0, 10, 0),
        ),
        ("no output at all", json!({"prompt_tokens": 32, "total_tokens": 32}), None),
    ] {
        assert_eq!(used(Protocol::Openai, &openai(&[reported])).await, expected, "{name}");
    }
    let thoughts = json!({"promptTokenCount": 12, "toolUsePromptTokenCount": 3, "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7, "totalTokenCount": 27});
    assert_eq!(used(Protocol::Gemini, &gemini(&[thoughts])).await, usage(15, 0, 12, 7));
    let total = json!({"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 40});
    assert_eq!(used(Protocol::Gemini, &gemini(&[total])).await, usage(12, 0, 28, 0));
    let thinking =
        json!({"input_tokens": 12, "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 40}});
    assert_eq!(used(Protocol::Anthropic, &anthropic(&[json!({}), thinking])).await, usage(12, 0, 50, 40));
}

#[tokio::test]
async fn b3_of_several_usages_each_class_counts_at_its_largest() {
    let (small, large) = (chat(35, 2, 37), chat(35, 40, 75));
    for (name, reported, expected) in [
        ("the last is larger", vec![small.clone(), large.clone()], usage(35, 0, 40, 0)),
        ("the first is larger", vec![large.clone(), small.clone()], usage(35, 0, 40, 0)),
        ("the last has nothing", vec![large.clone(), chat(0, 0, 0)], usage(35, 0, 40, 0)),
        ("the same twice", vec![large.clone(), large.clone()], usage(35, 0, 40, 0)),
        ("one has the input, one the output", vec![chat(35, 0, 35), chat(0, 40, 40)], usage(35, 0, 40, 0)),
        ("the last has the total", vec![small.clone(), chat(35, 12, 109)], usage(35, 0, 74, 0)),
        (
            "the last has the reasoning",
            vec![small.clone(), reasoning(196, chat(35, 26, 257))],
            usage(35, 0, 222, 196),
        ),
        ("the last has the cache", vec![small.clone(), cached(30, large.clone())], usage(35, 30, 40, 0)),
        ("a cache that the other denies", vec![cached(30, small), cached(0, large)], usage(35, 0, 40, 0)),
    ] {
        assert_eq!(used(Protocol::Openai, &openai(&reported)).await, expected, "{name}");
    }
    let start = json!({"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1});
    let expected = Usage { cache_write_tokens: 5, ..usage(35, 20, 30, 0).unwrap() };
    for end in [
        json!({"output_tokens": 30}),
        json!({"input_tokens": 10, "output_tokens": 30}),
        json!({"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 30}),
    ] {
        let ends = [start.clone(), end.clone(), json!({"output_tokens": 3})];
        assert_eq!(used(Protocol::Anthropic, &anthropic(&ends)).await, Some(expected), "{end}");
    }
    // The output at the beginning of a message is only a partial count.
    assert_eq!(used(Protocol::Anthropic, &anthropic(&[start])).await, None);
    let so_far = json!({"promptTokenCount": 12, "candidatesTokenCount": 9, "thoughtsTokenCount": 7, "totalTokenCount": 28});
    let last = json!({"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17});
    assert_eq!(used(Protocol::Gemini, &gemini(&[so_far.clone(), last])).await, usage(12, 0, 16, 7));
    assert_eq!(used(Protocol::Gemini, &gemini(&[so_far, Value::Null])).await, None);
}
