//! `trellis run`: submits a task, shows its progress and prints its outcome; in this process, or in the cluster that
//! `NATS_URL` names.

use std::{net::Ipv4Addr, path::Path};

use shared::{
    agent_policy::AgentPolicy,
    bus::Bus,
    telemetry,
    text::count,
    wire::{SubmitAnswer, Text},
};

use crate::{
    cluster::{
        client::{self, Submission},
        connect::{Home, Servers},
        embedded::Deployment,
    },
    command::{agents, runtime},
    input::{parse, sources::Sources, task::Task, worker_config::WorkerConfig},
    terminal::{
        ending::{EXIT_CODES, Ending},
        live, outcome,
        output::{self, Output},
        questions::{Answerer, Questions},
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis run examples/research.yaml
  trellis run --goal 'Say hello' --max-cost-usd 0.05 --timeout 30s
  trellis run graph.yaml --input topic='\"ants\"' -o json | jq .status
";

/// Run a graph or one agent, and wait for its outcome.
///
/// It runs in the cluster that TRELLIS_URL or NATS_URL names, or in the `trellis dev` of this user, or else in this process. There it is
/// kept in a directory (--data): `runs`, `history`, `outputs`, `receipt` and others show it afterwards, without a server.
/// Ctrl-C cancels the run; a second Ctrl-C ends the command at once.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    task: Task,
    /// Answer every question of the agents with this text.
    #[arg(long, value_name = "TEXT", value_parser = parse::text)]
    answer: Option<Text>,
    /// Show the live output of the agents.
    #[arg(long)]
    words: bool,
    /// Keep nothing of it: it runs in this process, unless a server is named, and is gone with it.
    #[arg(long, env = "TRELLIS_NO_KEEP", value_parser = clap::builder::FalseyValueParser::new())]
    no_keep: bool,
    #[command(flatten)]
    config: WorkerConfig,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let (settings, policy) = match args.config.read() {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let home = servers.home(!args.no_keep, args.config.is_given()).await?;
    let embedded = matches!(home, Home::Here(_));
    if matches!(home, Home::Here(None)) && !args.no_keep {
        output::note("note: this run is not kept: there is no HOME; --data names a directory");
    }
    let (mut submission, sources) = match args.task.read(matches!(home, Home::Here(None)), output)? {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let profiles = match args.task.profiles(embedded)? {
        Ok(profiles) => profiles,
        Err(ending) => return Ok(ending),
    };
    let from_stdin = args.task.file.as_deref().is_some_and(|file| file == "-");
    let asked = Questions::new(Answerer::is(args.answer, embedded, from_stdin));
    let mut deployment = match home {
        Home::Cluster(bus) => Deployment::of_others(bus),
        Home::Here(directory) => here(servers, directory.as_deref(), settings, policy).await?,
    };
    let bus = deployment.bus().clone();
    let work = async {
        if let Some(ending) = agents::apply(&bus, profiles, output).await? {
            return Ok(ending);
        }
        if embedded {
            tell_earlier(&bus).await?;
        }
        args.task.settle(&mut submission, &bus).await?;
        perform(&bus, servers, (&submission, &sources), asked, args.words, output).await
    };
    let ended = deployment.while_up(work).await;
    runtime::tell_closed(deployment.close().await);
    ended
}

/// Says so if runs that were not over go on beside this one.
async fn tell_earlier(bus: &Bus) -> anyhow::Result<()> {
    let going = client::going(bus).await?.len();
    if going > 0 {
        let runs = count(going as u64, "earlier run");
        output::note(&format!(
            "note: {runs} that had not ended go on too; `trellis runs list` shows, `trellis runs cancel` ends them"
        ));
    }
    Ok(())
}

/// A cluster in this process, which others can look at if it has a directory.
async fn here(
    servers: &Servers,
    directory: Option<&Path>,
    settings: worker::Settings,
    policy: Option<AgentPolicy>,
) -> anyhow::Result<Deployment> {
    let (mut deployment, not_kept) = servers.embedded(directory, settings, policy).await?;
    match (directory, not_kept) {
        (_, Some(why)) => output::note(&format!("note: this run is not kept: {why}")),
        (Some(directory), None) => {
            if let Err(error) = let_look(&mut deployment, directory).await {
                output::note(&format!(
                    "note: other commands can't look at this run while it goes on: {error:#}"
                ));
            }
        }
        (None, None) => {}
    }
    Ok(deployment)
}

/// Lets other commands of this user look at what runs here.
async fn let_look(deployment: &mut Deployment, directory: &Path) -> anyhow::Result<()> {
    let token = Some(gateway::token::fresh());
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let address =
        deployment.serve(gateway::Config { token: token.clone(), ..gateway::Config::new(listen) }).await?;
    Ok(deployment.tell(directory, address, token, false)?)
}

async fn perform(
    bus: &Bus,
    servers: &Servers,
    (submission, sources): (&Submission, &Sources),
    asked: Questions,
    words: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    let accepted = match client::submit(bus, submission).await? {
        SubmitAnswer::Accepted(accepted) => accepted,
        SubmitAnswer::Refused(refusal) => return output::refuse(&sources.locate(refusal), output),
    };
    output::note(&format!("trace {}", servers.trace_link(accepted.trace_id, telemetry::is_on())));
    output::adjusted(&accepted);
    match live::follow(bus, accepted.trace_id, asked, words, live::OnSignal::Cancel).await? {
        Some(watch) => outcome::print(bus, &watch, output).await,
        None => Ok(Ending::Cancelled),
    }
}
