//! `trellis submit`: submits a task to a cluster and prints its ids once it is committed.

use client::{Client, Submission};
use domain::wire::SubmitAnswer;
use serde_json::json;

use crate::{
    cluster::connect::Servers,
    command::agents,
    input::{sources::Sources, task::Task},
    terminal::{
        ending::{EXIT_CODES, Ending},
        outcome,
        output::{self, Output},
        questions::{Answerer, Questions},
    },
};

/// Submit a graph or a goal, without waiting for its outcome.
///
/// When the command ends, the submission is stored.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    task: Task,
    /// Wait for the outcome and print it; the exit code is that of the outcome.
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let (mut submission, sources) = match args.task.read(false, output)? {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let profiles = match args.task.profiles(false)? {
        Ok(profiles) => profiles,
        Err(ending) => return Ok(ending),
    };
    let client = servers.cluster().await?;
    args.task.settle(&mut submission, &client).await?;
    if let Some(ending) = agents::apply(&client, profiles, output).await? {
        return Ok(ending);
    }
    send(&client, servers, (&submission, &sources), args.wait, output).await
}

/// Submits, and prints the ids of the run. With `wait`, waits for its outcome and prints that
/// instead.
pub(super) async fn send(
    client: &Client,
    servers: &Servers,
    (submission, sources): (&Submission, &Sources),
    wait: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    // Without a process that continues the run, waiting would never end. This is checked before the
    // submission: a user who tries again would submit twice.
    if let Some(nobody) = servers.nobody_serves(client).filter(|_| wait) {
        return Err(nobody.into());
    }
    let accepted = match client.submit(submission).await? {
        SubmitAnswer::Accepted(accepted) => accepted,
        SubmitAnswer::Refused(refusal) => return output::refuse(&sources.locate(refusal), output),
    };
    output::adjusted(&accepted);
    if let Some(nobody) = servers.nobody_serves(client) {
        output::note(&format!("note: {nobody}"));
    }
    if wait {
        output::note(&format!("run {}; waiting for its outcome", accepted.trace_id));
        let mut watch = client.watch(accepted.trace_id).await?;
        // An answer comes from another command; this one prints how to give it.
        let mut asked = Questions::new(Answerer::Elsewhere);
        while watch.outcome().is_none() {
            watch.next().await?;
            asked.ask(client, watch.questions()).await?;
        }
        return outcome::print(client, servers, &watch, output).await;
    }
    match output {
        Output::Json => output::print_json(&json!(accepted))?,
        Output::Text if output::is_quiet() => output::print_ids([accepted.trace_id].iter())?,
        Output::Text => {
            output::print(&format!("trace_id {}\nchild_id {}\n", accepted.trace_id, accepted.child_id))?;
        }
    }
    Ok(Ending::Completed)
}
