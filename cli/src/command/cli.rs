//! The whole command line: global options, all commands, and which commands need a runtime.

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use serde_json::json;

use crate::{
    cluster::connect::Servers,
    command::{
        admin_log, agents, answer, audit, auth, budgets, charge, completions, dead_letters, dev, doctor,
        events, finding, gateway, graphs, help, history, man, outputs, page, receipt, reference, rerun,
        result, run, runs, runtime, schedules, schema, serve, submit, tell, trace, webhooks, workers,
    },
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Format, Output},
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis run examples/research.yaml            run a graph without servers
  trellis run --goal 'hello' -o json            run one agent, for programs
  trellis runs list                             list the stored runs
  NATS_URL=nats://… trellis runs list           list the runs of a cluster

A command uses the server of TRELLIS_URL, else the cluster of NATS_URL, else the directory of --data, by default
the directory in which `run` and `dev` store runs. If another process has that directory open, the command asks it.
";

/// Runs trees of LLM agents within a budget.
#[derive(Debug, Parser)]
#[command(name = "trellis", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    /// The format of the output: text, json or yaml.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    #[arg(display_order = 900, hide_default_value = true, hide_possible_values = true)]
    pub(crate) output: Format,
    /// Write logs (on stderr) as JSON lines.
    #[arg(long, global = true, help_heading = "Logs")]
    pub(crate) log_json: bool,
    /// Quiet: no progress or hints; lists print ids only.
    #[arg(short, long, global = true, display_order = 900)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) servers: Servers,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Online(Box<Online>),
    #[command(flatten)]
    Offline(Offline),
    #[command(flatten)]
    Short(Box<Short>),
    /// Restricts this process and then becomes the program: workers start sub-process agents with it.
    #[command(hide = true)]
    Sandbox {
        stage: Option<String>,
        #[arg(long, env = worker::SANDBOX_VARIABLE, hide_env_values = true)]
        told: String,
    },
}

/// The commands that talk to a cluster, are part of one, or run one in this process.
#[derive(Debug, Subcommand)]
pub(crate) enum Online {
    Run(run::Args),
    Dev(dev::Args),
    Submit(submit::Args),
    /// List, show, watch, cancel, rerun, restore and delete runs.
    #[command(subcommand)]
    Runs(runs::Command),
    Answer(answer::Args),
    Tell(tell::Args),
    #[command(alias = "logs")]
    History(history::Args),
    Result(result::Args),
    Outputs(outputs::Args),
    Receipt(receipt::Args),
    Trace(trace::Args),
    Audit(audit::Args),
    Events(events::Args),
    /// Show and raise budgets, and decide disputed charges.
    #[command(subcommand, alias = "budget")]
    Budgets(budgets::Command),
    Charge(charge::Args),
    /// List, show, compare, apply and delete agent profiles.
    #[command(subcommand)]
    Agents(agents::Command),
    /// Check, plan, rehearse and amend graphs, and store them under names.
    #[command(subcommand, alias = "graph")]
    Graphs(graphs::Command),
    /// Run tasks by cron in a time zone, within a daily budget.
    #[command(subcommand, alias = "schedule")]
    Schedules(schedules::Command),
    /// List, show and drain workers.
    #[command(subcommand)]
    Workers(workers::Command),
    AdminLog(admin_log::Args),
    /// List, show, retry and drop dead letters: messages that were refused for good.
    #[command(subcommand, alias = "dead")]
    DeadLetters(dead_letters::Command),
    Coordinator(serve::CoordinatorArgs),
    Provision(serve::ProvisionArgs),
    Worker(serve::WorkerArgs),
    Gateway(gateway::Args),
    Page(page::Args),
    /// Check and try the webhooks of a deployment, which receive outcomes and questions.
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    Doctor(doctor::Args),
}

/// Short names of commands, as users of other tools type them. The list of commands does not have them.
#[derive(Debug, Subcommand)]
pub(crate) enum Short {
    /// Short for `trellis runs list`: list runs, the newest first.
    #[command(hide = true, after_help = finding::EXAMPLES)]
    Ps(finding::ListArgs),
    #[command(hide = true)]
    Status(runs::ShowArgs),
    #[command(hide = true)]
    Cancel(runs::CancelArgs),
    #[command(hide = true)]
    Retry(rerun::Args),
    /// Short for `trellis runs pending`: list the open questions of all runs.
    #[command(hide = true)]
    Questions(finding::PendingArgs),
}

impl Short {
    /// The command that this is short for.
    pub(crate) fn command(self) -> Online {
        Online::Runs(match self {
            Short::Ps(args) => runs::Command::List(Box::new(args)),
            Short::Status(args) => runs::Command::Show(args),
            Short::Cancel(args) => runs::Command::Cancel(args),
            Short::Retry(args) => runs::Command::Rerun(args),
            Short::Questions(args) => runs::Command::Pending(args),
        })
    }
}

