//! Telemetry of a run: spans to an OTLP collector under the run's trace id (X1, X4), and log lines
//! with their context. The collector is a small HTTP server in this process that reads protobuf.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::Value;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const GRAPH: &str = r#"{"trace_id": "0af7651916cd43dd8448eb211c80319c", "steps": [
    {"id": "pay", "agent_id": "spend", "task_description": "the goal nobody may see"}]}"#;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    trace: String,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
}

/// Starts a collector, and returns its port with the bodies of all requests so far.
fn collect() -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let kept = bodies.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = kept.clone();
            thread::spawn(move || serve(stream, &kept));
        }
    });
    (port, bodies)
}

fn serve(stream: TcpStream, kept: &Mutex<Vec<Vec<u8>>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(given) = lower.strip_prefix("content-length:") {
                length = given.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        kept.lock().unwrap().push(body);
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
            )
            .unwrap();
    }
}

/// The length-delimited fields of a protobuf message, with their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => drop(varint(&mut bytes)),
            1 => bytes = &bytes[8..],
            5 => bytes = &bytes[4..],
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                found.push((key >> 3, &bytes[..length]));
                bytes = &bytes[length..];
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn inner(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    fields(bytes).into_iter().filter(|(at, _)| *at == number).map(|(_, value)| value).collect()
}

/// Reads the spans of a request: request → resource spans → scope spans → span.
fn spans(body: &[u8]) -> Vec<Span> {
    let scopes = inner(body, 1).into_iter().flat_map(|resource| inner(resource, 2));
    let read = |span: &[u8]| {
        let one = |number| inner(span, number).first().map(|value| value.to_vec()).unwrap_or_default();
        Span {
            trace: one(1).iter().map(|byte| format!("{byte:02x}")).collect(),
            id: one(2),
            parent: one(4),
            name: String::from_utf8(one(5)).unwrap(),
        }
    };
    scopes.flat_map(|scope| inner(scope, 2)).map(read).collect()
}

/// Runs the graph, and returns the exit code and the log.
fn run(endpoint: Option<u16>, more: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(["run", "-", "--log-json", "-o", "json"]);
    for name in ["NATS_URL", "REDIS_URL", "TRELLIS_URL", "TRELLIS_NAMESPACE", "OTEL_SERVICE_NAME"] {
        command.env_remove(name);
    }
    command.env("TRELLIS_NO_KEEP", "1");
    command.env("OTEL_METRICS_EXPORTER", "none");
    // By default, a command that prints its progress logs little.
    command.env("RUST_LOG", "info,trellis_worker=debug");
    if let Some(port) = endpoint {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"));
        command.env("OTEL_BSP_EXPORT_TIMEOUT", "20000");
    }
    for (name, value) in more {
        command.env(name, value);
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(GRAPH.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn x4_a_collector_gets_the_tree_of_a_run_under_its_trace_id() {
    let (port, bodies) = collect();
    let (code, said) = run(Some(port), &[]);
    assert_eq!(code, Some(0), "{said}");
    let bodies = bodies.lock().unwrap();
    let all: Vec<Span> = bodies.iter().flat_map(|body| spans(body)).collect();
    let one = |name: &str| -> Vec<&Span> { all.iter().filter(|span| span.name == name).collect() };
    assert!(all.iter().all(|span| span.trace == TRACE), "{all:#?}");
    // The root has no parent, the step's span is its child, and the step's own spans are children
    // of that.
    let root = all.iter().find(|span| span.name.starts_with("invoke_workflow")).expect("the graph's span");
    assert!(root.parent.is_empty(), "{root:?}");
    let context = one("invoke_agent spend")[0];
    assert_eq!(context.parent, root.id);
    let attempt = one("attempt spend")[0];
    assert_eq!(attempt.parent, context.id);
    assert_eq!(one("process agent.submit").iter().map(|span| &span.parent).collect::<Vec<_>>(), [&root.id]);
    assert_eq!(one("queue wait").iter().map(|span| &span.parent).collect::<Vec<_>>(), [&context.id]);
    assert_eq!(one("settle").iter().map(|span| &span.parent).collect::<Vec<_>>(), [&attempt.id]);
    // Spans contain no text of a goal or an answer.
    let secret = b"the goal nobody may see";
    let leaked = bodies.iter().any(|body| body.windows(secret.len()).any(|window| window == secret));
    assert!(!leaked, "a goal is in a span");
}

/// proves: the export of the last spans has a time limit. The collector accepts connections and
/// never answers; the exporter alone would wait for ten minutes.
#[test]
fn x6_a_collector_that_hangs_does_not_keep_a_run_from_ending() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (code, said) =
        run(Some(port), &[("OTEL_BSP_EXPORT_TIMEOUT", "300"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn x1_log_lines_about_a_context_name_it_and_its_trace() {
    let (code, said) = run(None, &[]);
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let about = |message: &str| {
        let line = lines.iter().find(|line| line["message"] == message);
        line.unwrap_or_else(|| panic!("no line contains `{message}`:\n{said}"))
    };
    for message in ["an attempt begins", "an attempt ended"] {
        let line = about(message);
        assert_eq!((&line["trace_id"], &line["child_id"]), (&TRACE.into(), &"pay".into()), "{line}");
        assert_eq!(line["attempt"], 1, "{line}");
        assert!(line["worker_id"].is_string() && line["span_id"].is_string(), "{line}");
    }
    assert!(!said.contains("nobody may see"), "a goal is in the log");
}
