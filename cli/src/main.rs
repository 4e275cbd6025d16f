//! The `trellis` binary: reads the command line and the environment, runs the command, says how it
//! went. Data goes to stdout, everything else to stderr; the exit code means something.

mod cluster;
mod command;
mod input;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use shared::{telemetry, wire::EndStatus};

use crate::{
    cluster::connect,
    command::{
        agents, answer, budget, dev, doctor, graph, history, outputs, run, runs, schema, serve, submit,
        workers,
    },
    terminal::output,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs trees of LLM agents, and never spends more than it was given.
#[derive(Debug, Parser)]
#[command(name = "trellis", version, after_help = AFTER_HELP, propagate_version = true, max_term_width = 100)]
struct Cli {
    /// How to print what a command found.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write logs (on stderr) as JSON lines.
    #[arg(long, global = true)]
    log_json: bool,
    #[command(flatten)]
    servers: connect::Servers,
    #[command(subcommand)]
    command: Command,
}

/// What the argument parser exits with, too.
const WRONG_USAGE: u8 = 2;
const EXIT_CODES: &str = "Exit codes: 0 completed (wholly or in part), 1 failed or aborted, 2 wrong usage or a file \
                          that can't be read, 3 refused, 4 cancelled or timed out, 5 cannot connect.";
const AFTER_HELP: &str = "\
Examples:
  trellis run examples/research.yaml            run a graph here, with no servers
  trellis run --goal 'hello' -o json            run one agent, for programs
  NATS_URL=nats://… trellis runs list           look at a cluster

Without a NATS URL, `run` and `dev` need no servers; what talks to a cluster says so.

Exit codes: 0 completed (wholly or in part), 1 failed or aborted, 2 wrong usage or a file that can't be read, 3 \
                          refused, 4 cancelled or timed out, 5 cannot connect.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Dev(dev::Args),
    Submit(submit::Args),
    /// See, watch, cancel, restore and delete runs of a cluster.
    #[command(subcommand)]
    Runs(runs::Command),
    Answer(answer::Args),
    History(history::Args),
    Outputs(outputs::Args),
    /// See and raise budgets.
    #[command(subcommand)]
    Budget(budget::Command),
    /// See and change the agents of a cluster.
    #[command(subcommand)]
    Agents(agents::Command),
    /// See and drain the workers of a cluster.
    #[command(subcommand)]
    Workers(workers::Command),
    Coordinator(serve::CoordinatorArgs),
    Worker(serve::WorkerArgs),
    /// Check, or rehearse, a task graph.
    #[command(subcommand)]
    Graph(graph::Command),
    Doctor(doctor::Args),
    /// Print the JSON Schema of a message; without a name, list them.
    Schema {
        /// Which message, such as `spawn` or `graph`.
        name: Option<String>,
    },
    /// Restricts itself and becomes a program: what a worker starts its sub-process agents with.
    #[command(hide = true)]
    Sandbox {
        stage: Option<String>,
        #[arg(long, env = worker::SANDBOX_VARIABLE, hide_env_values = true)]
        told: String,
    },
    /// Print a script that completes commands in a shell.
    ///
    /// For bash: `source <(trellis completions bash)`.
    Completions {
        shell: clap_complete::Shell,
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
    Unreachable,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        ExitCode::from(match ending {
            Ending::Completed => 0,
            Ending::Failed => 1,
            Ending::Unreadable => WRONG_USAGE,
            Ending::Refused => 3,
            Ending::Cancelled => 4,
            Ending::Unreachable => 5,
        })
    }
}

impl From<EndStatus> for Ending {
    fn from(status: EndStatus) -> Self {
        match status {
            EndStatus::Completed => Ending::Completed,
            EndStatus::Cancelled | EndStatus::TimedOut => Ending::Cancelled,
            EndStatus::Rejected => Ending::Refused,
            EndStatus::Failed | EndStatus::Aborted => Ending::Failed,
        }
    }
}

fn main() -> ExitCode {
    // Nobody has chosen a TLS provider before the first line of main.
    rustls::crypto::ring::default_provider().install_default().ok();
    let cli = Cli::parse();
    if let Command::Sandbox { stage, told } = &cli.command {
        return worker::enter_sandbox(stage.as_deref(), told);
    }
    match dispatch(cli) {
        Ok(ending) => ending.into(),
        // Whoever read our output has seen enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("{error:#}"));
            if error.is::<connect::Unreachable>() {
                return Ending::Unreachable.into();
            }
            ExitCode::from(WRONG_USAGE)
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<Ending> {
    match cli.command {
        Command::Graph(command) => graph::run(command, cli.output),
        Command::Schema { name } => schema::run(name.as_deref(), cli.output),
        Command::Sandbox { .. } => unreachable!("entered before anything else"),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "trellis", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(Ending::Completed)
        }
        command @ (Command::Run(_)
        | Command::Dev(_)
        | Command::Submit(_)
        | Command::Runs(_)
        | Command::Answer(_)
        | Command::History(_)
        | Command::Outputs(_)
        | Command::Budget(_)
        | Command::Agents(_)
        | Command::Workers(_)
        | Command::Coordinator(_)
        | Command::Worker(_)
        | Command::Doctor(_)) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let ended = runtime.block_on(async {
                let (service, quiet) = service(&command);
                let telemetry = telemetry::start(service, cli.log_json, quiet);
                let ended = talk(command, &cli.servers, cli.output).await;
                telemetry.stop().await;
                ended
            });
            // A read of a terminal can't be taken back, and nothing else is left.
            runtime.shutdown_background();
            ended
        }
    }
}

/// The commands that talk to somebody.
async fn talk(command: Command, servers: &connect::Servers, output: Output) -> anyhow::Result<Ending> {
    match command {
        Command::Run(args) => run::run(args, servers, output).await,
        Command::Dev(args) => dev::run(args, servers, output).await,
        Command::Submit(args) => submit::run(args, servers, output).await,
        Command::Runs(command) => runs::run(command, servers, output).await,
        Command::Answer(args) => answer::run(args, servers, output).await,
        Command::History(args) => history::run(args, servers, output).await,
        Command::Outputs(args) => outputs::run(args, servers, output).await,
        Command::Budget(command) => budget::run(command, servers, output).await,
        Command::Agents(command) => agents::run(command, servers, output).await,
        Command::Workers(command) => workers::run(command, servers, output).await,
        Command::Coordinator(args) => serve::coordinator(args, servers).await,
        Command::Worker(args) => serve::worker(args, servers).await,
        Command::Doctor(args) => doctor::run(args, servers, output).await,
        Command::Graph(_)
        | Command::Schema { .. }
        | Command::Completions { .. }
        | Command::Sandbox { .. } => {
            unreachable!("answered without talking to anybody")
        }
    }
}

/// The name a command's spans go under, and whether it shows by itself what it does.
fn service(command: &Command) -> (&'static str, bool) {
    match command {
        Command::Coordinator(_) => ("trellis-coordinator", false),
        Command::Worker(_) => ("trellis-worker", false),
        Command::Run(_)
        | Command::Dev(_)
        | Command::Submit(_)
        | Command::Runs(_)
        | Command::Answer(_)
        | Command::History(_)
        | Command::Outputs(_)
        | Command::Budget(_)
        | Command::Agents(_)
        | Command::Workers(_)
        | Command::Doctor(_)
        | Command::Graph(_)
        | Command::Schema { .. }
        | Command::Completions { .. }
        | Command::Sandbox { .. } => ("trellis", true),
    }
}
