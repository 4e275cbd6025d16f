//! Hostile providers (S5): each call ends within its deadline with a failure of the right type, and
//! the next call works.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::json;
use tests::servers::{Attack, HostileServer};
use tokio::time::{Instant, timeout};

use super::{Completion, Error, Models, Protocol, TestRequest, models, provider};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
/// The deadline of a call that is served slowly.
const SHORT: Duration = Duration::from_secs(2);

/// A server that attacks its first caller, and answers all others.
struct Hostile {
    models: Models,
    _server: HostileServer,
}

impl Hostile {
    async fn start(protocol: Protocol, attack: Attack) -> Hostile {
        let attacked = AtomicBool::new(false);
        let server = HostileServer::start(move |_| match attacked.swap(true, Ordering::Relaxed) {
            false => attack.clone(),
            true => Attack::once(format!("{OK}\r\n{}", valid(protocol))),
        })
        .await;
        let base_url = format!("http://127.0.0.1:{}/v1", server.port());
        Hostile { models: models([("p", provider(protocol, &base_url))]), _server: server }
    }

    async fn call(&self, timeout: Duration) -> Result<Completion, Error> {
        let request = TestRequest { timeout, ..TestRequest::user("hello") };
        request.send(&self.models, "p/m").await.0
    }
}

fn valid(protocol: Protocol) -> String {
    match protocol {
        Protocol::Openai => {
            let said = json!({"choices": [{"index": 0, "delta": {"content": "yes"}}]});
            let called = json!({"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"x\": [1, 2]}"}}]}}]});
            let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}});
            format!("data: {said}\n\ndata: {called}\n\ndata: {end}\n\ndata: [DONE]\n\n")
        }
        Protocol::Anthropic => {
            let event = |name: &str, data: serde_json::Value| format!("event: {name}\ndata: {data}\n\n");
            let usage = json!({"input_tokens": 10, "output_tokens": 1});
            event("message_start", json!({"type": "message_start", "message": {"usage": usage}}))
                + &event(
                    "content_block_start",
                    json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
                )
                + &event(
                    "content_block_delta",
                    json!({"index": 0, "delta": {"type": "text_delta", "text": "yes"}}),
                )
                + &event("content_block_stop", json!({"index": 0}))
                + &event(
                    "message_delta",
                    json!({"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
                )
                + &event("message_stop", json!({"type": "message_stop"}))
        }
        Protocol::Gemini => {
            let answer = json!({"candidates": [{"content": {"parts": [{"text": "yes"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17}});
            format!("data: {answer}\n\n")
        }
        Protocol::Ollama => {
            let end = json!({"message": {"content": ""}, "done": true, "done_reason": "stop",
                "prompt_eval_count": 9, "eval_count": 2});
            format!("{}\n{end}\n", json!({"message": {"content": "yes"}, "done": false}))
        }
    }
}

/// The answer to an attack. The server answers correctly afterwards.
async fn attacked(protocol: Protocol, attack: Attack, within: Duration) -> Result<Completion, Error> {
    let server = Hostile::start(protocol, attack).await;
    let begun = Instant::now();
    let answer = timeout(within + Duration::from_secs(20), server.call(within)).await;
    let answer = answer.unwrap_or_else(|_| panic!("no end after {:?}", begun.elapsed()));
    let next = server.call(Duration::from_secs(60)).await.unwrap();
    assert_eq!(next.text.as_deref(), Some("yes"));
    answer
}

fn unknown(answer: Result<Completion, Error>) -> String {
    match answer {
        Err(Error::Unknown { message }) => message,
        other => panic!("{other:?}"),
    }
}

/// proves: a compressed answer is neither requested nor read, and no part of any answer is buffered
/// beyond its bound.
#[tokio::test(flavor = "multi_thread")]
async fn s5_an_answer_is_bounded_before_anything_buffers_it() {
    let long = "x".repeat(64 << 10);
    let minute = Duration::from_secs(60);
    // 2,000 bytes of deflated zeros, which are 2 MB. The exact content does not matter, since it is
    // never inflated.
    let gzip = format!("{OK}content-encoding: gzip\r\ncontent-length: 2000\r\n\r\n{}", "\x1f".repeat(2000));
    let message = unknown(attacked(Protocol::Openai, Attack::once(gzip), minute).await);
    assert!(message.contains("encoding"), "{message}");

    for (protocol, head) in [
        (Protocol::Openai, format!("{OK}\r\ndata: ")),
        (Protocol::Anthropic, format!("{OK}\r\nevent: x\ndata: \"")),
        (Protocol::Gemini, format!("{OK}\r\n")),
        (Protocol::Ollama, format!("{OK}\r\n")),
    ] {
        let message = unknown(attacked(protocol, Attack::endless(&head, &long), minute).await);
        assert!(message.contains("larger than 4 MiB"), "{protocol:?}: {message}");
    }
    // An event of many lines, and one with many values in few bytes.
    let lines = format!("data: {}\n", "x".repeat(993)).repeat(60);
    let message =
        unknown(attacked(Protocol::Openai, Attack::endless(&format!("{OK}\r\n"), &lines), minute).await);
    assert!(message.contains("larger than 4 MiB"), "{message}");
    let values = Attack::endless(&format!("{OK}\r\ndata: {{\"a\": ["), &"{\"\":1},".repeat(1000));
    let message = unknown(attacked(Protocol::Openai, values, minute).await);
    assert!(message.contains("values"), "{message}");

    // The body of an error, and headers that never end.
    let error =
        Attack::endless("HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\n\r\n{\"error\": \"", &long);
    match attacked(Protocol::Openai, error, minute).await {
        Err(Error::Refused { message, retryable: false, .. }) => assert!(message.len() < 1000, "{message}"),
        other => panic!("{other:?}"),
    }
    let headers = Attack::endless("HTTP/1.1 200 OK\r\n", &format!("x-long: {long}\r\n"));
    unknown(attacked(Protocol::Openai, headers, minute).await);
    let informed = Attack::drip("", "HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n");
    unknown(attacked(Protocol::Openai, informed, SHORT).await);
}

/// proves: an answer that drips ends at the deadline of the call. The status of an error is used
/// before that.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_slow_answer_ends_with_its_call() {
    for attack in [
        Attack::drip("", "H"),
        Attack::drip("HTTP/1.1 200 OK\r\n", "x: y\r\n"),
        Attack::drip(&format!("{OK}\r\n"), ": still here\n\n"),
        Attack::drip(&format!("{OK}\r\ndata: \""), "x"),
        Attack::drip(&format!("{OK}transfer-encoding: chunked\r\n\r\n"), "1;"),
        Attack::drip(&format!("{OK}content-length: 100000\r\n\r\n"), "\n"),
    ] {
        let first = String::from_utf8_lossy(&attack.first).into_owned();
        let begun = Instant::now();
        unknown(attacked(Protocol::Openai, attack, SHORT).await);
        assert!(begun.elapsed() < Duration::from_secs(20), "{first}");
    }
    let error = Attack::drip("HTTP/1.1 429 Too Many\r\nretry-after: 7\r\n\r\n", "x");
    let answer = attacked(Protocol::Openai, error, Duration::from_secs(60)).await;
    assert!(
        matches!(answer, Err(Error::Refused { retryable: true, retry_after: Some(_), .. })),
        "{answer:?}"
    );
}

/// proves: a request that did not leave this machine costs nothing. Its call is refused, and may be
/// retried.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_call_that_was_not_sent_costs_nothing() {
    let server = Hostile::start(Protocol::Openai, Attack::drip("", "H")).await;
    let answer = server.call(Duration::ZERO).await;
    assert!(matches!(answer, Err(Error::Refused { retryable: true, .. })), "{answer:?}");
    unknown(server.call(SHORT).await);
}

/// proves: an invalid answer is a failure, no redirect is followed, and no impossible number is
/// used.
#[tokio::test(flavor = "multi_thread")]
async fn s5_an_invalid_answer_is_a_failure() {
    let minute = Duration::from_secs(60);
    for to in ["file:///etc/passwd", "http://127.0.0.1:1/", "gopher://x/", "//[::1]/"] {
        let away = format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        let answer = attacked(Protocol::Openai, Attack::once(away), minute).await;
        assert!(matches!(answer, Err(Error::Refused { retryable: false, .. })), "{to}: {answer:?}");
    }
    let deep = format!("{OK}\r\ndata: {}\n\n", "[".repeat(60_000));
    let closing = format!("{OK}content-length: 500\r\n\r\n{}", &valid(Protocol::Openai)[..90]);
    let chunked = format!("{OK}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nx");
    let mut invalid = format!("{OK}\r\ndata: \"").into_bytes();
    invalid.extend([0xff, 0xfe, b'"', b'\n', b'\n']);
    for attack in [deep.into_bytes(), closing.into_bytes(), chunked.into_bytes(), invalid, Vec::new()] {
        unknown(attacked(Protocol::Openai, Attack::once(attack), minute).await);
    }
    for usage in [
        "-5",
        "NaN",
        "1e400",
        "99999999999999999999",
        "\"12\"",
        "null",
        "{}",
        "2147483648",
        "-9223372036854775808",
    ] {
        let said = json!({"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]});
        let body = format!(
            "data: {said}\n\ndata: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{usage},\"completion_tokens\":{usage}}}}}\n\n\
             data: [DONE]\n\n"
        );
        match attacked(Protocol::Openai, Attack::once(format!("{OK}\r\n{body}")), minute).await {
            Ok(answer) => assert_eq!(answer.usage, None, "{usage}: an invalid usage was used"),
            Err(Error::Unknown { .. }) => {}
            Err(other) => panic!("{usage}: {other:?}"),
        }
    }
}

/// proves: for any change of a valid stream, the call ends with an answer or a failure, and the
/// next call works.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_stream_that_was_tampered_with_ends() {
    for protocol in [Protocol::Openai, Protocol::Anthropic, Protocol::Gemini, Protocol::Ollama] {
        for seed in 0..40 {
            let body = mutated(valid(protocol).into_bytes(), seed);
            let whole = [format!("{OK}\r\n").as_bytes(), &body].concat();
            let answer = attacked(protocol, Attack::once(whole), Duration::from_secs(10)).await;
            match answer {
                Ok(_) | Err(Error::Unknown { .. }) => {}
                Err(other) => panic!("{protocol:?} {seed}: {other:?}"),
            }
        }
    }
}

/// A few seeded changes: bytes are replaced, doubled or removed, and pieces are moved.
fn mutated(mut body: Vec<u8>, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    for _ in 0..=next(6) {
        let at = next(body.len());
        match next(6) {
            0 => body[at] = u8::try_from(next(256)).unwrap(),
            1 => drop(body.remove(at)),
            2 => body.truncate(at.max(1)),
            3 => {
                let piece = body[at..(at + next(200)).min(body.len())].repeat(1 + next(50));
                body.splice(at..at, piece);
            }
            4 => {
                let strange: [&[u8]; 8] =
                    [b"\n\n", b"\r", b"\0", b"\"", b"\\u0000", b"{\"a\":", b"data: [DONE]\n\n", b"-1e999"];
                body.splice(at..at, strange[next(8)].iter().copied());
            }
            _ => body.rotate_left(at),
        }
    }
    body
}
