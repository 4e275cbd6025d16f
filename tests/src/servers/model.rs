//! A model server that keeps its own bill: OpenAI's chat completions over HTTP, with answers that
//! the test decides. Tests of b5 compare the bill with the costs that Trellis booked. The bill is
//! synced to disk line by line, except in benchmarks. A call is billed when it is answered, even if
//! the client has disconnected.

use std::{
    fmt,
    fs::File,
    io::Write,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore},
    task::JoinHandle,
    time::Instant,
};

/// The prices in nano-dollars per token. The worker gets the same prices as dollars per million
/// tokens.
pub const INPUT_NANOS: u64 = 1_000;
pub const OUTPUT_NANOS: u64 = 2_000;

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Prompt {
    pub body: Value,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub text: String,
    /// Tool calls: names as on the wire, and arguments.
    pub calls: Vec<(String, Value)>,
    pub input_tokens: u64,
    /// The billed output tokens, including all reasoning.
    pub output_tokens: u64,
    /// The reasoning part of the output tokens.
    pub reasoning_tokens: u64,
    pub usage: UsageForm,
    /// The answer waits at this gate.
    pub gate: Option<Gate>,
    /// Delay before the answer.
    pub takes: Duration,
    /// If set, the answer has no usage.
    pub no_usage: bool,
    /// If set, the call is refused with this HTTP status, and the text is the reason.
    pub status: Option<u16>,
    /// If set, the answer breaks off in the middle. It is billed.
    pub breaks_off: bool,
    /// If set, the answer reached its token limit.
    pub cut_off: bool,
}

/// The form in which a provider reports the output tokens of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsageForm {
    /// Reasoning is part of `completion_tokens` (OpenAI).
    #[default]
    Inside,
    /// Reasoning is reported separately from `completion_tokens`, and the total excludes it.
    Beside,
    /// Reasoning is only in `total_tokens` (Gemini by OpenAI's protocol).
    InTotal,
    /// A smaller usage precedes the complete one.
    Twice,
}

/// One line of the bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The task of the context that called: the text after `Your task: `.
    pub task: String,
    /// The requested model, without its provider.
    pub model: String,
    /// The number of model answers in the prompt.
    pub turn: usize,
    pub nanos: u64,
    pub tokens: u64,
}

/// A gate at which calls wait until the test opens it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<(Notify, Semaphore)>);

impl Default for Gate {
    fn default() -> Self {
        Gate(Arc::new((Notify::new(), Semaphore::new(0))))
    }
}

impl Gate {
    /// Waits until a call has arrived at the gate.
    pub async fn reached(&self) {
        tokio::time::timeout(crate::cluster::SOON, self.0.0.notified()).await.expect("a call arrives");
    }

    /// Lets all waiting and later calls pass.
    pub fn open(&self) {
        self.0.1.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    async fn pass(&self) {
        self.0.0.notify_one();
        self.0.1.acquire().await.expect("the semaphore is never closed").forget();
    }
}

type Answer = dyn Fn(&Prompt) -> Reply + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    bill: Mutex<(File, Vec<Line>)>,
    synced: bool,
    prompts: Mutex<Vec<Value>>,
    keys: Mutex<Vec<String>>,
    traceparents: Mutex<Vec<String>>,
    arrived: Mutex<Vec<Instant>>,
    given_up: Mutex<Vec<Instant>>,
}

pub struct ModelServer {
    url: String,
    shared: Arc<Shared>,
    path: PathBuf,
    task: JoinHandle<()>,
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelServer({})", self.url)
    }
}

impl ModelServer {
    pub async fn start(answer: impl Fn(&Prompt) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve(Box::new(answer), true).await
    }

    /// Starts the server without syncing the bill, for benchmarks, which would otherwise measure
    /// the disk.
    pub async fn start_unsynced(answer: impl Fn(&Prompt) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve(Box::new(answer), false).await
    }