/// The commands that need no server and no runtime.
#[derive(Debug, Subcommand)]
pub(crate) enum Offline {
    /// Make the keys and permissions of a deployment, as files for its servers.
    #[command(subcommand)]
    Auth(auth::Command),
    /// Print the JSON Schema of a message, or list the messages.
    Schema {
        /// The message, such as `spawn` or `graph`; by default, all names are listed.
        name: Option<String>,
    },
    /// Print a completion script for a shell.
    ///
    /// It completes commands, options, the ids of runs and the names of agents.
    /// For bash: `source <(trellis completions bash)`.
    Completions { shell: clap_complete::Shell },
    /// Print the version.
    #[command(hide = true)]
    Version,
    /// The options of servers, credentials and logs, which every command has.
    #[command(hide = true)]
    Connection,
    /// Write the manual pages of all commands into a directory: scripts/package packs them.
    #[command(hide = true)]
    Man {
        dir: PathBuf,
        /// The reference of the book instead.
        #[arg(long)]
        markdown: bool,
    },
}

pub(crate) fn run_offline(command: Offline, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    match command {
        Offline::Auth(command) => auth::run(command, servers, output),
        Offline::Schema { name } => schema::run(name.as_deref(), output),
        Offline::Completions { shell } => completions::script(shell),
        Offline::Version => {
            match output {
                Output::Text => output::print(&Cli::command().render_version())?,
                Output::Json => output::print_json(&json!({"version": env!("CARGO_PKG_VERSION")}))?,
            }
            Ok(Ending::Completed)
        }
        Offline::Connection => {
            output::print(&help::connection(Cli::command()).to_string())?;
            Ok(Ending::Completed)
        }
        Offline::Man { dir, markdown: false } => man::run(Cli::command(), &dir),
        Offline::Man { dir, markdown: true } => reference::run(Cli::command(), &dir),
    }
}

pub(crate) fn run_online(
    command: Online,
    servers: &Servers,
    format: Format,
    log_json: bool,
) -> anyhow::Result<Ending> {
    let (service, quiet) = service(&command);
    runtime::run(service, quiet, log_json, runtime::closing(servers, talk(command, servers, format)))
}

async fn talk(command: Online, servers: &Servers, format: Format) -> anyhow::Result<Ending> {
    // A receipt has more formats than other commands, so it takes the format unchanged.
    let output = if matches!(command, Online::Receipt(_)) { Output::Text } else { format.output()? };
    match command {
        Online::Receipt(args) => receipt::run(args, servers, format).await,
        Online::Run(args) => run::run(args, servers, output).await,
        Online::Dev(args) => dev::run(args, servers, output).await,
        Online::Submit(args) => submit::run(args, servers, output).await,
        Online::Runs(command) => runs::run(command, servers, output).await,
        Online::Answer(args) => answer::run(args, servers, output).await,
        Online::Tell(args) => tell::run(args, servers, output).await,
        Online::History(args) => history::run(args, servers, output).await,
        Online::Result(args) => result::run(args, servers, output).await,
        Online::Outputs(args) => outputs::run(args, servers, output).await,
        Online::Audit(args) => audit::run(args, servers, output).await,
        Online::Trace(args) => trace::run(args, servers, output).await,
        Online::Events(args) => events::run(args, servers, output).await,
        Online::Budgets(command) => budgets::run(command, servers, output).await,
        Online::Charge(args) => charge::run(args, servers, output).await,
        Online::Agents(command) => agents::run(command, servers, output).await,
        Online::Graphs(command) => graphs::run(command, servers, output).await,
        Online::Schedules(command) => schedules::run(command, servers, output).await,
        Online::Workers(command) => workers::run(command, servers, output).await,
        Online::DeadLetters(command) => dead_letters::run(command, servers, output).await,
        Online::AdminLog(args) => admin_log::run(args, servers, output).await,
        Online::Provision(args) => serve::provision(args, servers).await,
        Online::Coordinator(args) => serve::coordinator(args, servers).await,
        Online::Worker(args) => serve::worker(args, servers).await,
        Online::Gateway(args) => gateway::run(args, servers, output).await,
        Online::Page(args) => page::run(args, servers, output).await,
        Online::Webhooks(command) => webhooks::run(command, output).await,
        Online::Doctor(args) => doctor::run(args, servers, output).await,
    }
}

/// The service name of a command's spans, and true if it logs little because it prints its
/// progress.
fn service(command: &Online) -> (&'static str, bool) {
    match command {
        Online::Coordinator(_) => ("trellis-coordinator", false),
        Online::Worker(_) => ("trellis-worker", false),
        Online::Gateway(_) => ("trellis-gateway", false),
        Online::Run(_)
        | Online::Dev(_)
        | Online::Submit(_)
        | Online::Runs(_)
        | Online::Answer(_)
        | Online::Tell(_)
        | Online::History(_)
        | Online::Result(_)
        | Online::Outputs(_)
        | Online::Receipt(_)
        | Online::Trace(_)
        | Online::Audit(_)
        | Online::Events(_)
        | Online::Budgets(_)
        | Online::Charge(_)
        | Online::Agents(_)
        | Online::Graphs(_)
        | Online::Schedules(_)
        | Online::Workers(_)
        | Online::AdminLog(_)
        | Online::DeadLetters(_)
        | Online::Provision(_)
        | Online::Page(_)
        | Online::Webhooks(_)
        | Online::Doctor(_) => ("trellis", true),
    }
}
