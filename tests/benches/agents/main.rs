//! The overhead of Trellis for a model call. The same prompts are sent to the same server in the
//! same run by two clients: one that does nothing else (the floor), and an agent that holds,
//! journals and settles each call. Other measurements are the parts of that time, the memory of a
//! worker with a thousand agents, and the time until a cancel reaches them all. The model server
//! measures the time from one call to the next, and the time at which a call is closed.
//!
//!   cargo build --release -p trellis && cargo bench -p trellis-tests --bench agents
//!   … -- --rounds 20 --agents 5000 --cancels 10     more of each; 0 skips one

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a benchmark measures, prints, and panics when it fails"
)]

mod calls;
mod cancel;
mod crowd;
#[path = "../measure/mod.rs"]
mod measure;
mod parts;

use std::time::Duration;

use calls::{Calls, Kind, Measured};
use measure::options;
use serde_json::{Value, json};
use trellis_tests::{
    processes::{Processes, Shape},
    servers::ModelServer,
};

struct Options {
    rounds: usize,
    agents: usize,
    cancels: usize,
}

impl Options {
    fn read() -> Self {
        let mut options = Options { rounds: 10, agents: 1000, cancels: 5 };
        let Options { rounds, agents, cancels } = &mut options;
        options::read(&mut [("--rounds", rounds), ("--agents", agents), ("--cancels", cancels)]);
        options
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let options = Options::read();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average before: {}\n", load.split(' ').take(3).collect::<Vec<_>>().join(" "));

    if options.rounds > 0 {
        calls(options.rounds).await;
    }
    if options.agents > 0 {
        println!(
            "\n{} agents at once in one worker:\n{}",
            options.agents,
            crowd::measure(options.agents).await
        );
    }
    if options.cancels > 0 {
        println!("\n{}", cancel::measure(options.cancels).await);
    }
}

async fn calls(rounds: usize) {
    let mut calls = Calls::start().await;
    let usage = calls.usage();
    let in_a_row = calls.measure(Kind::InARow, rounds).await;
    let used = calls.usage().since(&usage, in_a_row.calls);
    let with_tools = calls.measure(Kind::WithTools, rounds).await;
    let slow = calls.measure(Kind::Slow, rounds.div_ceil(4)).await;
    let parts = parts::measure(&calls.cluster, &calls.an_entry().await).await;
    drop(calls);

    println!("from one model call to the next, p50 ({rounds} agents of {} calls)", calls::CALLS);
    println!("{:44} {:>10} {:>10} {:>10} {:>7}", "", "floor", "Trellis", "more", "ratio");
    row("model calls in a row", &in_a_row);
    row("with a tool call (fs.list) after each", &with_tools);
    row("in a row, of a model that takes 200 ms", &slow);
    println!("\none after the other on the same servers, p50:");
    for (what, latencies) in &parts {
        println!("{what:44} {:>10}", shown(latencies.percentile(50)));
    }
    println!("\nCPU a model call in a row, and memory:\n{used}");
}

fn row(what: &str, Measured { floor, ours, .. }: &Measured) {
    let (floor, ours) = (floor.percentile(50), ours.percentile(50));
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    let more = ours.saturating_sub(floor);
    println!("{what:44} {:>10} {:>10} {:>10} {ratio:>7.2}", shown(floor), shown(ours), shown(more));
}

fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// Starts a coordinator and workers with an agent `bench` that calls this model.
async fn cluster(model: &ModelServer, workers: usize, slots: usize) -> Processes {
    // These are the default settings, not those of the tests.
    let settings = json!({"lease_ms": 10_000, "limits": {"max_steps": 1000, "max_children": 1100}});
    let shape = || Shape { slots, settings, worker: model.settings(), ..Shape::new(1, workers) };
    let cluster = Processes::start_as(shape).await;
    let tools = ["fs.read", "fs.write", "fs.list"];
    let prompt = "You are a benchmark.";
    let bench = json!({"agent_id": "bench", "kind": "llm", "model": "test/model", "system_prompt": prompt, "tools": tools});
    let parts = json!({"agent_id": "parts", "kind": "builtin", "builtin": "echo", "pool": "nobody-but-the-benchmark"});
    cluster.apply(json!([bench, parts])).await;
    cluster
}

fn submission(goal: &str) -> Value {
    json!({"goal": goal, "agent_id": "bench", "timeout_ms": 0})
}