    async fn serve(answer: Box<Answer>, synced: bool) -> Self {
        let path = std::env::temp_dir().join(format!("trellis-bill-{}", crate::processes::fresh_trace()));
        let file = File::create(&path).expect("the temporary directory can be written");
        let bill = Mutex::new((file, Vec::new()));
        let (prompts, keys, traceparents, arrived, given_up) = Default::default();
        let shared =
            Arc::new(Shared { answer, bill, synced, prompts, keys, traceparents, arrived, given_up });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/v1/", listener.local_addr().expect("the listener is bound"));
        let app = Router::new().route("/v1/chat/completions", post(complete)).with_state(shared.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.expect("the server runs") });
        ModelServer { url, shared, path, task }
    }

    /// The base URL, with a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The settings of a worker that calls this server as `test/<anything>`, with its prices.
    pub fn settings(&self) -> Value {
        let usd = |nanos: u64| format!("{}.{:03}", nanos / 1_000, nanos % 1_000);
        let price = json!({"input": usd(INPUT_NANOS), "output": usd(OUTPUT_NANOS)});
        json!({
            "providers": {"test": {"protocol": "openai", "base_url": self.url}},
            "prices": {"test/model": price, "test/cheap": price},
        })
    }

    /// The bill so far.
    pub fn bill(&self) -> Vec<Line> {
        self.shared.bill.lock().expect("no test panics while it holds the lock").1.clone()
    }

    pub fn billed_nanos(&self) -> u64 {
        self.bill().iter().map(|line| line.nanos).sum()
    }

    /// All prompts so far, answered or not.
    pub fn prompts(&self) -> Vec<Value> {
        self.shared.prompts.lock().expect("no test panics while it holds the lock").clone()
    }

    /// The arrival times of all calls, answered or not.
    pub fn arrived(&self) -> Vec<Instant> {
        self.shared.arrived.lock().expect("no test panics while it holds the lock").clone()
    }

    /// The times at which clients closed calls before the answer.
    pub fn given_up(&self) -> Vec<Instant> {
        self.shared.given_up.lock().expect("no test panics while it holds the lock").clone()
    }

    /// The `traceparent` of every call that had one.
    pub fn traceparents(&self) -> Vec<String> {
        self.shared.traceparents.lock().expect("no test panics while it holds the lock").clone()
    }

    /// The `Authorization` of every call that had one.
    pub fn keys(&self) -> Vec<String> {
        self.shared.keys.lock().expect("no test panics while it holds the lock").clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Prompt {
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The requested model, without its provider.
    pub fn model(&self) -> String {
        self.body["model"].as_str().unwrap_or_default().to_owned()
    }

    /// The number of model answers in the prompt.
    pub fn turn(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    /// The text after `Your task: `, to the end of the line.
    pub fn task(&self) -> String {
        let texts = self.messages().iter().filter_map(|message| text_of(&message["content"]));
        let task = texts.filter_map(|text| {
            let (_, task) = text.split_once("Your task: ")?;
            Some(task.lines().next().unwrap_or_default().to_owned())
        });
        task.into_iter().next().unwrap_or_default()
    }

    /// The size of all messages, tool calls and tool descriptions in bytes: an upper bound of the
    /// tokens of any tokenizer.
    pub fn size_bytes(&self) -> u64 {
        let text = |value: &Value| match value {
            Value::Null => 0,
            Value::String(text) => text.len(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string().len()
            }
        };
        let message = |message: &Value| {
            let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice).iter();
            let calls =
                calls.map(|call| text(&call["function"]["name"]) + text(&call["function"]["arguments"]));
            text(&message["content"]) + calls.sum::<usize>()
        };
        let tool = |tool: &Value| {
            let tool = &tool["function"];
            text(&tool["name"]) + text(&tool["description"]) + text(&tool["parameters"])
        };
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let sum = self.messages().iter().map(message).sum::<usize>() + tools.map(tool).sum::<usize>();
        sum as u64
    }

    /// The most tokens that the answer may have.
    pub fn max_tokens(&self) -> u64 {
        let asked = [&self.body["max_tokens"], &self.body["max_completion_tokens"]];
        asked.into_iter().find_map(Value::as_u64).expect("a worker names a bound")
    }

    /// The text of the last message.
    pub fn last(&self) -> String {
        self.messages().last().and_then(|message| text_of(&message["content"])).unwrap_or_default()
    }
}

fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(parts.iter().filter_map(|part| part["text"].as_str()).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

async fn complete(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "not JSON").into_response();
    };
    shared.arrived.lock().expect("no test panics while it holds the lock").push(Instant::now());
    shared.prompts.lock().expect("no test panics while it holds the lock").push(body.clone());
    let mut unanswered = Unanswered(Some(shared.clone()));
    if let Some(key) = headers.get(header::AUTHORIZATION).and_then(|key| key.to_str().ok()) {
        shared.keys.lock().expect("no test panics while it holds the lock").push(key.to_owned());
    }
    if let Some(traceparent) = headers.get("traceparent").and_then(|value| value.to_str().ok()) {
        shared
            .traceparents
            .lock()
            .expect("no test panics while it holds the lock")
            .push(traceparent.to_owned());
    }
    // A separate task bills the call even if the client has disconnected.
    let answered = tokio::spawn(async move {
        let prompt = Prompt { body };
        let reply = (shared.answer)(&prompt);
        if let Some(gate) = &reply.gate {
            gate.pass().await;
        }
        if !reply.takes.is_zero() {
            tokio::time::sleep(reply.takes).await;
        }
        if reply.status.is_none() {
            shared.charge(&prompt, &reply);
        }
        (prompt, reply)
    });
    let (prompt, reply) = answered.await.expect("the test's answer does not panic");
    unanswered.0 = None;
    match reply.status.map(|status| StatusCode::from_u16(status).expect("a status")) {
        Some(status) => {
            let said = if reply.text.is_empty() { "told to refuse" } else { &reply.text };
            (status, json!({"error": {"message": said}}).to_string()).into_response()
        }
        None if reply.breaks_off => {
            let half: Bytes = stream(&reply).into_bytes().into_iter().take(40).collect();
            let broken = std::io::Error::other("told to break off");
            let parts = futures_util::stream::iter([Ok(half), Err(broken)]);
            ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts)).into_response()
        }
        None if prompt.body["stream"] == true => {
            ([(header::CONTENT_TYPE, "text/event-stream")], stream(&reply)).into_response()
        }
        None => ([(header::CONTENT_TYPE, "application/json")], whole(&reply).to_string()).into_response(),
    }
}

