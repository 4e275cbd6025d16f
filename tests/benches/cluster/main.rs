//! The time of a job: first of a floor program that does the least any such system must do (publishes, acks and Redis
//! scripts), then of Trellis, on the same servers in the same run, as ratios.
//!
//!   cargo build --release -p trellis && cargo bench -p trellis-tests --bench cluster
//!   … -- --jobs 20000 --pending 100000     more jobs; how 100,000 pending ones change a job

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a benchmark measures, prints, and panics when surprised"
)]

mod floor;
mod holds;
#[path = "../measure/mod.rs"]
mod measure;
mod trellis;

use std::time::Duration;

use measure::{meter::Latencies, options};
use trellis_tests::servers::{NatsServer, RedisServer};

/// Jobs at the same time, where many are measured.
const IN_FLIGHT: usize = 256;
const WIDE: usize = 1000;
const LONG: usize = 100;

struct Options {
    jobs: usize,
    singles: usize,
    pending: usize,
}

impl Options {
    fn read() -> Self {
        let mut options = Options { jobs: 10_000, singles: 500, pending: 10_000 };
        options::read(&mut [
            ("--jobs", &mut options.jobs),
            ("--singles", &mut options.singles),
            ("--pending", &mut options.pending),
        ]);
        options
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let options = Options::read();
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    println!(
        "nats-server {} and redis-server {} on their disks; {} jobs\n",
        nats.url(),
        redis.url(),
        options.jobs
    );

    let floor = floor::Floor::start(&nats, &redis).await;
    let floor_many = floor.many(options.jobs, IN_FLIGHT).await;
    let floor_one = floor.one_at_a_time(options.singles).await;
    let floor_wide = floor.wide(WIDE).await;
    let floor_chain = floor.chain(LONG).await;
    let floor_pair = floor.pairs(options.singles).await;
    floor.stop().await;

    let trellis = trellis::Trellis::start(&nats, &redis).await;
    trellis.many(options.jobs / 10, IN_FLIGHT).await;
    let usage = trellis.usage();
    let many = trellis.many(options.jobs, IN_FLIGHT).await;
    let used = trellis.usage().since(&usage, options.jobs);
    let one = trellis.one_at_a_time(options.singles).await;
    let wide = trellis.wide(WIDE).await;
    let chain = trellis.chain(LONG).await;
    let pair = holds::pairs(&trellis, options.singles).await;
    let together = holds::at_once(&trellis, options.singles * 4).await;

    println!("{:44} {:>12} {:>12} {:>7}", "", "floor", "Trellis", "ratio");
    let rate = |time: Duration| options.jobs as f64 / time.as_secs_f64();
    let row = |what: &str, floor: String, ours: String, ratio: f64| {
        println!("{what:44} {floor:>12} {ours:>12} {ratio:>7.2}");
    };
    let (a, b) = (rate(floor_many), rate(many));
    row("jobs a second, 256 in flight", format!("{a:.0}"), format!("{b:.0}"), b / a);
    latency_row("one at a time, p50", &floor_one, &one, 50, row);
    latency_row("one at a time, p99", &floor_one, &one, 99, row);
    time_row("1,000 wide", floor_wide, wide, row);
    time_row("a chain of 100", floor_chain, chain, row);
    latency_row("hold and settle at depth 8, p50", &floor_pair, &pair, 50, row);
    println!(
        "{:44} {:>12} {:>12}",
        "hold and settle pairs a second, 64 at once",
        "",
        format!("{together:.0}")
    );
    println!("\nCPU a job, and memory, with {IN_FLIGHT} in flight:\n{used}");

    if options.pending > 0 {
        println!("\nwith {} more jobs pending that nobody takes:", options.pending);
        let submitted = trellis.pile_up(options.pending).await;
        let piled = trellis.many(options.jobs, IN_FLIGHT).await;
        let one_piled = trellis.one_at_a_time(options.singles).await;
        println!("{:44} {:>12}", "submitting them, a second", format!("{submitted:.0}"));
        row(
            "jobs a second, 256 in flight (none / many)",
            format!("{b:.0}"),
            format!("{:.0}", rate(piled)),
            rate(piled) / b,
        );
        latency_row("one at a time, p50 (none / many)", &one, &one_piled, 50, row);
        println!("{}", trellis.usage());
    }
    trellis.stop().await;
}

fn latency_row(
    what: &str,
    floor: &Latencies,
    ours: &Latencies,
    percent: usize,
    row: impl Fn(&str, String, String, f64),
) {
    let (a, b) = (floor.percentile(percent), ours.percentile(percent));
    time_row(what, a, b, row);
}

fn time_row(what: &str, floor: Duration, ours: Duration, row: impl Fn(&str, String, String, f64)) {
    let shown = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    row(what, shown(floor), shown(ours), ours.as_secs_f64() / floor.as_secs_f64());
}
