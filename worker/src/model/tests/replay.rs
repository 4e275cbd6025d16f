//! Calls that get fixed bytes in the form of providers, for cases that no test server produces.

use std::{
    io::Write,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::wire::Usage;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{Error, Models, Protocol, TestRequest, is_unknown, models, provider};
use crate::settings::{Provider, Settings};

/// A variable that cargo sets for every test. It is used as the key.
const KEY_ENV: &str = "CARGO_MANIFEST_DIR";
const KEY: &str = env!("CARGO_MANIFEST_DIR");

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A server that answers every request with the same bytes and ends the connection.
pub(super) struct Replay {
    base_url: String,
    requests: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Replay {
    pub(super) async fn start(answer: String) -> Replay {
        Replay::answering(answer, String::new()).await
    }

    /// A stream that begins with `begins` and repeats `again` until the connection is closed.
    pub(super) async fn endless(begins: &str, again: &str) -> Replay {
        Replay::answering(format!("{HEAD}{begins}"), again.to_owned()).await
    }

    async fn answering(answer: String, again: String) -> Replay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base_url = format!("http://127.0.0.1:{}/v1", listener.local_addr().unwrap().port());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let read = requests.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read_request(&mut stream).await;
                read.lock().unwrap().push(request);
                stream.write_all(answer.as_bytes()).await.unwrap();
                while !again.is_empty() && stream.write_all(again.as_bytes()).await.is_ok() {}
                stream.shutdown().await.ok();
            }
        });
        Replay { base_url, requests, accepting }
    }

    /// The requests so far, with their heads.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// A stream of events or lines that ends after the text.
    pub(super) async fn stream(body: &str) -> Replay {
        Replay::start(format!("{HEAD}{body}")).await
    }

    pub(super) fn models(&self, protocol: Protocol) -> Models {
        models([("p", provider(protocol, &self.base_url))])
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Reads the head, and a body of the length in the head.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).await.unwrap();
        assert!(length > 0, "a request has an end");
        request.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() >= length.parse::<usize>().unwrap() {
            return text;
        }
    }
}

/// The usage of a call that gets this stream, whose text is `yes`.
pub(super) async fn used(protocol: Protocol, body: &str) -> Option<Usage> {
    let server = Replay::stream(body).await;
    let (answer, _) = TestRequest::user("hello").send(&server.models(protocol), "p/m").await;
    let answer = answer.unwrap();
    assert_eq!(answer.text.as_deref(), Some("yes"));
    answer.usage
}

#[tokio::test]
async fn b3_usage_is_found_wherever_a_provider_puts_it() {
    let openai = |usage: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"yes\"}}}}]}}\n\n\
             data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n\
             {usage}data: [DONE]\n\n"
        )
    };
    // LiteLLM's last chunk has an empty choice.
    let litellm = "data: {\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":{\"prompt_tokens\":12,\
        \"completion_tokens\":3,\"total_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n";
    let expected = Usage { input_tokens: 12, cached_tokens: 8, output_tokens: 3, ..Usage::default() };
    assert_eq!(used(Protocol::Openai, &openai(litellm)).await, Some(expected));
    assert_eq!(used(Protocol::Openai, &openai("")).await, None);
    let zero = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\n";
    assert_eq!(used(Protocol::Openai, &openai(zero)).await, None);

    // Anthropic's input tokens exclude the tokens that are read from and written to a cache.
    let anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\
        \"input_tokens\":10,\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":20,\"output_tokens\":1}}}\n\n\
        event: content_block_start\ndata: {\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
        event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"yes\"}}\n\n\
        event: content_block_stop\ndata: {\"index\":0}\n\n\
        event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":30}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let expected = Usage {
        input_tokens: 35,
        cached_tokens: 20,
        cache_write_tokens: 5,
        output_tokens: 30,
        reasoning_tokens: 0,
    };
    assert_eq!(used(Protocol::Anthropic, anthropic).await, Some(expected));

    // Gemini counts reasoning separately from its answer.
    let gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"yes\"}]},\"finishReason\":\"STOP\"}],\
        \"usageMetadata\":{\"promptTokenCount\":12,\"cachedContentTokenCount\":4,\"candidatesTokenCount\":5,\
        \"thoughtsTokenCount\":7,\"totalTokenCount\":24}}\n\n";
    let expected = Usage {
        input_tokens: 12,
        cached_tokens: 4,
        cache_write_tokens: 0,
        output_tokens: 12,
        reasoning_tokens: 7,
    };
    assert_eq!(used(Protocol::Gemini, gemini).await, Some(expected));

    let ollama = "{\"message\":{\"content\":\"yes\"},\"done\":false}\n\
        {\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":9,\"eval_count\":2}\n";
    let expected = Usage { input_tokens: 9, output_tokens: 2, ..Usage::default() };
    assert_eq!(used(Protocol::Ollama, ollama).await, Some(expected));
}

