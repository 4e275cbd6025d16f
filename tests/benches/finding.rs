//! Finding runs (G17): the first page of each filter, of ten thousand runs in a real Redis, as a
//! ratio to the first page without a filter. `cargo bench --bench finding`. No limit is asserted,
//! because machines differ.

#![expect(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "a bench reads the clock, computes ratios and prints them"
)]

use std::time::{Duration, Instant};

use bus::{Bus, Memory};
use coordinator::store::{Redis, Replaces, Store, Write};
use domain::{Timestamp, TraceId, span::Headers};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually, name},
    servers::RedisServer,
    subjects::query_of,
};
use world::{World, cents};

const RUNS: u64 = 10_000;
const TIMES: usize = 30;
const PATIENCE: Duration = Duration::from_secs(60);

fn run(number: u64) -> Write {
    let mut world = World::new();
    let id = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    world.trace = trace::Trace::new(TraceId::from_u128(id).expect("not zero"));
    world.now = Timestamp::from_millis(1_700_000_000_000 + number * 1_000);
    let agent = ["default", "writer", "critic"][(number % 3) as usize];
    let labels = json!({"team": format!("t{}", number % 20), "n": number.to_string()});
    let thread = format!("thread-{}", number % 100);
    let spawn =
        json!({"goal": "g", "child_id": "root", "agent_id": agent, "labels": labels, "thread_id": thread});
    world.submit(spawn).expect("the run is admitted");
    let lease = world.claim("root");
    world.pay(&lease, "c", cents(number % 50)).expect("the call is settled");
    match number % 20 {
        0 => drop(world.ask_human(&lease, "Which?").expect("the context asks a human")),
        1 => {}
        2 => drop(world.cancel(None).expect("the run is cancelled")),
        _ => drop(world.complete(&lease, "done").expect("the context completes")),
    }
    let changes = world.trace.take_changes();
    Write {
        trace_id: world.trace.id(),
        expected: 0,
        stamp: None,
        version: 1,
        replaces: Replaces::Nothing,
        fields: changes.fields,
        values: changes.values,
        outbox: None,
        cleared: Vec::new(),
        timer: None,
        keeps_earlier_timer: false,
        ended_at: None,
        opened_at: world.trace.root().map(|root| root.identity.started_at),
        profiles: None,
        index: changes.index,
    }
}

/// The median time of a query, and the number of runs that it returned.
async fn measure(bus: &Bus, query: &Value) -> (Duration, usize) {
    let payload = serde_json::to_vec(&json!({"runs": query})).expect("JSON");
    let (mut took, mut found) = (Vec::new(), 0);
    for _ in 0..TIMES {
        let began = Instant::now();
        let asked = bus.request(&query_of(&payload), &Headers::new(), payload.clone().into(), PATIENCE).await;
        let answer: Value = serde_json::from_slice(&asked.expect("an answer")).expect("JSON");
        took.push(began.elapsed());
        found = answer["runs"]["runs"].as_array().map_or(0, Vec::len);
    }
    took.sort_unstable();
    (took[TIMES / 2], found)
}

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let mut config = coordinator::Config::new(name("coordinator"));
    config.topology.max_log_bytes = 64 << 20;
    let redis = Redis::connect(&server.url(), Default::default(), config.topology.partitions).await;
    let store = Store::Redis(redis.expect("a server"));
    for batch in (1..=RUNS).collect::<Vec<_>>().chunks(250) {
        let writes: Vec<Write> = batch.iter().copied().map(run).collect();
        store.commit(&writes).await.expect("the runs are stored");
    }
    let bus = Bus::Memory(Memory::new(Default::default()));
    let cluster = Cluster::start(bus.clone(), store, vec![config], Vec::new());
    let is_up = async || {
        let ask = json!({"runs": {"limit": 1}}).to_string();
        bus.request(&query_of(&ask), &Headers::new(), ask.into(), PATIENCE).await.is_ok()
    };
    eventually("the coordinator answers", is_up).await;
    let (whole, _) = measure(&bus, &json!({})).await;
    println!("{:<52} {:>6.2} ms, {RUNS} runs", "the first page (50) without a filter", millis(whole));
    for query in [
        json!({"labels": {"team": "t7"}}),
        json!({"labels": {"team": "t7", "n": "27"}}),
        json!({"labels": {"team": "none"}}),
        json!({"thread_id": "thread-7"}),
        json!({"status": ["completed"]}),
        json!({"status": ["cancelled", "working"]}),
        json!({"agent_id": "critic"}),
        json!({"waiting_for_human": true}),
        json!({"waiting_for_human": false}),
        json!({"min_cost_usd": 0.49}),
        json!({"min_cost_usd": 9}),
        json!({"max_cost_usd": 0.01, "status": ["completed"]}),
        json!({"since": 1_700_000_000_000_u64 + RUNS * 500, "agent_id": "writer"}),
        json!({"until": 1_700_000_000_000_u64 + RUNS * 500}),
        json!({"status": ["cancelled"], "agent_id": "default", "labels": {"team": "t3"}}),
        json!({"prefix": "9e37"}),
    ] {
        let (took, found) = measure(&bus, &query).await;
        let ratio = took.as_secs_f64() / whole.as_secs_f64();
        println!(
            "{:<52} {:>6.2} ms, {ratio:>5.2} times that, {found} found",
            query.to_string(),
            millis(took)
        );
    }
    cluster.stop().await;
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
