//! `trellis agents`: lists, shows, applies and deletes the agent profiles of a cluster.

use std::{collections::BTreeMap, path::PathBuf};

use client::Client;
use domain::{
    AgentId, AgentProfile,
    wire::{AgentVersion, Query, QueryAnswer},
};
use serde_json::json;

use crate::{
    cluster::connect::Servers,
    command::agents_diff,
    input::profiles,
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        table,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the agents, with the versions of their profiles.
    List,
    /// Add agent profiles, or replace those of the same name.
    ///
    /// Every later submission uses these profiles; existing runs keep theirs. A changed profile gets the next version; an unchanged
    /// one keeps its version.
    #[command(after_help = "Examples:\n  trellis agents apply examples/agents.yaml")]
    Apply {
        /// A list of profiles, or `agents:` with one (`[[agents]]` in TOML): YAML, JSON or TOML; `-` is stdin.
        file: PathBuf,
    },
    /// Show a profile, in a form that can be applied again.
    #[command(after_help = "Examples:
  trellis agents show writer
  trellis agents show writer --version 2 > writer.json
  trellis agents show writer --version 2 | trellis agents apply -      (back to version 2, as a new version)")]
    #[command(alias = "describe", disable_version_flag = true)]
    Show {
        /// Its name, as `agents list` shows it.
        name: AgentId,
        /// An earlier version; the last 64 are stored.
        #[arg(long, value_name = "N")]
        version: Option<u64>,
    },
    /// Compare a file with the applied profiles, or two versions of a profile.
    #[command(after_help = "Examples:
  trellis agents diff agents.yaml      what applying the file would change
  trellis agents diff writer           the latest version against the one before
  trellis agents diff writer 2 5       version 2 against version 5

Exit codes: 0 no difference, 1 some difference, 2 wrong usage or a file that can't be read, 3 refused, 5 cannot connect.")]
    Diff {
        /// A file of profiles (`-` is stdin), or the name of an agent.
        #[arg(value_name = "FILE|NAME")]
        what: PathBuf,
        /// The version to compare.
        #[arg(value_name = "A", requires = "to")]
        from: Option<u64>,
        /// The version to compare it with.
        #[arg(value_name = "B")]
        to: Option<u64>,
    },
    /// Delete an agent: new submissions can't name it, and existing runs keep its profile.
    ///
    /// Its versions are stored until the log of profiles needs their room, and can be shown and applied again. An agent of every
    /// deployment, such as `default`, can't be deleted.
    #[command(after_help = "Examples:\n  trellis agents delete writer")]
    Delete {
        /// Its name, as `agents list` shows it.
        name: AgentId,
    },
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let query = match command {
        Command::List => Query::Agents,
        Command::Apply { file } => match profiles::read(&file) {
            Ok(agents) => Query::ApplyAgents { agents },
            Err(unusable) => return Ok(profiles::explain(&unusable, &file)),
        },
        Command::Show { name, version } => Query::Agent { agent_id: name, version },
        Command::Diff { what, from, to } => {
            return agents_diff::run(what, from.zip(to), servers, output).await;
        }
        Command::Delete { name } => Query::DeleteAgent { agent_id: name },
    };
    let client = servers.cluster().await?;
    match client.query(&query).await? {
        Ok(QueryAnswer::Agents { agents, versions }) => list(&agents, &versions, output),
        Ok(QueryAnswer::Agent(found)) => show(&found, output),
        Ok(QueryAnswer::Applied { agents, versions, unchanged }) => {
            match output {
                Output::Json => output::print_json(
                    &json!({"applied": agents, "versions": versions, "unchanged": unchanged}),
                )?,
                Output::Text => {
                    let said = |agent: &AgentId| match (versions.get(agent), unchanged.contains(agent)) {
                        (Some(version), false) => format!("{agent}: version {version}\n"),
                        (Some(version), true) => format!("{agent}: unchanged, version {version}\n"),
                        (None, _) => format!("{agent}: applied\n"),
                    };
                    output::print(&agents.iter().map(said).collect::<String>())?;
                }
            }
            Ok(Ending::Completed)
        }
        Ok(QueryAnswer::Deleted { agent_id, at }) => {
            match output {
                Output::Json => output::print_json(&json!({"deleted": agent_id, "at": at}))?,
                Output::Text => output::print(&format!("{agent_id}: deleted at {at}\n"))?,
            }
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse(&refusal, output),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

/// Prints a profile as a file of agents to stdout, and its version to stderr.
fn show(found: &AgentVersion, output: Output) -> anyhow::Result<Ending> {
    match output {
        Output::Json => output::print_json(&json!(found))?,
        Output::Text => {
            output::note(&about(found));
            output::print_json(&json!({"agents": [found.agent]}))?;
        }
    }
    Ok(Ending::Completed)
}

fn about(found: &AgentVersion) -> String {
    let AgentVersion { agent, version, applied_at, versions } = found;
    match (version, applied_at) {
        (Some(version), Some(at)) => {
            let kept: Vec<String> = versions.iter().map(ToString::to_string).collect();
            format!(
                "{}: version {version}, applied at {at}; stored versions: {}",
                agent.agent_id,
                kept.join(" ")
            )
        }
        (_, _) => format!("{}: built in", agent.agent_id),
    }
}

/// Applies the profiles. Returns an ending only if the cluster refuses them.
pub(crate) async fn apply(
    client: &Client,
    agents: Vec<AgentProfile>,
    output: Output,
) -> anyhow::Result<Option<Ending>> {
    if agents.is_empty() {
        return Ok(None);
    }
    match client.query(&Query::ApplyAgents { agents }).await? {
        Ok(QueryAnswer::Applied { .. }) => Ok(None),
        Err(refusal) => output::refuse(&refusal, output).map(Some),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

fn list(
    agents: &[AgentProfile],
    versions: &BTreeMap<AgentId, u64>,
    output: Output,
) -> anyhow::Result<Ending> {
    if output == Output::Json {
        let listed = agents.iter().map(|agent| {
            let mut listed = json!(agent);
            if let (Some(version), Some(fields)) = (versions.get(&agent.agent_id), listed.as_object_mut()) {
                fields.insert("version".into(), json!(version));
            }
            listed
        });
        output::print_json(&listed.collect())?;
        return Ok(Ending::Completed);
    }
    if agents.is_empty() {
        output::note(
            "there are no agents yet\n\nhint: `trellis agents apply examples/agents.yaml` adds some",
        );
        return Ok(Ending::Completed);
    }
    let row = |agent: &AgentProfile| {
        let model = agent.model.as_ref().map(ToString::to_string);
        let what = agent.builtin.clone().or(model).or_else(|| agent.command.first().cloned());
        [
            agent.agent_id.to_string(),
            versions.get(&agent.agent_id).map_or_else(String::new, ToString::to_string),
            display::plain(serde_json::to_value(agent.kind)),
            what.unwrap_or_default(),
            agent.pool.as_ref().map_or_else(|| "default".into(), ToString::to_string),
            display::flat(agent.description.as_deref().unwrap_or_default()),
        ]
    };
    if output::is_quiet() {
        output::print_ids(agents.iter().map(|agent| &agent.agent_id))?;
        return Ok(Ending::Completed);
    }
    let rows: Vec<_> = agents.iter().map(row).collect();
    output::print(&table::show(["AGENT", "VERSION", "KIND", "RUNS", "POOL", "DESCRIPTION"], &rows))?;
    Ok(Ending::Completed)
}
