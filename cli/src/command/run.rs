//! `trellis run`: submits a task, shows its progress and prints its outcome; in this process, or in the cluster that
//! `NATS_URL` names.

use shared::{
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
/// Without a NATS URL everything runs in this process; with one, in that cluster. In this process nothing is kept, unless
/// `--data` names a directory: then `runs`, `history`, `outputs`, `receipt` and others show the run afterwards.
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
