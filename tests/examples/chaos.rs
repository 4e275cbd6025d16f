//! Kills processes at random for a while and reports the result: `scripts/chaos` calls it.

use std::{process::ExitCode, time::Duration};

use trellis_tests::chaos::{Plan, run};

#[expect(clippy::print_stdout, reason = "a command for people")]
#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = read(&arguments) else { return usage() };
    println!("seed {}, for {} s", plan.seed, plan.lasts.as_secs());
    let report = run(plan).await;
    println!("\n{report}");
    if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(arguments: &[String]) -> Option<Plan> {
    let seed = u64::from(std::process::id());
    let mut plan = Plan { seed, lasts: Duration::from_secs(600), coordinators: 2, workers: 3 };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--seed" => plan.seed = rest.next()?.parse().ok()?,
            "--coordinators" => plan.coordinators = rest.next()?.parse().ok()?,
            "--workers" => plan.workers = rest.next()?.parse().ok()?,
            time => plan.lasts = Duration::from_secs(seconds(time).filter(|seconds| *seconds > 0)?),
        }
    }
    (plan.coordinators > 0 && plan.workers > 0).then_some(plan)
}

/// Parses minutes or seconds: `10` or `30s`. The result is in seconds.
fn seconds(time: &str) -> Option<u64> {
    match time.strip_suffix('s') {
        Some(seconds) => seconds.parse().ok(),
        None => time.parse::<u64>().ok()?.checked_mul(60),
    }
}

#[expect(clippy::print_stderr, reason = "a command for people")]
fn usage() -> ExitCode {
    eprintln!("usage: chaos [MINUTES | SECONDSs] [--seed SEED] [--coordinators COUNT] [--workers COUNT]");
    ExitCode::FAILURE
}
