//! `trellis graph`: checks, plans or rehearses a task graph, and amends one that runs.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};
use shared::graph::Plan;

use crate::{
    cluster::connect::Servers,
    command::{amend, plan, rehearse, runtime},
    input::file::read_graph,
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
    },
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check graphs, and list every mistake in them.
    #[command(after_help = EXIT_CODES)]
    Validate {
        /// JSON or YAML files; `-` is stdin.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Play a graph through the real scheduler and budget, with no servers, models or money.
    ///
    /// Every agent answers with its task, at the cost given by --spend, at once: the simulated clock moves
    /// only while something waits. Order, skips, retries, limits and the outcome are decided by the code
    /// that runs in production.
    #[command(after_help = EXIT_CODES)]
    Rehearse(rehearse::Args),
    /// Show what a graph may cost at most, what it is expected to cost, and its critical path.
    ///
    /// The worst case comes from the ceilings of its steps: items, rounds and fallbacks count, retries stay within a
    /// ceiling, and the budget of the graph bounds all. What is expected comes from earlier runs.
    Plan(plan::Args),
    Show(amend::Show),
    Amend(amend::Args),
}

pub(crate) fn run(
    command: Command,
    servers: &Servers,
    output: Output,
    log_json: bool,
) -> anyhow::Result<Ending> {
    match command {
        Command::Validate { files } => validate(&files, output),
        Command::Rehearse(args) => rehearse::run(&args, output),
        Command::Plan(args) => plan::run(&args, servers, output),
        Command::Show(args) => runtime::block_on(log_json, amend::show(args, servers, output)),
        Command::Amend(args) => runtime::block_on(log_json, amend::run(args, servers, output)),
    }
}

/// Checks every file, whether or not the others are valid.
fn validate(files: &[PathBuf], output: Output) -> anyhow::Result<Ending> {
    let mut worst = Ending::Completed;
    let mut found: Vec<Value> = Vec::new();
    for path in files {
        match read_graph(path) {
            Ok((_, plan)) => {
                let (steps, groups) = sizes(&plan);
                let name = path.display().to_string();
                if output == Output::Text {
                    let groups =
                        if groups == 0 { String::new() } else { format!(", {}", count(groups, "group")) };
                    output::print(&format!("{name}: ok, {}{groups}\n", count(steps, "step")))?;
                }
                found.push(json!({"file": name, "ok": true, "steps": steps, "groups": groups}));
            }
            Err(unusable) => {
                found.push(unusable.to_json(path));
                let ending = unusable.explain(path);
                if worst != Ending::Refused {
                    worst = ending;
                }
            }
        }
    }
    if output == Output::Json {
        output::print_json(&Value::Array(found))?;
    }
    Ok(worst)
}

/// Steps that run an agent, and groups of steps.
fn sizes(plan: &Plan) -> (usize, usize) {
    let groups = plan.groups().len() - 1;
    (plan.step_count() as usize - groups, groups)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
