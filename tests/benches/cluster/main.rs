//! The time of a job in several systems in the same run, as ratios. The floor program does the
//! least that any such system must do (publishes, acks and Redis scripts), and a second one has the
//! duties of Trellis. Both run on the same servers as BullMQ and Trellis; Restate has its own.
//!
//!   cargo build --release -p trellis && cargo bench -p trellis-tests --bench cluster
//!   … -- --jobs 20000 --pending 100000     more jobs; how 100,000 pending ones change a job
//!   … -- --coordinators 2 --workers 4      more processes of Trellis
//!   … -- --shapes 1                      only graphs of each shape, of a hundred and a thousand steps
//!   … -- --guards 3                     only what keys of the log, TLS and roles cost, three times each
//!   … -- --seen 3                       only what metrics and spans cost, three times each
//!   … -- --minutes 60 --rate 100           only a load for an hour, while processes are killed
//!
//! `TRELLIS_BENCH_JSON` names a file for the figures; `TRELLIS_BULLMQ` and `TRELLIS_RESTATE` name
//! the folders of their modules. A system without a folder is left out. `scripts/bench` sets all
//! three.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a benchmark measures, prints, and panics when it fails"
)]

mod floor;
mod guards;
mod holds;
mod hops;
#[path = "../measure/mod.rs"]
mod measure;
mod peer;
mod report;
mod shapes;
mod soak;
mod trellis;

use floor::{Floor, Kind};
use guards::{Access, Guard};
use measure::{meter::Usage, options};
use report::{Figures, Report};
use trellis_tests::servers::{NatsServer, RedisServer};

/// The number of simultaneous jobs in the throughput measurements.
const IN_FLIGHT: usize = 256;
const WIDE: usize = 1000;
const LONG: usize = 100;

struct Options {
    jobs: usize,
    singles: usize,
    pending: usize,
    coordinators: usize,
    workers: usize,
    minutes: usize,
    rate: usize,
    shapes: usize,
    guards: usize,
    seen: usize,
}

impl Options {
    fn read() -> Self {
        let mut options = Options {
            jobs: 10_000,
            singles: 500,
            pending: 10_000,
            coordinators: 1,
            workers: 1,
            minutes: 0,
            rate: 100,
            shapes: 0,
            guards: 0,
            seen: 0,
        };
        options::read(&mut [
            ("--jobs", &mut options.jobs),
            ("--singles", &mut options.singles),
            ("--pending", &mut options.pending),
            ("--coordinators", &mut options.coordinators),
            ("--workers", &mut options.workers),
            ("--minutes", &mut options.minutes),
            ("--rate", &mut options.rate),
            ("--shapes", &mut options.shapes),
            ("--guards", &mut options.guards),
            ("--seen", &mut options.seen),
        ]);
        options
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let options = Options::read();
    if options.guards > 0 {
        return guards::show(&options, &Guard::SAFE, options.guards).await;
    }
    if options.seen > 0 {
        return guards::show(&options, &Guard::SEEN, options.seen).await;
    }
    let access = Access::plain(NatsServer::start(), RedisServer::start());
    let (nats, redis) = (&access.nats, &access.redis);
    println!(
        "nats-server on its disk, redis-server with appendfsync always; {} jobs, {} coordinators, {} workers\n",
        options.jobs, options.coordinators, options.workers
    );
    if options.minutes > 0 {
        let trellis = trellis::Trellis::start(&access, &options).await;
        soak::run(&trellis, options.minutes, options.rate).await;
        return trellis.stop().await;
    }
    if options.shapes > 0 {
        let trellis = trellis::Trellis::start(&access, &options).await;
        for _ in 0..options.shapes {
            shapes::show(&trellis).await;
        }
        return trellis.stop().await;
    }
    let bare = of_floor(Kind::Bare, &options, nats, redis).await;
    let duties = of_floor(Kind::Duties, &options, nats, redis).await;
    let bullmq = peer::bullmq(redis, &options).await;
    let restate = peer::restate(&options).await;

    let trellis = trellis::Trellis::start(&access, &options).await;
    trellis.many(options.jobs / 10, IN_FLIGHT).await;
    let usage = trellis.usage();
    let many = trellis.many(options.jobs, IN_FLIGHT).await;
    let used = trellis.usage().since(&usage, options.jobs);
    let one = trellis.one_at_a_time(options.singles).await;
    let ours = Figures {
        jobs_a_second: Some(options.jobs as f64 / many.as_secs_f64()),
        one_p50: Some(one.percentile(50)),
        one_p99: Some(one.percentile(99)),
        wide: Some(trellis.wide(WIDE).await),
        chain: Some(trellis.chain(LONG).await),
        pair_p50: Some(holds::pairs(&trellis, options.singles).await.percentile(50)),
        pairs_a_second: Some(holds::at_once(&trellis, options.singles * 4).await),
        used: Some(used),
    };
    let report = Report { bare, duties, bullmq, restate, trellis: ours };
    println!("{report}");
    report.write_json();
    hops::show(&trellis, &nats.url(), options.singles).await;

    if options.pending > 0 {
        println!("\nwith {} more pending jobs in a pool without workers:", options.pending);
        let submitted = trellis.pile_up(options.pending).await;
        let piled = options.jobs as f64 / trellis.many(options.jobs, IN_FLIGHT).await.as_secs_f64();
        let one_piled = trellis.one_at_a_time(options.singles).await.percentile(50);
        println!("  {submitted:.0} submitted a second");
        println!("  jobs a second: {:.2} of those without", piled * many.as_secs_f64() / options.jobs as f64);
        println!(
            "  one at a time, p50: {:.2} times that without",
            one_piled.as_secs_f64() / one.percentile(50).as_secs_f64()
        );
        println!("{}", trellis.usage());
    }
    trellis.stop().await;
}

async fn of_floor(kind: Kind, options: &Options, nats: &NatsServer, redis: &RedisServer) -> Figures {
    let floor = Floor::start(kind, nats, redis).await;
    let usage = servers(nats, redis);
    let many = floor.many(options.jobs, IN_FLIGHT).await;
    let used = servers(nats, redis).since(&usage, options.jobs);
    let one = floor.one_at_a_time(options.singles).await;
    let wide = floor.wide(WIDE).await;
    let chain = floor.chain(LONG).await;
    let pair = match kind {
        Kind::Bare => Some(floor.pairs(options.singles).await.percentile(50)),
        Kind::Duties => None,
    };
    floor.stop().await;
    Figures {
        jobs_a_second: Some(options.jobs as f64 / many.as_secs_f64()),
        one_p50: Some(one.percentile(50)),
        one_p99: Some(one.percentile(99)),
        wide: Some(wide),
        chain: Some(chain),
        pair_p50: pair,
        pairs_a_second: None,
        used: Some(used),
    }
}

fn servers(nats: &NatsServer, redis: &RedisServer) -> Usage {
    Usage::of(&[("nats-server".to_owned(), nats.pid()), ("redis-server".to_owned(), redis.pid())])
}
