//! `trellis run`: submits a task, shows its progress and prints its outcome; in this process, or in the cluster that
//! `NATS_URL` names.

use std::io::IsTerminal;

use shared::{
    TraceId,
    bus::Bus,
    telemetry,
    wire::{SubmitAnswer, Text},
};

use crate::{
    cluster::{
        client::{self, Submission},
        connect::Servers,
    },
    command::{agents, runtime},
    input::{parse, sources::Sources, task::Task, worker_config::WorkerConfig},
    terminal::{
        ending::{EXIT_CODES, Ending},
        live::{self, Followed, OnSignal},
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
/// Without a NATS URL everything runs in this process; with one, in that cluster. In this process nothing is kept, unless
/// `--data` names a directory: then `runs`, `history`, `outputs`, `receipt` and others show the run afterwards.
/// At a terminal Ctrl-C asks whether to cancel a run in a cluster or a directory, or to leave it; a second Ctrl-C leaves it at once.
/// Elsewhere, and for a run that is kept nowhere, Ctrl-C cancels it, and a second one ends the command at once.
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
    #[command(flatten)]
    config: WorkerConfig,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let (settings, policy) = match args.config.read() {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let embedded = servers.nats_url().is_none();
    let (mut submission, sources) = match args.task.read(embedded, output)? {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let profiles = match args.task.profiles(embedded)? {
        Ok(profiles) => profiles,
        Err(ending) => return Ok(ending),
    };
    let from_stdin = args.task.file.as_deref().is_some_and(|file| file == "-");
    let asked = Questions::new(Answerer::is(args.answer, embedded, from_stdin));
    let mut deployment = servers.deployment(settings, policy).await?;
    let bus = deployment.bus().clone();
    let work = async {
        if let Some(ending) = agents::apply(&bus, profiles, output).await? {
            return Ok(ending);
        }
        args.task.settle(&mut submission, &bus).await?;
        let asked = (asked, from_stdin);
        perform(&bus, servers, (&submission, &sources), asked, args.words, output).await
    };
    let ended = deployment.while_up(work).await;
    runtime::tell_closed(deployment.close().await);
    ended
}

async fn perform(
    bus: &Bus,
    servers: &Servers,
    (submission, sources): (&Submission, &Sources),
    (asked, from_stdin): (Questions, bool),
    words: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    let accepted = match client::submit(bus, submission).await? {
        SubmitAnswer::Accepted(accepted) => accepted,
        SubmitAnswer::Refused(refusal) => return output::refuse(&sources.locate(refusal), output),
    };
    output::note(&format!("trace {}", servers.trace_link(accepted.trace_id, telemetry::is_on())));
    output::adjusted(&accepted);
    let on_signal = on_signal(servers, accepted.trace_id, from_stdin);
    match live::follow(bus, accepted.trace_id, asked, words, on_signal).await? {
        Followed::Ended(watch) => outcome::print(bus, &watch, output).await,
        Followed::Left => Ok(Ending::Left),
        Followed::LeftCancelled => Ok(Ending::Cancelled),
    }
}

/// A run that is kept elsewhere than in this process can be left; the user is asked, if there is one.
fn on_signal(servers: &Servers, trace_id: TraceId, from_stdin: bool) -> OnSignal {
    let is_asked = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !from_stdin;
    let left = match (servers.nats_url(), servers.directory()) {
        (Some(_), _) => live::goes_on(trace_id),
        (None, Some(directory)) => format!(
            "left, and the run stands still: `trellis dev --data {}` goes on with it, `trellis runs cancel {trace_id}` ends it",
            directory.display()
        ),
        (None, None) => return OnSignal::Cancel,
    };
    if is_asked { OnSignal::Ask { left } } else { OnSignal::Cancel }
}
