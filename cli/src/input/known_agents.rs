//! The agents that a graph may name: those of a file of profiles and of the connected cluster.
//! Without either, the names are not checked.

use std::path::Path;

use domain::{
    AgentId,
    graph::KnownAgents,
    wire::{Query, QueryAnswer},
};

use crate::{
    cluster::{connect::Servers, failure},
    input::{document::Document, profiles},
    terminal::{ending::Ending, output},
};

/// As [`ask`]. Without a file and a server, the agents file in the graph's folder is used, as in
/// `run`.
pub(crate) async fn of_graph(
    graph: &Path,
    file: Option<&Path>,
    servers: &Servers,
) -> Result<Option<KnownAgents>, Ending> {
    let is_served = servers.url().is_some() || servers.nats_url().is_some();
    let beside = profiles::beside(graph).filter(|_| file.is_none() && !is_served);
    let known = ask(file.or(beside.as_deref()), servers).await?;
    // The default directory may contain more agents, so only a name close to a known one is
    // reported.
    let may_be_more = beside.is_some() && !servers.has_cluster();
    Ok(if may_be_more { known.map(KnownAgents::or_more) } else { known })
}

/// The agents of a file and of the named cluster; `None` without either. A cluster that does not
/// answer only causes a warning, because most of a graph can be checked without it. An unusable
/// file ends the command.
async fn ask(file: Option<&Path>, servers: &Servers) -> Result<Option<KnownAgents>, Ending> {
    let mut known = Vec::new();
    if let Some(file) = file {
        let read = profiles::read(file).map_err(|unusable| profiles::explain(&unusable, file))?;
        known.extend(read.into_iter().map(|profile| profile.agent_id));
    }
    if servers.has_cluster() {
        match listed(servers).await {
            Ok(agents) => known.extend(agents),
            Err(error) => {
                let error = failure::explained(error);
                output::note(&format!("agent names are not checked against the server: {error:#}"));
                return Ok(None);
            }
        }
    } else if file.is_none() {
        return Ok(None);
    }
    Ok(Some(KnownAgents::new(known)))
}

/// Reports agents that the graph names and that do not exist. Does nothing if the agents are
/// unknown.
pub(crate) fn check(known: Option<&KnownAgents>, document: &mut Document) {
    if let Some(known) = known {
        known.check(&document.value, &mut document.unread.problems);
    }
}

async fn listed(servers: &Servers) -> anyhow::Result<Vec<AgentId>> {
    let client = servers.cluster().await?;
    let answer = client.query(&Query::Agents).await?.map_err(client::Error::refused)?;
    let QueryAnswer::Agents { agents, .. } = answer else {
        return Err(client::Error::other_answer(answer).into());
    };
    Ok(agents.into_iter().map(|agent| agent.agent_id).collect())
}
