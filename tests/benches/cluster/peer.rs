//! BullMQ, a job queue on Redis, as a peer: `bullmq.mjs` in two processes, one that works and one that submits and waits.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use trellis_tests::servers::RedisServer;

use crate::{IN_FLIGHT, Options, WIDE, report::Figures};

/// Measures it, if it is installed.
pub(crate) async fn bullmq(redis: &RedisServer, options: &Options) -> Option<Figures> {
    std::env::var_os("TRELLIS_BULLMQ")?;
    let port = redis.url().rsplit(':').next()?.trim_end_matches('/').to_owned();
    let (jobs, singles) = (options.jobs, options.singles);
    let measured = tokio::task::spawn_blocking(move || {
        let mut worker = node(&["worker", &port]);
        assert_eq!(line(&mut worker), "ready");
        let numbers = [jobs, IN_FLIGHT, singles, WIDE].map(|number| number.to_string());
        let mut arguments = vec!["client", &port];
        arguments.extend(numbers.iter().map(String::as_str));
        let mut client = node(&arguments);
        let measured = line(&mut client);
        for mut process in [client, worker] {
            process.kill().ok();
            process.wait().unwrap();
        }
        measured
    });
    let measured: Value = serde_json::from_str(&measured.await.unwrap()).unwrap();
    let millis = |name: &str| measured[name].as_f64().map(|millis| Duration::from_secs_f64(millis / 1e3));
    Some(Figures {
        jobs_a_second: measured["rate"].as_f64(),
        one_p50: millis("p50_ms"),
        one_p99: millis("p99_ms"),
        wide: millis("wide_ms"),
        ..Figures::default()
    })
}

fn node(arguments: &[&str]) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cluster/bullmq.mjs");
    let mut command = Command::new("node");
    command.arg(script).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("node can't be started: {error}"))
}

/// The one line that it prints.
fn line(process: &mut Child) -> String {
    let mut text = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut text).unwrap();
    text.trim().to_owned()
}
