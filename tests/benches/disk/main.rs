//! A cluster of one process in a directory, as in `trellis dev` and `trellis run`. It measures jobs
//! per second with every commit synced, against SQLite with the same duties; the time in which a
//! command opens a directory with many stored runs; and the overhead of HTTP for a request.
//!
//!   scripts/bench disk --jobs 5000 --kept 100000

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a benchmark measures, prints, and panics when it fails"
)]

#[allow(dead_code, reason = "other benchmarks measure processes")]
#[path = "../measure/mod.rs"]
mod measure;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use bus::{Bus, ClientBus, From, Http, Topology};
use coordinator::store::Store;
use domain::{
    span::Headers,
    subject::{Filter, Subject},
    wire::{Query, RunsQuery},
};
use futures_util::StreamExt;
use measure::{meter::Latencies, options};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use trellis_tests::{
    cluster::{Client, name},
    directory::Directory,
};

/// The number of partitions in `trellis dev`.
const PARTITIONS: u16 = 4;
/// The bytes that SQLite writes for a job, the same as Trellis: its state, and a message.
const STATE_BYTES: usize = 900;
const MESSAGE_BYTES: usize = 500;
const REQUESTS: usize = 2_000;

#[tokio::main]
async fn main() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (mut jobs, mut in_flight, mut kept) = (5_000, 256, 100_000);
    options::read(&mut [("--jobs", &mut jobs), ("--in-flight", &mut in_flight), ("--kept", &mut kept)]);
    let directory = Directory::fresh();
    let mut dev = Dev::open(&directory).await;
    dev.run(200, in_flight).await;
    let trellis = dev.run(jobs, in_flight).await;
    let one = dev.run(200, 1).await;
    let floor = sqlite(jobs, in_flight);
    println!(
        "jobs a second, {in_flight} in flight: {trellis:.0}; SQLite {floor:.0}; ratio {:.2}",
        trellis / floor
    );
    let floor = sqlite(200, 1);
    println!("jobs a second, one at a time: {one:.0}; SQLite {floor:.0}; ratio {:.2}", one / floor);
    requests(&dev.client.bus).await;

    let done = 400 + jobs;
    let opens = |directory: &Directory| {
        let times: Vec<Duration> = (0..5).map(|_| opens(directory)).collect();
        times.into_iter().min().expect("five tries")
    };
    dev.close().await;
    let few = opens(&directory);
    println!("`runs list --limit 1` in a directory of {done} runs: {few:?}");
    if kept > done {
        dev = Dev::open(&directory).await;
        let begun = Instant::now();
        dev.run(kept - done, in_flight).await;
        println!("({} more runs in {:?})", kept - done, begun.elapsed());
        dev.close().await;
        let many = opens(&directory);
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        println!("`runs list --limit 1` in a directory of {kept} runs: {many:?}; ratio {ratio:.2}");
    }
    let bytes: u64 = std::fs::read_dir(directory.path())
        .expect("the directory exists")
        .map(|file| file.and_then(|file| file.metadata()).map_or(0, |about| about.len()))
        .sum();
    println!("bytes of the directory, a run: {}", bytes / kept.max(done) as u64);
}

struct Dev {
    client: Client,
    stop: CancellationToken,
    coordinator: tokio::task::JoinHandle<()>,
    worker: tokio::task::JoinHandle<()>,
}

impl Dev {
    async fn open(directory: &Directory) -> Self {
        let (bus, store): (Bus, Store) = directory.both(PARTITIONS).await;
        let mut config = coordinator::Config::new(name("coordinator"));
        config.topology = Topology { partitions: PARTITIONS, ..Topology::default() };
        (config.mark_every, config.mark_lag) = (Duration::from_millis(500), Duration::ZERO);
        bus.set_up(&config.topology).await.expect("the bus is in a directory");
        let stop = CancellationToken::new();
        let stopped = || stop.clone().cancelled_owned();
        let run = coordinator::run(config, bus.clone(), store, stopped());
        let coordinator = tokio::spawn(async { run.await.expect("a coordinator runs") });
        let config = worker::Config { slots: 512, ..worker::Config::new(name("worker")) };
        let run = worker::run(config, bus.clone(), stopped());
        let worker = tokio::spawn(async { run.await.expect("a worker runs") });
        let client = Client { bus };
        client.run(json!({"goal": "are you there?"})).await;
        Dev { client, stop, coordinator, worker }
    }

