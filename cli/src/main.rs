//! The `trellis` binary: reads the command line, runs the command, says how it went. Data goes to
//! stdout, errors to stderr; the exit code means something.

mod file;
mod graph;
mod out;
mod rehearse;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::json;

/// Runs trees of LLM agents, and never spends more than it was given.
#[derive(Debug, Parser)]
#[command(name = "trellis", version, after_help = EXIT_CODES, propagate_version = true, max_term_width = 100)]
struct Cli {
    /// How to print what a command found.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

/// What the argument parser exits with, too.
const WRONG_USAGE: u8 = 2;
const EXIT_CODES: &str = "Exit codes: 0 completed (wholly or in part), 1 failed or aborted, 2 wrong usage or a file \
                          that can't be read, 3 refused, 4 cancelled or timed out.";

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
    Unreadable,
    Refused,
    Cancelled,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        ExitCode::from(match ending {
            Ending::Completed => 0,
            Ending::Failed => 1,
            Ending::Unreadable => WRONG_USAGE,
            Ending::Refused => 3,
            Ending::Cancelled => 4,
        })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Command::Graph(command) => graph::run(command, cli.output),
        Command::Schema { name } => print_schema(name.as_deref(), cli.output),
    };
    match ended {
        Ok(ending) => ending.into(),
        // Whoever read our output has seen enough.
        Err(error) if out::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            out::complain(&format!("{error:#}"));
            ExitCode::from(WRONG_USAGE)
        }
    }
}

fn print_schema(name: Option<&str>, output: Output) -> anyhow::Result<Ending> {
    let all = coordinator::schemas();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let Some(wanted) = name else {
        match output {
            Output::Text => out::print(&format!("{}\n", names.join("\n")))?,
            Output::Json => out::print_json(&json!(names))?,
        }
        return Ok(Ending::Completed);
    };
    let Some((_, schema)) = all.iter().find(|(name, _)| *name == wanted) else {
        let near = shared::problem::nearest(wanted, names.iter().copied());
        let hint =
            near.map_or(format!("there are {}", names.join(", ")), |near| format!("did you mean `{near}`?"));
        anyhow::bail!("no message is called `{wanted}`\n\nhint: {hint}");
    };
    out::print_json(schema)?;
    Ok(Ending::Completed)
}
