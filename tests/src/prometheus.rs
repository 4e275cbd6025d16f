//! `/metrics` as Prometheus reads it: fetched over HTTP, and parsed by an independent client
//! library.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use serde::Deserialize;

use crate::servers::installed;

/// One series, with its value.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Series {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

const PARSE: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families
print(json.dumps([
    {'name': s.name, 'kind': family.type, 'labels': s.labels, 'value': s.value}
    for family in text_string_to_metric_families(sys.stdin.read()) for s in family.samples
]))
";

/// Every series of a metrics text. Panics if the text is invalid.
pub fn parse(text: &str) -> Vec<Series> {
    let path = installed("TRELLIS_PROMETHEUS_PYTHONPATH", Path::new("prometheus"));
    let python = Command::new("python3")
        .args(["-B", "-c", PARSE])
        .env("PYTHONPATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut python = python.expect("python3 runs");
    let mut stdin = python.stdin.take().expect("the input is piped");
    stdin.write_all(text.as_bytes()).expect("the script reads its whole input");
    drop(stdin);
    let parsed = python.wait_with_output().expect("the script ends");
    assert!(parsed.status.success(), "Prometheus can't parse:\n{text}");
    serde_json::from_slice(&parsed.stdout).expect("the script prints JSON")
}

/// The answer of a process at `/metrics`; `None` if it can't be reached.
pub fn fetch(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    Some(if head.to_lowercase().contains("transfer-encoding: chunked") {
        joined(body)
    } else {
        body.to_owned()
    })
}

/// The chunks of a body as one text.
fn joined(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        text += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    text
}
