//! `trellis run`: submits, shows it going on, and prints how it ended.

use serde_json::json;
use shared::{
    Json,
    bus::Bus,
    wire::{Outcome, Query, QueryAnswer, SubmitAnswer, Text},
};

use crate::{
    EXIT_CODES, Ending, Output,
    cluster::{
        client::{self, Submission},
        connect::Servers,
        embedded::Deployment,
        watch::Watch,
    },
    input::{parse, task::Task, worker_config::WorkerConfig},
    terminal::{
        live, output,
        questions::{People, Who},
        tree,
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis run examples/research.yaml
  trellis run --goal 'Say hello' --max-cost-usd 0.05 --timeout 30s
  trellis run graph.yaml --input topic='\"ants\"' -o json | jq .status
";

/// Run a graph or one agent, and see it through to its outcome.
///
/// Without a NATS URL everything runs in this process, with no servers; with one, in that cluster.
/// Ctrl-C cancels the run; a second one leaves at once.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    task: Task,
    /// Answer every question of the agents with this.
    #[arg(long, value_name = "TEXT", value_parser = parse::text)]
    answer: Option<Text>,
    /// Show what the agents say as they say it.
    #[arg(long)]
    words: bool,
    #[command(flatten)]
    config: WorkerConfig,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let submission = match args.task.read(output)? {
        Ok(submission) => submission,
        Err(ending) => return Ok(ending),
    };
    let embedded = servers.nats_url().is_none();
    let profiles = match args.task.profiles(embedded)? {
        Ok(profiles) => profiles,
        Err(ending) => return Ok(ending),
    };
    let from_stdin = args.task.file.as_deref().is_some_and(|file| file == "-");
    let people = People::new(Who::is(args.answer, embedded, from_stdin));
    let settings = match args.config.read() {
        Ok(settings) => settings,
        Err(ending) => return Ok(ending),
    };
    let mut deployment = Deployment::open(servers, settings).await?;
    let bus = deployment.bus().clone();
    let work = async {
        if let Some(ending) = apply(&bus, profiles, output).await? {
            return Ok(ending);
        }
        perform(&bus, &submission, people, args.words, output).await
    };
    let ended = deployment.while_up(work).await;
    deployment.close().await;
    ended
}

/// Applies profiles, if there are any; how the command ends if they are refused.
pub(crate) async fn apply(
    bus: &Bus,
    agents: Vec<shared::AgentProfile>,
    output: Output,
) -> anyhow::Result<Option<Ending>> {
    if agents.is_empty() {
        return Ok(None);
    }
    match client::query(bus, &Query::ApplyAgents { agents }).await? {
        QueryAnswer::Applied { .. } => Ok(None),
        QueryAnswer::Refused(refusal) => output::refuse(&refusal, output).map(Some),
        other
        @ (QueryAnswer::Runs { .. } | QueryAnswer::Agents { .. } | QueryAnswer::Coordinators { .. }) => {
            anyhow::bail!("the coordinator answered something else: {other:?}")
        }
    }
}

async fn perform(
    bus: &Bus,
    submission: &Submission,
    people: People,
    words: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    let accepted = match client::submit(bus, submission).await? {
        SubmitAnswer::Accepted(accepted) => accepted,
        SubmitAnswer::Refused(refusal) => return output::refuse(&refusal, output),
    };
    output::note(&format!("trace {}", accepted.trace_id));
    match live::follow(bus, accepted.trace_id, people, words).await? {
        Some(watch) => tell(&watch, output),
        None => Ok(Ending::Cancelled),
    }
}

/// Prints the outcome of a run that has ended.
pub(crate) fn tell(watch: &Watch, output: Output) -> anyhow::Result<Ending> {
    let Some(outcome) = watch.outcome() else { return Ok(Ending::Failed) };
    match output {
        Output::Json => output::print_json(&json!(outcome))?,
        // The log may be gone where the outcome is not.
        Output::Text if watch.trace.root().is_none() => output::print(&in_short(outcome))?,
        Output::Text => output::print(&tree::show(&watch.trace))?,
    }
    Ok(outcome.context.status.into())
}

/// An outcome on one line.
pub(crate) fn in_short(outcome: &Outcome) -> String {
    let context = &outcome.context;
    let status = tree::plain(serde_json::to_value(context.status));
    let said = context.result.as_ref().map(Json::to_text);
    let said = said.or_else(|| context.result_object.as_ref().map(|at| format!("→ {}", at.object)));
    let said = said.or_else(|| context.error.as_ref().map(|error| error.message.clone()));
    let said = said.or_else(|| context.reason.clone()).unwrap_or_default();
    let money = context.budget.spent.cost_usd;
    format!("{} {status} {money} {}\n", outcome.trace_id, tree::cut(&tree::flat(&said), 200))
}