/// A call without an answer so far. It is dropped with its connection.
struct Unanswered(Option<Arc<Shared>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.given_up.lock().expect("no test panics while it holds the lock").push(Instant::now());
        }
    }
}

impl Shared {
    fn charge(&self, prompt: &Prompt, reply: &Reply) {
        let line = Line {
            task: prompt.task(),
            model: prompt.model(),
            turn: prompt.turn(),
            nanos: reply.input_tokens * INPUT_NANOS + reply.output_tokens * OUTPUT_NANOS,
            tokens: reply.input_tokens + reply.output_tokens,
        };
        let mut bill = self.bill.lock().expect("no test panics while it holds the lock");
        writeln!(bill.0, "{}", serde_json::to_string(&line).expect("plain fields"))
            .expect("the bill is written");
        if self.synced {
            bill.0.sync_data().expect("the bill is on disk");
        }
        bill.1.push(line);
    }
}

impl Reply {
    fn usage(&self) -> Value {
        let (input, output, reasoning) = (self.input_tokens, self.output_tokens, self.reasoning_tokens);
        let (completion, total) = match self.usage {
            UsageForm::Inside | UsageForm::Twice => (output, input + output),
            UsageForm::Beside => (output - reasoning, input + output - reasoning),
            UsageForm::InTotal => (output - reasoning, input + output),
        };
        let mut usage =
            json!({"prompt_tokens": input, "completion_tokens": completion, "total_tokens": total});
        if reasoning > 0 && self.usage != UsageForm::InTotal {
            usage["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
        }
        usage
    }

    /// The smaller usage that precedes the complete one, in the frame that ends the answer.
    fn early_usage(&self) -> Option<Value> {
        let early = Reply { output_tokens: 1, reasoning_tokens: 0, ..self.clone() };
        (self.usage == UsageForm::Twice).then(|| early.usage())
    }

    fn message(&self) -> Value {
        let calls: Vec<Value> = (0..)
            .zip(&self.calls)
            .map(|(index, (name, arguments)): (u32, _)| {
                let function = json!({"name": name, "arguments": arguments.to_string()});
                json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": function})
            })
            .collect();
        match calls.is_empty() {
            true => json!({"role": "assistant", "content": self.text}),
            false => json!({"role": "assistant", "content": self.text, "tool_calls": calls}),
        }
    }

    fn finish(&self) -> &'static str {
        if self.cut_off {
            return "length";
        }
        if self.calls.is_empty() { "stop" } else { "tool_calls" }
    }
}

fn whole(reply: &Reply) -> Value {
    let choice = json!({"index": 0, "message": reply.message(), "finish_reason": reply.finish()});
    let usage = (!reply.no_usage).then(|| reply.usage());
    json!({"id": "x", "object": "chat.completion", "model": "model", "choices": [choice], "usage": usage})
}

fn stream(reply: &Reply) -> String {
    let chunk = |choices: Value, usage: Option<Value>| {
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "model": "model", "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let delta = json!([{"index": 0, "delta": reply.message(), "finish_reason": null}]);
    let end = json!([{"index": 0, "delta": {}, "finish_reason": reply.finish()}]);
    let mut stream = chunk(delta, None) + &chunk(end, reply.early_usage());
    if !reply.no_usage {
        stream += &chunk(json!([]), Some(reply.usage()));
    }
    stream + "data: [DONE]\n\n"
}
