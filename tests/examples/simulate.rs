//! Simulates many seeds, or prints the story of one: `scripts/simulate` calls it.

use std::process::ExitCode;

use trellis_tests::simulation::{Extra, Extras, simulate};

/// The request on the command line.
struct Asked {
    first: u64,
    count: u64,
    tell: bool,
    extras: Extras,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match read(&arguments) {
        Some(asked) => run(&asked),
        None => usage(),
    }
}

fn read(arguments: &[String]) -> Option<Asked> {
    let mut asked = Asked { first: 0, count: 1, tell: false, extras: Extras::default() };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--seed" => (asked.first, asked.tell) = (rest.next()?.parse().ok()?, true),
            "--from" => asked.first = rest.next()?.parse().ok()?,
            "--with" if asked.extras.add(rest.next()?) => {}
            "--with" => return None,
            count => asked.count = count.parse().ok()?,
        }
    }
    (!arguments.is_empty()).then_some(asked)
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]
fn run(asked: &Asked) -> ExitCode {
    // For a single seed with its story, logs are printed as RUST_LOG asks.
    let _logs = asked.tell.then(|| telemetry::start("simulate", false, true));
    let (mut failed, mut messages, mut virtual_seconds) = (Vec::new(), 0, 0);
    for seed in asked.first..asked.first.saturating_add(asked.count) {
        let report = simulate(seed, &asked.extras);
        messages += report.carried.len();
        virtual_seconds += report.took.as_secs();
        if asked.tell {
            print!("{}", report.story);
        }
        if !report.wrong.is_empty() {
            println!("seed {seed} fails:\n  {}", report.wrong.join("\n  "));
            failed.push(seed);
        }
    }
    let count = asked.count;
    println!(
        "{count} seeds, {messages} messages, {virtual_seconds} s of virtual time; {} failed",
        failed.len()
    );
    match failed.first() {
        None => ExitCode::SUCCESS,
        Some(first) => {
            eprintln!("\nhint: scripts/simulate --seed {first} prints its steps");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command for people")]
fn usage() -> ExitCode {
    eprintln!(
        "usage: simulate COUNT [--from SEED] [--with EXTRA], or simulate --seed SEED [--with EXTRA]\n\n\
         EXTRA is what a simulation can do or check on demand: {}",
        Extra::ALL.map(Extra::name).join(", ")
    );
    ExitCode::FAILURE
}
