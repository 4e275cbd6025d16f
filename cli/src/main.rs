//! The `trellis` binary: reads the command line, runs the command, says how it went. Data goes to
//! stdout, errors to stderr; the exit code means something.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the command line")]

mod file;
mod graph;
mod rehearse;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Runs trees of LLM agents, and never spends more than it was given.
#[derive(Debug, Parser)]
#[command(name = "trellis", version, after_help = EXIT_CODES, propagate_version = true)]
struct Cli {
    /// How to print what a command found.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

/// What the argument parser exits with, too.
const WRONG_USAGE: u8 = 2;
const EXIT_CODES: &str = "Exit codes: 0 completed, 1 failed, 2 wrong usage or unreadable input, 3 refused, 4 cancelled or timed out.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check, or rehearse, a task graph.
    #[command(subcommand)]
    Graph(graph::Command),
    /// Print the JSON Schema of a message; without a name, list them.
    Schema {
        /// Which message, such as `spawn` or `graph`.
        name: Option<String>,
    },
}

/// How a command ended, as the exit code tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Completed,
    Failed,
    Refused,
    Cancelled,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        ExitCode::from(match ending {
            Ending::Completed => 0,
            Ending::Failed => 1,
            Ending::Refused => 3,
            Ending::Cancelled => 4,
        })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Command::Graph(command) => graph::run(command, cli.output),
        Command::Schema { name } => print_schema(name.as_deref()),
    };
    match ended {
        Ok(ending) => ending.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(WRONG_USAGE)
        }
    }
}

fn print_schema(name: Option<&str>) -> anyhow::Result<Ending> {
    let all = coordinator::schemas();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let Some(wanted) = name else {
        names.iter().for_each(|name| println!("{name}"));
        return Ok(Ending::Completed);
    };
    let Some((_, schema)) = all.iter().find(|(name, _)| *name == wanted) else {
        let near = shared::problem::nearest(wanted, names.iter().copied());
        let hint =
            near.map_or(format!("there are {}", names.join(", ")), |near| format!("did you mean `{near}`?"));
        anyhow::bail!("no message is called `{wanted}`\n\nhint: {hint}");
    };
    println!("{}", serde_json::to_string_pretty(schema)?);
    Ok(Ending::Completed)
}
