//! The whole command line: global options, all commands, and which commands need a runtime.

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    cluster::connect::Servers,
    command::{
        admin_log, agents, answer, audit, auth, budget, charge, completions, dead, dev, doctor, events,
        gateway, graph, graphs, history, man, outputs, page, receipt, reference, result, run, runs, runtime,
        schedule, schema, serve, submit, tell, trace, webhooks, workers,
    },
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{Format, Output},
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis run examples/research.yaml            run a graph here, with no servers
  trellis run --goal 'hello' -o json            run one agent, for programs
  trellis runs list                             what has run here
  NATS_URL=nats://… trellis runs list           look at a cluster

Commands use the server that TRELLIS_URL names, else the cluster that NATS_URL names, else the directory of --data, else the one in
which `run` and `dev` keep everything by themselves. While a process has a directory open, they ask it.
";

/// Runs trees of LLM agents, and never spends more than their budget.
#[derive(Debug, Parser)]
#[command(name = "trellis", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    /// The format of the output.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,
    /// Write logs (on stderr) as JSON lines.
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
    /// Print only what was asked for: no progress, no hints, of a list the ids alone.
    #[arg(short, long, global = true)]
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
    /// See, watch, cancel, restore and delete runs of a cluster.
    #[command(subcommand)]
    Runs(runs::Command),
    Answer(answer::Args),
    Tell(tell::Args),
    History(history::Args),
    Result(result::Args),
    Outputs(outputs::Args),
    Receipt(receipt::Args),
    Trace(trace::Args),
    Audit(audit::Args),
    Events(events::Args),
    /// See and raise budgets.
    #[command(subcommand)]
    Budget(budget::Command),
    Charge(charge::Args),
    /// See and change the agents of a cluster.
    #[command(subcommand)]
    Agents(agents::Command),
    /// Keep graphs on a cluster under names, to be used as steps.
    #[command(subcommand)]
    Graphs(graphs::Command),
    /// Run tasks again and again: by cron in a time zone, within a budget a day.
    #[command(subcommand)]
    Schedule(schedule::Command),
    /// See and drain the workers of a cluster.
    #[command(subcommand)]
    Workers(workers::Command),
    AdminLog(admin_log::Args),
    /// See dead letters (messages that were refused for good), send them again and drop them.
    #[command(subcommand)]
    Dead(dead::Command),
    Coordinator(serve::CoordinatorArgs),
    Provision(serve::ProvisionArgs),
    Worker(serve::WorkerArgs),
    Gateway(gateway::Args),
    Page(page::Args),
    /// Check and try the webhooks of a deployment, which are told of outcomes and questions.
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    Doctor(doctor::Args),
}

/// The commands that need no server and no runtime, apart from those of `graph` about a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Offline {
    /// Check, plan or rehearse a task graph, or amend one that runs.
    #[command(subcommand)]
    Graph(graph::Command),
    /// Make the keys and permissions of a deployment, as files that its servers read.
    #[command(subcommand)]
    Auth(auth::Command),
    /// Print the JSON Schema of a message; without a name, list them.
    Schema {
        /// Which message, such as `spawn` or `graph`.
        name: Option<String>,
    },
    /// Print a script that completes commands in a shell, and the ids of runs and the names of agents.
    ///
    /// For bash: `source <(trellis completions bash)`.
    Completions { shell: clap_complete::Shell },
    /// Write the manual pages of all commands into a directory: scripts/package packs them.
    #[command(hide = true)]
    Man {
        dir: PathBuf,
        /// The reference of the book instead.
        #[arg(long)]
        markdown: bool,
    },
}

pub(crate) fn run_offline(
    command: Offline,
    servers: &Servers,
    output: Output,
    log_json: bool,
) -> anyhow::Result<Ending> {
    match command {
        Offline::Graph(command) => graph::run(command, servers, output, log_json),
        Offline::Auth(command) => auth::run(command, servers, output),
        Offline::Schema { name } => schema::run(name.as_deref(), output),
        Offline::Completions { shell } => completions::script(shell),
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
        Online::Budget(command) => budget::run(command, servers, output).await,
        Online::Charge(args) => charge::run(args, servers, output).await,
        Online::Agents(command) => agents::run(command, servers, output).await,
        Online::Graphs(command) => graphs::run(command, servers, output).await,
        Online::Schedule(command) => schedule::run(command, servers, output).await,
        Online::Workers(command) => workers::run(command, servers, output).await,
        Online::Dead(command) => dead::run(command, servers, output).await,
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
        | Online::Budget(_)
        | Online::Charge(_)
        | Online::Agents(_)
        | Online::Graphs(_)
        | Online::Schedule(_)
        | Online::Workers(_)
        | Online::AdminLog(_)
        | Online::Dead(_)
        | Online::Provision(_)
        | Online::Page(_)
        | Online::Webhooks(_)
        | Online::Doctor(_) => ("trellis", true),
    }
}
