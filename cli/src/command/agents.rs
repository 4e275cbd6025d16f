//! `trellis agents`: lists and applies the agent profiles of a cluster.

use std::path::PathBuf;

use serde_json::json;
use shared::{
    AgentProfile,
    bus::Bus,
    wire::{Query, QueryAnswer},
};

use crate::{
    cluster::{client, connect::Servers},
    input::profiles,
    terminal::{
        ending::Ending,
        output::{self, Output},
        table, text,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the agents that a submission may name.
    List,
    /// Add profiles, or replace those of the same name. Running runs keep the profiles they began with.
    #[command(after_help = "Examples:\n  trellis agents apply examples/agents.yaml")]
    Apply {
        /// A list of profiles, or `agents:` with one (`[[agents]]` in TOML): YAML, JSON or TOML; `-` is stdin.
        file: PathBuf,
    },
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let query = match command {
        Command::List => Query::Agents,
        Command::Apply { file } => match profiles::read(&file) {
            Ok(agents) => Query::ApplyAgents { agents },
            Err(unusable) => return Ok(profiles::explain(&unusable, &file)),
        },
    };
    let bus = servers.cluster().await?;
    match client::query(&bus, &query).await? {
        QueryAnswer::Agents { agents } => list(&agents, output),
        QueryAnswer::Applied { agents } => {
            match output {
                Output::Json => output::print_json(&json!({"applied": agents}))?,
                Output::Text => {
                    let names: Vec<&str> = agents.iter().map(|agent| agent.as_str()).collect();
                    output::print(&format!("applied {}\n", names.join(", ")))?;
                }
            }
            Ok(Ending::Completed)
        }
        QueryAnswer::Refused(refusal) => output::refuse(&refusal, output),
        other @ (QueryAnswer::Runs { .. }
        | QueryAnswer::Coordinators { .. }
        | QueryAnswer::Branches { .. }
        | QueryAnswer::Told { .. }) => Err(client::unexpected(&other)),
    }
}

/// Applies profiles, if there are any. Returns an ending only if they are refused.
pub(crate) async fn apply(
    bus: &Bus,
    agents: Vec<AgentProfile>,
    output: Output,
) -> anyhow::Result<Option<Ending>> {
    if agents.is_empty() {
        return Ok(None);
    }
    match client::query(bus, &Query::ApplyAgents { agents }).await? {
        QueryAnswer::Applied { .. } => Ok(None),
        QueryAnswer::Refused(refusal) => output::refuse(&refusal, output).map(Some),
        other @ (QueryAnswer::Runs { .. }
        | QueryAnswer::Agents { .. }
        | QueryAnswer::Coordinators { .. }
        | QueryAnswer::Branches { .. }
        | QueryAnswer::Told { .. }) => Err(client::unexpected(&other)),
    }
}

fn list(agents: &[AgentProfile], output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        output::print_json(&json!(agents))?;
        return Ok(Ending::Completed);
    }
    if agents.is_empty() {
        output::note(
            "there are no agents yet\n\nhint: add some, as with `trellis agents apply examples/agents.yaml`",
        );
        return Ok(Ending::Completed);
    }
    let row = |agent: &AgentProfile| {
        let model = agent.model.as_ref().map(ToString::to_string);
        let what = agent.builtin.clone().or(model).or_else(|| agent.command.first().cloned());
        [
            agent.agent_id.to_string(),
            text::plain(serde_json::to_value(agent.kind)),
            what.unwrap_or_default(),
            agent.pool.as_ref().map_or_else(|| "default".into(), ToString::to_string),
            text::cut(&text::flat(agent.description.as_deref().unwrap_or_default()), 60),
        ]
    };
    let rows: Vec<_> = agents.iter().map(row).collect();
    output::print(&table::show(["AGENT", "KIND", "RUNS", "POOL", "DESCRIPTION"], &rows))?;
    Ok(Ending::Completed)
}
