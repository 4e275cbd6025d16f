//! A load for a long time, while processes are killed at random and restarted. It shows whether the
//! cost of a job and the memory stay the same after an hour.

use std::time::{Duration, Instant};

use domain::subject::Subject;
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::json;

use crate::trellis::{Spent, Trellis};

/// The time between two kills.
const KILL_EVERY: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);

/// Submits jobs at a fixed rate, and prints each minute the processor time of a job and the memory
/// of each kind of process.
pub(crate) async fn run(trellis: &Trellis, minutes: usize, rate: usize) {
    println!(
        "\n{rate} jobs a second for {minutes} minutes; every {KILL_EVERY:?} a coordinator or worker is killed:"
    );
    println!("  minute  jobs      µs of processor time a job, and MB, by process");
    let mut due = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).unwrap());
    let mut kills = tokio::time::interval(KILL_EVERY);
    kills.tick().await;
    let mut running = FuturesUnordered::new();
    let mut costs = Vec::new();
    for minute in 1..=minutes {
        let (began, before, mut done) = (Instant::now(), trellis.spent(), 0);
        while began.elapsed() < MINUTE {
            tokio::select! {
                _ = due.tick() => running.push(trellis.job(Subject::Spawn, json!({"goal": "hello", "max_cost_usd": 0.01}))),
                Some(()) = running.next() => done += 1,
                _ = kills.tick() => trellis.kill_one(minute + done),
            }
        }
        let used = trellis.spent();
        let one = |now: &Spent, before: &Spent| (now.cpu - before.cpu).as_secs_f64() * 1e6 / done as f64;
        let shown = used.iter().zip(&before).map(|(now, before)| {
            format!("{} {:.0} µs {:.0} MB", now.name, one(now, before), now.rss as f64 / 1e6)
        });
        costs.push(used.iter().zip(&before).map(|(now, before)| one(now, before)).sum::<f64>());
        println!("  {minute:>6}  {done:<8}  {}", shown.collect::<Vec<_>>().join("   "));
    }
    while running.next().await.is_some() {}
    let part = (costs.len() / 10).max(1);
    let mean = |some: &[f64]| some.iter().sum::<f64>() / some.len() as f64;
    let (first, last) = (mean(&costs[..part]), mean(&costs[costs.len() - part..]));
    println!(
        "  all ended; a job cost {first:.0} µs in the first {part} minutes and {last:.0} µs in the last: {:.2}",
        last / first
    );
}