    /// Jobs per second, from the first submission to the last outcome.
    async fn run(&self, jobs: usize, in_flight: usize) -> f64 {
        let mut outcomes = self.client.bus.follow(&[Filter::Outcomes], From::Now).await.expect("a log");
        let begun = Instant::now();
        let (sender, room) =
            (self.client.bus.clone(), std::sync::Arc::new(tokio::sync::Semaphore::new(in_flight)));
        let places = room.clone();
        let submitting = tokio::spawn(async move {
            let submissions = futures_util::stream::iter(0..jobs).map(|_| {
                let (bus, places) = (sender.clone(), places.clone());
                async move {
                    places.acquire().await.expect("never closed").forget();
                    Client { bus }.accepted(json!({"goal": "hello"})).await;
                }
            });
            submissions.buffer_unordered(in_flight).collect::<Vec<()>>().await;
        });
        for _ in 0..jobs {
            outcomes.next().await.expect("an outcome");
            room.add_permits(1);
        }
        submitting.await.expect("the task does not panic");
        jobs as f64 / begun.elapsed().as_secs_f64()
    }

    async fn close(self) {
        // This leaves time for the mark of the log's end.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.stop.cancel();
        self.coordinator.await.expect("the task ends without a panic");
        self.worker.await.expect("the task ends without a panic");
    }
}

fn sqlite(jobs: usize, in_flight: usize) -> f64 {
    let directory = Directory::fresh();
    std::fs::create_dir_all(directory.path()).expect("a temporary directory");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/disk/sqlite.py");
    let numbers = [jobs, in_flight, STATE_BYTES, MESSAGE_BYTES].map(|number| number.to_string());
    let said =
        Command::new("python3").arg(script).arg(directory.path().join("floor.db")).args(numbers).output();
    let said = said.expect("python3 is on the PATH");
    let text = String::from_utf8_lossy(&said.stdout);
    text.trim().parse().unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&said.stderr)))
}

/// The time that a command in a new process takes to list one run.
fn opens(directory: &Directory) -> Duration {
    let binary = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/trellis");
    let begun = Instant::now();
    let mut command = Command::new(binary);
    command.args(["runs", "list", "--limit", "1"]).env_clear().env("TRELLIS_DATA", directory.path());
    let output = command.output().expect("scripts/bench builds it");
    assert!(output.status.success(), "{output:?}");
    begun.elapsed()
}

/// Measures the overhead of HTTP for a request that a coordinator answers.
async fn requests(bus: &Bus) {
    let config = gateway::Config {
        is_open: true,
        limits: gateway::Limits { per_second: 1 << 20, burst: 1 << 20, ..gateway::Limits::default() },
        ..gateway::Config::new(([127, 0, 0, 1], 0).into())
    };
    let server = gateway::Server::bind(config, bus.clone()).await.expect("a free port");
    let url = format!("http://{}", server.address());
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve(stop.clone().cancelled_owned()));
    let query = Query::Runs(Box::new(RunsQuery { limit: 1, ..RunsQuery::default() }));
    let own = ClientBus::from(bus.clone());
    let carried = ClientBus::Http(Http::new(&url, None, Default::default()).expect("an address"));
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut all = [Latencies::default(), Latencies::default(), Latencies::default()];
    for _ in 0..REQUESTS {
        for (way, latencies) in all.iter_mut().enumerate() {
            let begun = Instant::now();
            match way {
                0 => ask(&own, &query).await,
                1 => ask(&carried, &query).await,
                _ => {
                    let answer =
                        client.get(format!("{url}/v1/runs?limit=1")).send().await.expect("an answer");
                    assert!(answer.status().is_success());
                    answer.bytes().await.expect("a body");
                }
            }
            latencies.add(begun.elapsed());
        }
    }
    let [own, carried, rest] = all.map(|latencies| latencies.percentile(50).as_secs_f64() * 1e6);
    println!(
        "a request for one run, p50: {own:.0} µs within the process, {carried:.0} µs by a command over HTTP, {rest:.0} µs by REST; \
         HTTP adds {:.0} µs",
        rest - own
    );
    stop.cancel();
    serving.await.expect("the task does not panic").expect("the server ends without an error");
}

async fn ask(bus: &ClientBus, query: &Query) {
    let payload = serde_json::to_vec(query).expect("a query");
    let (subject, headers) = (Subject::of_query(query), Headers::new());
    let answer = bus.request(&subject, &headers, payload.into(), Duration::from_secs(10)).await;
    answer.expect("an answer");
}
