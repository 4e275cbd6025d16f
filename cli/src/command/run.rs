//! `trellis run`: submits a task, shows its progress and prints its outcome. The task runs in the
//! cluster that the environment names, in the `trellis dev` of this user, or in this process.

use std::{
    io::IsTerminal,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use client::{Client, PAGE, Submission};
use domain::{
    AgentProfile, TraceId,
    agent::AgentKind,
    wire::{Query, QueryAnswer, SubmitAnswer, Text},
    wording::count,
};

use crate::{
    cluster::{
        connect::{EmbeddedCluster, RunTarget, Servers, client_of},
        embedded::Deployment,
    },
    command::agents,
    input::{parse, sources::Sources, task::Task, worker_config::WorkerConfig},
    terminal::{
        ending::{EXIT_CODES, Ending},
        live::{self, OnSignal, WatchEnd},
        outcome,
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
/// The run takes place in the cluster of TRELLIS_URL or NATS_URL, or in the `trellis dev` of this user, or else in this process. A run in
/// this process is stored in a directory (--data): `runs`, `history`, `outputs`, `receipt` and other commands show it later, without a
/// server. At a terminal, Ctrl-C asks whether to cancel a stored run or to leave it; a second Ctrl-C leaves it at once. Without a
/// terminal, and for a run that is not stored, Ctrl-C cancels the run, and a second one ends the command at once.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    task: Task,
    /// The answer to every question of the agents.
    #[arg(long, value_name = "TEXT", value_parser = parse::text)]
    answer: Option<Text>,
    /// Show the live output of the agents.
    #[arg(long)]
    words: bool,
    /// Do not store the run.
    ///
    /// Unless a server is named, the run takes place in this process and is lost at its end.
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
    let home = servers.home(!args.no_keep).await?;
    // The agents beside the file apply in this process and in a `trellis dev` alike, so that a run
    // has the same agents in both.
    let of_user = matches!(home, RunTarget::Here(_) | RunTarget::Dev(_));
    if matches!(home, RunTarget::Here(None)) && !args.no_keep {
        output::note("note: this run is not stored: HOME is not set; give --data a directory");
    }
    let (mut submission, sources) = match args.task.read(matches!(home, RunTarget::Here(None)), output)? {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let profiles = match args.task.profiles(of_user)? {
        Ok(profiles) => profiles,
        Err(ending) => return Ok(ending),
    };
    let from_stdin = args.task.file.as_deref().is_some_and(|file| file == "-");
    let there = |bus| (client_of(bus), None, Some(Detached::GoesOn));
    let mut in_dev = false;
    let (client, deployment, left) = match home {
        RunTarget::Cluster(bus) => there(bus),
        RunTarget::Dev(bus) => {
            in_dev = true;
            there(bus)
        }
        RunTarget::Here(directory) => {
            match servers.embedded(directory.as_deref(), settings, policy).await? {
                // A `trellis dev` opened the directory between the check and this start.
                EmbeddedCluster::Dev(bus) => {
                    in_dev = true;
                    there(bus)
                }
                EmbeddedCluster::Here(mut deployment, not_kept) => {
                    let is_kept = show(&mut deployment, directory.as_deref(), not_kept).await;
                    let left = directory.filter(|_| is_kept).map(Detached::StandsStill);
                    (deployment.client(), Some(deployment), left)
                }
            }
        }
    };
    if in_dev && args.config.names_policy() {
        anyhow::bail!(
            "--policy can't be used: the `trellis dev` that has the directory open runs it with its own policy\n\nhint: \
                give --policy to `trellis dev`, or run in this process with --no-keep or another --data"
        )
    }
    if in_dev {
        tell_unused(&args.config);
    }
    let begin = deployment.as_ref().map(Deployment::begin);
    let asked = Questions::new(Answerer::is(args.answer, begin.is_some(), from_stdin));
    let is_found = !args.task.names_agents();
    let work = async {
        let profiles = if in_dev && is_found { missing_in_dev(&client, profiles).await? } else { profiles };
        if let Some(ending) = agents::apply(&client, profiles, output).await? {
            return Ok(ending);
        }
        if let Some(begin) = begin {
            // Earlier runs are counted before the worker starts, because short ones would soon end.
            tell_earlier(&client).await?;
            begin.cancel();
        }
        args.task.settle(&mut submission, &client).await?;
        let asked = (asked, left.filter(|_| !from_stdin));
        perform(&client, servers, (&submission, &sources), asked, args.words, output).await
    };
    let Some(mut deployment) = deployment else { return work.await };
    let ended = deployment.while_up(work).await;
    output::tell_closed(deployment.close().await);
    ended
}

/// The profiles beside a file that a `trellis dev` does not have. A profile with the same name but
/// other content is an error, because other runs may use the existing one. So is a missing agent
/// that runs a program: `dev` would run it in its own folder, where its name may mean another one.
async fn missing_in_dev(client: &Client, profiles: Vec<AgentProfile>) -> anyhow::Result<Vec<AgentProfile>> {
    if profiles.is_empty() {
        return Ok(profiles);
    }
    let answer = client.query(&Query::Agents).await?.map_err(client::Error::refused)?;
    let QueryAnswer::Agents { agents, .. } = answer else {
        return Err(client::Error::other_answer(answer).into());
    };
    let mut missing = Vec::new();
    for profile in profiles {
        let there = agents.iter().find(|agent| agent.agent_id == profile.agent_id);
        let what = match there {
            Some(there) if *there == profile => continue,
            Some(_) => "has another agent of this name",
            None if profile.kind == AgentKind::Command => "would run this program in its own folder",
            None => {
                missing.push(profile);
                continue;
            }
        };
        anyhow::bail!(
            "the agent `{}` of the file beside the graph is not used: the `trellis dev` that has the directory open \
                {what}\n\nhint: apply the agents with --agents FILE, or run in this process with --no-keep or another --data",
            profile.agent_id
        )
    }
    Ok(missing)
}

/// Warns if earlier runs continue together with this one.
async fn tell_earlier(client: &Client) -> anyhow::Result<()> {
    let going = client.working_runs().await?.map_err(client::Error::refused)?.len();
    if going > 0 {
        let more = if going < PAGE as usize { "" } else { "at least " };
        let runs = format!("{more}{}", count(going as u64, "earlier run"));
        let (goes, them) = if going == 1 { ("goes", "it") } else { ("go", "them") };
        output::note(&format!(
            "warning: {runs} that had not ended {goes} on too, at further cost: `trellis runs list` shows {them}, `trellis \
                runs cancel` ends {them}"
        ));
    }
    Ok(())
}

/// The state of a run after the user detached from it.
enum Detached {
    /// Other processes continue the run.
    GoesOn,
    /// The run is stored in this directory, and no process continues it.
    StandsStill(PathBuf),
}

/// Warns about options that a running `trellis dev` ignores: its worker keeps the settings that it
/// started with.
fn tell_unused(config: &WorkerConfig) {
    let given = config.given();
    if !given.is_empty() {
        let given = given.join(", ");
        output::note(&format!(
            "warning: the `trellis dev` that has the directory open runs it, with the settings of its own worker, and {given} is not \
             used\n\nhint: give {given} to `trellis dev`; with --no-keep or another --data, the run is in this process"
        ));
    }
}

/// Makes a cluster in this process visible to other commands, or prints why it is not stored.
/// Returns true if the run is stored in the directory.
async fn show(deployment: &mut Deployment, directory: Option<&Path>, not_kept: Option<String>) -> bool {
    let is_kept = directory.is_some() && not_kept.is_none();
    match (directory, not_kept) {
        (_, Some(why)) => output::note(&format!("note: this run is not stored: {why}")),
        (Some(directory), None) => {
            if let Err(error) = let_look(deployment, directory).await {
                output::note(&format!("note: other commands can't read this run before its end: {error:#}"));
            }
        }
        (None, None) => {}
    }
    is_kept
}

/// Serves the runs of this process to other commands of this user.
async fn let_look(deployment: &mut Deployment, directory: &Path) -> anyhow::Result<()> {
    let token = Some(gateway::token::fresh());
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let (address, _) =
        deployment.serve(gateway::Config { token: token.clone(), ..gateway::Config::new(listen) }).await?;
    Ok(deployment.tell(directory, address, token, false)?)
}

async fn perform(
    client: &Client,
    servers: &Servers,
    (submission, sources): (&Submission, &Sources),
    (asked, left): (Questions, Option<Detached>),
    words: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    let accepted = match client.submit(submission).await? {
        SubmitAnswer::Accepted(accepted) => accepted,
        SubmitAnswer::Refused(refusal) => return output::refuse(&sources.locate(refusal), output),
    };
    output::note(&format!("run {}", servers.trace_link(accepted.trace_id, telemetry::is_on())));
    output::adjusted(&accepted);
    let on_signal = on_signal(left, accepted.trace_id);
    match live::follow(client, accepted.trace_id, asked, words, on_signal).await? {
        WatchEnd::Ended(watch) => outcome::print(client, servers, &watch, output).await,
        WatchEnd::Left => Ok(Ending::Left),
        WatchEnd::LeftCancelled => Ok(Ending::Cancelled),
    }
}

/// The reaction to Ctrl-C. The user may detach from a run that is stored outside this process.
/// Without a terminal, Ctrl-C cancels the run.
fn on_signal(left: Option<Detached>, trace_id: TraceId) -> OnSignal {
    let is_asked = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let left = match left.filter(|_| is_asked) {
        Some(Detached::GoesOn) => live::goes_on(trace_id),
        Some(Detached::StandsStill(directory)) => format!(
            "left, and the run is stopped: `trellis dev --data {}` continues it, `trellis runs cancel {trace_id}` ends it",
            directory.display()
        ),
        None => return OnSignal::Cancel,
    };
    OnSignal::Ask { left }
}
