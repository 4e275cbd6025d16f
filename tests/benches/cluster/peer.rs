//! Peers: BullMQ, a job queue on Redis (`bullmq.mjs` in two processes, a worker and a client), and
//! Restate, which has its own server and log (`restate.mjs`).

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use trellis_tests::servers::RedisServer;

use crate::{IN_FLIGHT, Options, WIDE, report::Figures};

/// Measures BullMQ, if it is installed.
pub(crate) async fn bullmq(redis: &RedisServer, options: &Options) -> Option<Figures> {
    std::env::var_os("TRELLIS_BULLMQ")?;
    let port = redis.url().rsplit(':').next()?.trim_end_matches('/').to_owned();
    let numbers = numbers(options);
    let measured = tokio::task::spawn_blocking(move || {
        let mut worker = node("bullmq.mjs", &["worker", &port]);
        assert_eq!(line(&mut worker), "ready");
        let mut client = node("bullmq.mjs", &with(&["client", &port], &numbers));
        let measured = line(&mut client);
        end(client);
        end(worker);
        measured
    });
    Some(figures(&measured.await.unwrap()))
}

/// Measures Restate, if it is installed.
pub(crate) async fn restate(options: &Options) -> Option<Figures> {
    std::env::var_os("TRELLIS_RESTATE")?;
    let numbers = numbers(options);
    let measured = tokio::task::spawn_blocking(move || {
        let mut all = node("restate.mjs", &with(&[], &numbers));
        let measured = line(&mut all);
        // The script stops its processes before it exits.
        all.wait().unwrap();
        measured
    });
    Some(figures(&measured.await.unwrap()))
}

/// The sizes of the measurements, as the last arguments of a script.
fn numbers(options: &Options) -> [String; 4] {
    [options.jobs, IN_FLIGHT, options.singles, WIDE].map(|number| number.to_string())
}

fn with<'a>(words: &[&'a str], numbers: &'a [String]) -> Vec<&'a str> {
    words.iter().copied().chain(numbers.iter().map(String::as_str)).collect()
}

fn figures(measured: &str) -> Figures {
    let measured: Value = serde_json::from_str(measured).unwrap();
    let millis = |name: &str| measured[name].as_f64().map(|millis| Duration::from_secs_f64(millis / 1e3));
    Figures {
        jobs_a_second: measured["rate"].as_f64(),
        one_p50: millis("p50_ms"),
        one_p99: millis("p99_ms"),
        wide: millis("wide_ms"),
        ..Figures::default()
    }
}

fn end(mut process: Child) {
    process.kill().ok();
    process.wait().unwrap();
}

fn node(script: &str, arguments: &[&str]) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cluster").join(script);
    let mut command = Command::new("node");
    command.arg(script).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("node can't be started: {error}"))
}

/// The only line that the process prints.
fn line(process: &mut Child) -> String {
    let mut text = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut text).unwrap();
    text.trim().to_owned()
}
