//! Metrics of a run, sent to an OTLP collector (X7). The collector is a small HTTP server in this
//! process, or one that never answers.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

const GRAPH: &str =
    r#"{"steps": [{"id": "pay", "agent_id": "spend", "task_description": "the goal nobody may see"}]}"#;

type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Starts a collector, and returns its port with the first lines and bodies of all requests so far.
fn collect(answers: bool) -> (u16, Requests) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Requests::default();
    let kept = requests.clone();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming().flatten() {
            if answers {
                let kept = kept.clone();
                thread::spawn(move || serve(stream, &kept));
            } else {
                silent.push(stream);
            }
        }
    });
    (port, requests)
}

fn serve(mut stream: TcpStream, kept: &Mutex<Vec<(String, Vec<u8>)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut first, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(given) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = given.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
            if first.is_empty() {
                first = line;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        kept.lock().unwrap().push((first, body));
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).unwrap();
    }
}

/// Runs the graph, and returns the exit code and the log.
fn run(port: u16, more: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(["run", "-", "-o", "json"]);
    for name in ["NATS_URL", "REDIS_URL", "TRELLIS_URL", "TRELLIS_NAMESPACE", "OTEL_SERVICE_NAME"] {
        command.env_remove(name);
    }
    command.env("TRELLIS_NO_KEEP", "1");
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"));
    command.env("OTEL_TRACES_EXPORTER", "none").envs(more.iter().copied());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(GRAPH.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn has(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn x7_a_collector_gets_the_metrics_of_a_run_before_the_process_ends() {
    let (port, requests) = collect(true);
    let (code, said) = run(port, &[]);
    assert_eq!(code, Some(0), "{said}");
    let requests = requests.lock().unwrap();
    assert!(requests.iter().all(|(first, _)| first.starts_with("POST /v1/metrics ")), "{requests:?}");
    let (_, last) = requests.last().expect("the last numbers are sent at the end");
    for expected in [
        "trellis.runs",
        "trellis.hold",
        "trellis.spend.usd",
        "gen_ai.workflow.duration",
        "service.name",
        "service.version",
        "service.instance.id",
    ] {
        assert!(has(last, expected), "no {expected}");
    }
    assert!(!requests.iter().any(|(_, body)| has(body, "nobody may see")), "a goal is in a metric");
}

#[test]
fn x7_a_silent_or_missing_collector_harms_nothing_and_is_not_used_if_switched_off() {
    let (silent, _) = collect(false);
    let (code, said) = run(silent, &[]);
    assert_eq!(code, Some(0), "{said}");
    let away = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let (code, said) = run(away, &[]);
    assert_eq!(code, Some(0), "{said}");
    for off in [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")] {
        let (port, requests) = collect(true);
        let (code, said) = run(port, &[off]);
        assert_eq!((code, requests.lock().unwrap().len()), (Some(0), 0), "{said}");
    }
}
