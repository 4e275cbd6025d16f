//! The agents that a graph may name, as far as somebody says which there are: a file of profiles, or a cluster. Without either
//! nobody knows, and names are not checked.

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

/// As `ask`; without a file, the one in the folder of the graph counts, as it does for `run`, unless a server is named.
pub(crate) async fn of_graph(
    graph: &Path,
    file: Option<&Path>,
    servers: &Servers,
) -> Result<Option<KnownAgents>, Ending> {
    let is_served = servers.url().is_some() || servers.nats_url().is_some();
    let beside = profiles::beside(graph).filter(|_| file.is_none() && !is_served);
    let known = ask(file.or(beside.as_deref()), servers).await?;
    // A directory may keep others.
    let may_be_more = beside.is_some() && !servers.has_cluster();
    Ok(if may_be_more { known.map(KnownAgents::or_more) } else { known })
}

/// Those of a file and of the cluster that `NATS_URL` names; none if neither is given. A cluster that can't be asked is
/// told of: a graph is right or wrong without it too. So is a file that can't be used, which ends the command.
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
                output::note(&format!("the agents are not compared with those of the cluster: {error:#}"));
                return Ok(None);
            }
        }
    } else if file.is_none() {
        return Ok(None);
    }
    Ok(Some(KnownAgents::new(known)))
}

/// Compares the agents that a graph names with those that there are, if that is known.
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
