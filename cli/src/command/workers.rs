//! `trellis workers`: lists the workers of a cluster, and drains them.

use anyhow::Context;
use bus::{Bus, ClientBus};
use client::{Client, TAKES_EFFECT, WORKERS_ANSWER};
use domain::{
    WorkerId,
    wire::{Drain, Query, Refusal, WorkerState},
    wording::count,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    cluster::connect::Servers,
    terminal::{
        confirm, display,
        ending::Ending,
        output::{self, Output},
        table,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the workers that answer.
    List,
    /// Show one worker: its slots, agents and policy.
    Show {
        /// Its name, as `workers list` shows it.
        id: WorkerId,
    },
    /// Drain a worker, or all of them.
    ///
    /// It finishes or hands back its contexts, takes no more work, and ends.
    Drain {
        /// Its name, as `workers list` shows it.
        #[arg(required_unless_present = "all")]
        id: Option<WorkerId>,
        /// Drain all workers that answer, after a question.
        #[arg(long, conflicts_with = "id")]
        all: bool,
        /// Do not ask first; required with --all without a terminal.
        #[arg(long, short, requires = "all")]
        yes: bool,
    },
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    match command {
        Command::List => list(&client, servers, &client.workers().await?, output),
        Command::Show { id } => show(&client, &id, output).await,
        Command::Drain { id: Some(id), .. } => drain(&client, id, output).await,
        Command::Drain { id: None, yes, .. } => drain_all(&client, yes, output).await,
    }
}

/// How to start a worker.
pub(crate) fn start(client: &Client) -> &'static str {
    match client.bus() {
        ClientBus::Direct(Bus::Disk(_)) => "`trellis dev` runs the work of a directory",
        ClientBus::Http(_) => {
            "restart the `trellis dev` that serves it, or start a `trellis worker` of its cluster"
        }
        ClientBus::Direct(Bus::Nats(_) | Bus::Memory(_)) => "start one with `trellis worker`",
    }
}

fn list(
    client: &Client,
    servers: &Servers,
    workers: &[WorkerState],
    output: Output,
) -> anyhow::Result<Ending> {
    if output == Output::Json {
        output::print_json(&json!(workers))?;
    }
    if workers.is_empty() {
        if let Some(nobody) = servers.nobody_serves(client) {
            return Err(nobody.into());
        }
        output::error(&format!("no worker answers\n\nhint: {}", start(client)));
        return Ok(Ending::Failed);
    }
    if output == Output::Json {
        return Ok(Ending::Completed);
    }
    if output::is_quiet() {
        output::print_ids(workers.iter().map(|worker| &worker.worker_id))?;
        return Ok(Ending::Completed);
    }
    let row = |worker: &WorkerState| {
        [
            worker.worker_id.to_string(),
            worker.pool.to_string(),
            format!("{} of {}", worker.running, worker.slots),
            if worker.draining { "draining" } else { "taking work" }.to_owned(),
            worker.version.clone(),
            policy(worker),
        ]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    output::print(&table::show(["WORKER", "POOL", "RUNNING", "STATE", "VERSION", "POLICY"], &rows))?;
    for apart in gateway::doctor::policies_apart(workers) {
        output::note(&format!("warning: {apart}"));
    }
    Ok(Ending::Completed)
}

/// A worker's policy, with the digest that distinguishes it from other policies.
fn policy(worker: &WorkerState) -> String {
    match worker.policy_digest.get(..8) {
        Some(digest) => format!("{} [{digest}]", worker.policy),
        None => worker.policy.clone(),
    }
}

/// The worker of this name among the workers that answer.
fn find<'w>(known: &'w [WorkerState], id: &WorkerId) -> anyhow::Result<&'w WorkerState> {
    known.iter().find(|worker| worker.worker_id == *id).with_context(|| {
        let known = known.iter().map(|worker| worker.worker_id.as_str());
        let hint =
            display::did_you_mean(id.as_str(), known, "`trellis workers list` shows the workers that answer");
        format!("no worker `{id}` answers\n\nhint: {hint}")
    })
}

/// Prints each field of a worker's answer on a line.
async fn show(client: &Client, id: &WorkerId, output: Output) -> anyhow::Result<Ending> {
    let known = client.workers().await?;
    let shown = json!(find(&known, id)?);
    match (output, shown.as_object()) {
        (Output::Json, _) | (Output::Text, None) => output::print_json(&shown)?,
        (Output::Text, Some(fields)) => {
            let width = fields.keys().map(String::len).max().unwrap_or_default();
            let line = |(name, value): (&String, &Value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{name:<width$}  {value}\n")
            };
            output::print(&fields.iter().map(line).collect::<String>())?;
        }
    }
    Ok(Ending::Completed)
}

async fn drain(client: &Client, id: WorkerId, output: Output) -> anyhow::Result<Ending> {
    let known = client.workers().await?;
    find(&known, &id)?;
    let seen = match told(client, std::slice::from_ref(&id)).await? {
        Ok(still) => still.is_empty(),
        Err(refusal) => return output::refuse(&refusal, output),
    };
    match output {
        Output::Json => output::print_json(&json!({"worker_id": id, "draining": seen}))?,
        Output::Text if seen => output::print(&format!("`{id}` is draining, or has ended\n"))?,
        Output::Text => output::error(&format!("`{id}` was asked to drain, but still takes work")),
    }
    Ok(if seen { Ending::Completed } else { Ending::Failed })
}

async fn drain_all(client: &Client, yes: bool, output: Output) -> anyhow::Result<Ending> {
    let known = client.workers().await?;
    let ids: Vec<WorkerId> = known.into_iter().map(|worker| worker.worker_id).collect();
    if ids.is_empty() {
        if output == Output::Json {
            output::print_json(&json!([]))?;
        }
        output::note("no worker answers");
        return Ok(Ending::Completed);
    }
    if let Some(ending) = confirm::asked(&format!("drains {}", count(ids.len(), "worker")), yes).await? {
        return Ok(ending);
    }
    let still = match told(client, &ids).await? {
        Ok(still) => still,
        Err(refusal) => return output::refuse(&refusal, output),
    };
    let drains = |id: &&WorkerId| !still.contains(id);
    match output {
        Output::Json => {
            let each = ids.iter().map(|id| json!({"worker_id": id, "draining": drains(&id)}));
            output::print_json(&each.collect())?;
        }
        Output::Text => {
            let drained = ids.iter().filter(drains).map(|id| format!("`{id}` is draining, or has ended\n"));
            output::print(&drained.collect::<String>())?;
        }
    }
    for id in &still {
        output::error(&format!("`{id}` was asked to drain, but still takes work"));
    }
    Ok(if still.is_empty() { Ending::Completed } else { Ending::Failed })
}

/// Asks workers to drain. Returns those that still take work after `TAKES_EFFECT`.
async fn told(client: &Client, ids: &[WorkerId]) -> anyhow::Result<Result<Vec<WorkerId>, Refusal>> {
    let started = Instant::now();
    let mut still = ids.to_vec();
    // A broadcast may be lost, so it is repeated until the workers drain.
    loop {
        for id in &still {
            let query = Query::Drain(Drain { worker_id: id.clone() });
            if let Err(refusal) = client.query(&query).await? {
                return Ok(Err(refusal));
            }
        }
        sleep(WORKERS_ANSWER / 5).await;
        let now = client.workers().await?;
        let takes_work = |id: &WorkerId| now.iter().any(|worker| worker.worker_id == *id && !worker.draining);
        still.retain(takes_work);
        if still.is_empty() || started.elapsed() >= TAKES_EFFECT {
            return Ok(Ok(still));
        }
    }
}
