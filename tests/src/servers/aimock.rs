//! aimock: a server with the protocols of OpenAI, Anthropic, Gemini and Ollama. It answers from the
//! test's fixtures, and lists all requests, which are the bill.

use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::process::{Place, Process, Program, Settings, installed};

static AIMOCK: Program = Program {
    name: "aimock",
    place: Place::Path("node"),
    arguments,
    greeting: (b"GET /__aimock/health HTTP/1.1\r\nhost: localhost\r\n\r\n", &[b"HTTP/1.1 200"]),
};

const PROGRAM: &str = "@copilotkit/aimock/dist/cli.js";

#[derive(Debug)]
pub struct AiMock(Process);

/// One request as the server received it.
#[derive(Debug, Clone, Deserialize)]
pub struct Billed {
    pub path: String,
    /// The server removes API keys from the headers.
    pub headers: Value,
    /// The body in OpenAI's form, for every protocol of the request.
    pub body: Option<Value>,
    response: Answered,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    status: u16,
    #[serde(default)]
    interrupted: bool,
    fixture: Option<Value>,
}

impl AiMock {
    /// Starts the server with fixtures as in its documentation: `[{"match": …, "response": …}]`.
    /// The first match is the answer.
    pub fn start(fixtures: &Value) -> AiMock {
        AiMock::start_with(fixtures, &[])
    }

    /// Starts the server with more arguments, such as `["--chaos-latency", "100"]`.
    pub fn start_with(fixtures: &Value, extra: &[&str]) -> AiMock {
        let words = extra.iter().map(|&word| word.to_owned());
        let extra = std::iter::once(json!({ "fixtures": fixtures }).to_string()).chain(words).collect();
        AiMock(Process::start(&AIMOCK, extra))
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// The base URL for OpenAI's and Anthropic's protocols.
    pub fn v1(&self) -> String {
        format!("http://127.0.0.1:{}/v1/", self.port())
    }

    /// The base URL for OpenAI's protocol with detailed usage, as OpenRouter reports it.
    pub fn openrouter(&self) -> String {
        format!("http://127.0.0.1:{}/api/v1/", self.port())
    }

    pub fn gemini(&self) -> String {
        format!("http://127.0.0.1:{}/v1beta/", self.port())
    }

    pub fn ollama(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port())
    }

    /// Sends SIGSTOP: connections stay open, and requests get no answer.
    pub fn pause(&self) {
        self.0.pause();
    }

    pub fn resume(&self) {
        self.0.resume();
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Restarts the server with the same port and fixtures. Its list of requests is empty then.
    pub fn restart(&mut self) {
        self.0.restart();
    }

    /// Every request since the start, in order.
    pub fn journal(&self) -> Vec<Billed> {
        serde_json::from_str(&self.get("/__aimock/journal")).expect("the journal is as documented")
    }

    /// The requests that the server would bill: those that were answered, wholly or in part.
    pub fn bill(&self) -> Vec<Billed> {
        self.journal().into_iter().filter(|call| call.response.status == 200).collect()
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).expect("the server listens");
        // HTTP/1.0 makes the answer unchunked; it ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("the server reads the request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("the answer has a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        body.to_owned()
    }
}

impl Billed {
    pub fn status(&self) -> u16 {
        self.response.status
    }

    /// True if the answer was cut off before its end.
    pub fn is_interrupted(&self) -> bool {
        self.response.interrupted
    }

    /// Input and output tokens of the fixture; `None` if it has no usage.
    pub fn tokens(&self) -> Option<(u64, u64)> {
        let usage = self.response.fixture.as_ref()?.pointer("/response/usage")?;
        Some((usage.get("prompt_tokens")?.as_u64()?, usage.get("completion_tokens")?.as_u64()?))
    }
}

fn arguments(settings: &Settings) -> Vec<OsString> {
    let [fixtures, words @ ..] = settings.extra.as_slice() else { panic!("the settings contain fixtures") };
    let file = settings.dir.join("fixtures.json");
    fs::write(&file, fixtures).expect("the test created the directory");
    let modules = installed("TRELLIS_NODE_MODULES", Path::new("node/node_modules"));
    let mut arguments: Vec<OsString> = vec![modules.join(PROGRAM).into(), "--fixtures".into(), file.into()];
    arguments.extend(["--port".into(), settings.port.to_string().into()]);
    // No request may be dropped from the list.
    arguments.extend(["--journal-max", "0", "--log-level", "warn"].map(OsString::from));
    arguments.extend(words.iter().map(OsString::from));
    arguments
}