#[tokio::test]
async fn b10_half_a_stream_that_ends_cleanly_has_an_unknown_outcome() {
    let halves = [
        (Protocol::Openai, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"}}]}\n\n"),
        (
            Protocol::Anthropic,
            "event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"half\"}}\n\n",
        ),
        (Protocol::Gemini, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"half\"}]}}]}\n\n"),
        (Protocol::Ollama, "{\"message\":{\"content\":\"half\"},\"done\":false}\n"),
    ];
    for (protocol, half) in halves {
        let server = Replay::stream(half).await;
        let (answer, pieces) = TestRequest::user("hello").send(&server.models(protocol), "p/m").await;
        assert_eq!(pieces, ["half"], "{protocol:?}");
        assert!(is_unknown(&answer), "{protocol:?}: {answer:?}");
    }
}

#[tokio::test]
async fn arguments_that_are_not_json_are_passed_on_unchanged() {
    let call = |arguments: &str| {
        let delta = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": arguments}}]});
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]});
        format!("data: {chunk}\n\ndata: [DONE]\n\n")
    };
    for (given, expected) in [
        ("{\"a\": ", json!("{\"a\": ")),
        ("[1]", json!([1])),
        ("{\"a\": 1}", json!({"a": 1})),
        ("", json!({})),
    ] {
        let server = Replay::stream(&call(given)).await;
        let (answer, _) = TestRequest::user("hello").send(&server.models(Protocol::Openai), "p/m").await;
        assert_eq!(answer.unwrap().calls[0].arguments.value(), &expected);
    }
}

#[tokio::test]
async fn b15_a_retry_date_is_compared_with_the_date_of_the_same_answer() {
    let server = Replay::start(
        "HTTP/1.1 503 Service Unavailable\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         retry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\ncontent-length: 4\r\n\r\nbusy"
            .into(),
    )
    .await;
    let (answer, _) = TestRequest::user("hello").send(&server.models(Protocol::Openai), "p/m").await;
    let message = "`p` answered 503 Service Unavailable: busy".into();
    let expected = Error::Refused { message, retryable: true, retry_after: Some(Duration::from_secs(30)) };
    assert_eq!(answer, Err(expected));
}

