//! `trellis graph`: check a task graph, or rehearse it.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use crate::{
    Ending, Output,
    file::{explain, read_graph},
    rehearse,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say whether graphs make sense, or everything that is wrong with them.
    Validate {
        /// JSON or YAML files; `-` is stdin.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Play a graph through the real scheduler and budget, with no servers, models or money.
    ///
    /// Every agent answers with its task, at the cost you say. What is decided (order, skips,
    /// retries, ceilings, outcome) is decided by the code that runs in production.
    Rehearse(rehearse::Args),
}

pub(crate) fn run(command: Command, output: Output) -> anyhow::Result<Ending> {
    match command {
        Command::Validate { files } => validate(&files, output),
        Command::Rehearse(args) => rehearse::run(&args, output),
    }
}

fn validate(files: &[PathBuf], output: Output) -> anyhow::Result<Ending> {
    let mut ending = Ending::Completed;
    let mut found = Vec::new();
    for path in files {
        let name = path.display().to_string();
        match read_graph(path)? {
            Ok((_, plan)) => {
                let (steps, groups) = (plan.step_count(), plan.groups().len() - 1);
                found.push(json!({"file": name, "ok": true, "steps": steps, "groups": groups}));
                if output == Output::Text {
                    println!(
                        "{name}: ok, {} in {}",
                        count(steps as usize, "step"),
                        count(groups + 1, "group")
                    );
                }
            }
            Err(problems) => {
                ending = Ending::Refused;
                found.push(
                    json!({"file": name, "ok": false, "problems": problems.iter().collect::<Vec<_>>()}),
                );
                if output == Output::Text {
                    explain(&name, &problems);
                }
            }
        }
    }
    if output == Output::Json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    }
    Ok(ending)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
