//! `trellis agents diff`: the changes that a file would make, or the changes between two versions.
//! Read-only.

use std::path::{Path, PathBuf};

use anyhow::Context;
use client::Client;
use domain::{
    AgentId, AgentProfile,
    wire::{AgentVersion, Query, QueryAnswer, Refusal},
};
use serde_json::{Map, Value, json};

use crate::{
    cluster::connect::Servers,
    input::profiles,
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

/// A profile before and after a change.
struct Change {
    agent: AgentId,
    /// The origin of the two profiles, for people.
    between: String,
    from: Option<AgentProfile>,
    to: Option<AgentProfile>,
}

pub(crate) async fn run(
    what: PathBuf,
    versions: Option<(u64, u64)>,
    servers: &Servers,
    output: Output,
) -> anyhow::Result<Ending> {
    // A name of an agent has no dot and no slash, so most paths are not names. An existing file is
    // preferred.
    let name = what.to_str().and_then(|text| AgentId::new(text).ok()).filter(|_| !what.is_file());
    let Some(name) = name else {
        return match profiles::read(&what) {
            Ok(_) if versions.is_some() => {
                output::error(
                    "versions belong to an agent, not to a file\n\nhint: `trellis agents diff NAME A B`",
                );
                Ok(Ending::Unreadable)
            }
            Ok(agents) => show(&with_file(&servers.cluster().await?, agents, &what).await?, output),
            Err(unusable) => Ok(profiles::explain(&unusable, &what)),
        };
    };
    let client = servers.cluster().await?;
    match of_agent(&client, &name, versions).await? {
        Ok(change) => show(&[change], output),
        Err(refusal) => output::refuse(&refusal, output),
    }
}

/// The changes that applying a file would make.
async fn with_file(client: &Client, agents: Vec<AgentProfile>, file: &Path) -> anyhow::Result<Vec<Change>> {
    let answer = client.query(&Query::Agents).await?.map_err(client::Error::refused)?;
    let QueryAnswer::Agents { agents: known, .. } = &answer else {
        return Err(client::Error::other_answer(answer).into());
    };
    let change = |agent: AgentProfile| {
        let from = known.iter().find(|known| known.agent_id == agent.agent_id).cloned();
        let between = match from {
            Some(_) => format!("now, and in {}", file.display()),
            None => format!("new in {}", file.display()),
        };
        Change { agent: agent.agent_id.clone(), between, from, to: Some(agent) }
    };
    Ok(agents.into_iter().map(change).collect())
}

/// The change between two versions of an agent, by default the last two.
async fn of_agent(
    client: &Client,
    agent: &AgentId,
    versions: Option<(u64, u64)>,
) -> anyhow::Result<Result<Change, Refusal>> {
    let (from, to) = match versions {
        Some((from, to)) => (Some(from), to),
        None => {
            let latest = match version(client, agent, None).await? {
                Ok(latest) => latest,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let to = latest.version.with_context(|| format!("`{agent}` is built in and has no versions"))?;
            (latest.versions.iter().copied().filter(|version| *version < to).max(), to)
        }
    };
    let later = match version(client, agent, Some(to)).await? {
        Ok(later) => later,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let earlier = match from {
        Some(from) => match version(client, agent, Some(from)).await? {
            Ok(earlier) => Some(earlier),
            Err(refusal) => return Ok(Err(refusal)),
        },
        None => None,
    };
    let between = match from {
        Some(from) => format!("version {from} and version {to}"),
        None => format!("version {to} is the first"),
    };
    Ok(Ok(Change {
        agent: agent.clone(),
        between,
        from: earlier.map(|version| version.agent),
        to: Some(later.agent),
    }))
}

async fn version(
    client: &Client,
    agent: &AgentId,
    version: Option<u64>,
) -> anyhow::Result<Result<AgentVersion, Refusal>> {
    match client.query(&Query::Agent { agent_id: agent.clone(), version }).await? {
        Ok(QueryAnswer::Agent(found)) => Ok(Ok(*found)),
        Err(refusal) => Ok(Err(refusal)),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

/// Prints the differing fields. The exit code is 1 if anything differs, as with `diff`.
fn show(changes: &[Change], output: Output) -> anyhow::Result<Ending> {
    let differing: Vec<&Change> = changes.iter().filter(|change| change.from != change.to).collect();
    match output {
        Output::Json => {
            let told = differing.iter().map(|change| {
                json!({"agent_id": change.agent, "changed": fields(change).into_iter().map(|(name, from, to)| {
                    json!({"field": name, "from": from, "to": to})
                }).collect::<Vec<_>>()})
            });
            output::print_json(&told.collect())?;
        }
        Output::Text => {
            let mut text = String::new();
            for change in &differing {
                text.push_str(&format!("{} ({})\n", change.agent, change.between));
                for (name, from, to) in fields(change) {
                    text.extend(from.map(|from| format!("  - {name}: {from}\n")));
                    text.extend(to.map(|to| format!("  + {name}: {to}\n")));
                }
            }
            output::print(&text)?;
        }
    }
    Ok(if differing.is_empty() { Ending::Completed } else { Ending::Failed })
}

/// The fields that differ, with both values. An absent field has no value.
fn fields(change: &Change) -> Vec<(String, Option<Value>, Option<Value>)> {
    let of = |profile: &Option<AgentProfile>| match profile.as_ref().map(|profile| json!(profile)) {
        Some(Value::Object(fields)) => fields,
        Some(_) | None => Map::new(),
    };
    let (from, to) = (of(&change.from), of(&change.to));
    let names: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let differing = names.into_iter().filter(|name| from.get(*name) != to.get(*name));
    differing.map(|name| (name.clone(), from.get(name).cloned(), to.get(name).cloned())).collect()
}