#[tokio::test]
async fn b10_a_status_of_a_gateway_is_an_unknown_outcome() {
    for (status, is_known) in [
        (408, false),
        (500, true),
        (502, false),
        (503, true),
        (504, false),
        (520, false),
        (522, false),
        (524, false),
        (525, true),
        (529, true),
    ] {
        let answer = format!("HTTP/1.1 {status} So\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nlate");
        let server = Replay::start(answer).await;
        let (answer, _) = TestRequest::user("hello").send(&server.models(Protocol::Openai), "p/m").await;
        assert_eq!(is_unknown(&answer), !is_known, "{status}: {answer:?}");
        let message = answer.unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("`p` answered {status}")) && message.ends_with(": late"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn b10_a_call_that_was_not_sent_is_refused_and_retryable() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let base_url = format!("http://127.0.0.1:{}/v1", listener.local_addr().unwrap().port());
    drop(listener);
    for base_url in [base_url.as_str(), "http://no-such-host.invalid/v1"] {
        let models = models([("p", provider(Protocol::Anthropic, base_url))]);
        let (answer, _) = TestRequest::user("hello").send(&models, "p/m").await;
        assert!(matches!(answer, Err(Error::Refused { retryable: true, .. })), "{base_url}: {answer:?}");
    }
}

#[tokio::test]
async fn b12_a_call_at_its_timeout_closes_its_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let base_url = format!("http://127.0.0.1:{}/v1", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await.unwrap();
        // Waits until the other side has closed the connection, properly or not.
        stream.read(&mut [0]).await.unwrap_or(0)
    });
    let models = models([("p", provider(Protocol::Openai, &base_url))]);
    let request = TestRequest { timeout: Duration::from_secs(2), ..TestRequest::user("hello") };
    let (answer, _) = request.send(&models, "p/m").await;
    assert!(is_unknown(&answer), "{answer:?}");
    assert_eq!(server.await.unwrap(), 0);
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    for protocol in [Protocol::Openai, Protocol::Anthropic, Protocol::Gemini, Protocol::Ollama] {
        let body = json!({"error": {"message": format!("the key {KEY} is wrong")}}).to_string();
        let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n", body.len());
        let server = Replay::start(head + &body).await;
        let keyed = Provider { key_env: Some(KEY_ENV.into()), ..provider(protocol, &server.base_url) };
        let models = models([("p", keyed)]);
        let (answer, _) = TestRequest::user("hello").send(&models, "p/m").await;
        let message = "`p` answered 401 Unauthorized: the key [key] is wrong".into();
        assert_eq!(answer, Err(Error::Refused { message, retryable: false, retry_after: None }));
        assert!(!format!("{models:?}").contains(KEY), "{protocol:?}");
    }
    tracing::info!("the log is read");
    let text = log.0.lock().unwrap().clone();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("the log is read") && !text.contains(KEY), "{text}");
}

#[tokio::test]
async fn a_key_is_not_sent_to_a_redirect() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        let away = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{port}/away\r\n");
        stream.write_all((away + "content-length: 0\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        (request, listener)
    });
    let base_url = format!("http://127.0.0.1:{port}/v1");
    let keyed = Provider { key_env: Some(KEY_ENV.into()), ..provider(Protocol::Anthropic, &base_url) };
    let (answer, _) = TestRequest::user("hello").send(&models([("p", keyed)]), "p/m").await;
    assert!(matches!(answer, Err(Error::Refused { retryable: false, .. })), "{answer:?}");
    let (request, listener) = server.await.unwrap();
    assert!(request.contains(&format!("x-api-key: {KEY}")), "{request}");
    let followed = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(followed.is_err(), "the redirect is not followed");
}

#[tokio::test]
async fn a_name_without_a_provider_or_a_key_is_refused_with_a_hint() {
    let keyless = Provider {
        key_env: Some("TRELLIS_NO_SUCH_KEY".into()),
        ..provider(Protocol::Openai, "http://127.0.0.1:1/v1")
    };
    let models = models([("keyless", keyless)]);
    for (model, expected) in [
        ("keyless/m", "TRELLIS_NO_SUCH_KEY"),
        ("nobody/m", "the providers of this worker are anthropic, gemini, keyless, ollama, openai"),
        ("llama3", "write `<provider>/<model>`"),
    ] {
        let (answer, _) = TestRequest::user("hello").send(&models, model).await;
        let Err(Error::Refused { message, retryable: false, .. }) = answer else { panic!("{answer:?}") };
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn all_invalid_settings_are_listed_together() {
    let at = |base_url: &str| provider(Protocol::Openai, base_url);
    let providers = [
        ("a/b".to_owned(), at("http://127.0.0.1/")),
        ("scripted".to_owned(), at("http://127.0.0.1/")),
        ("c".to_owned(), at("not an address")),
        ("d".to_owned(), at("ftp://127.0.0.1/")),
        ("e".to_owned(), at("http://user:secret@127.0.0.1/")),
    ];
    let settings = Settings { providers: providers.into(), ..Settings::default() };
    let problems = Models::new(&settings).unwrap_err().to_string();
    for path in ["a/b", "scripted", "c.base_url", "d.base_url", "e.base_url"] {
        assert!(problems.contains(&format!("providers.{path}: ")), "{problems}");
    }
    assert!(!problems.contains("secret"), "{problems}");
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
