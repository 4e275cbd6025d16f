//! The agents that a graph may name, as far as somebody says which there are: a file of profiles, or a cluster. Without either
//! nobody knows, and names are not checked.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;
use shared::{
    AgentId, Problems,
    agent::BUILTINS,
    problem::nearest,
    wire::{Query, QueryAnswer},
};

use crate::{
    cluster::{client, connect::Servers},
    input::{document::Document, profiles, sources::join},
    terminal::{ending::Ending, output},
};

/// The agents that there are.
pub(crate) struct KnownAgents {
    names: BTreeSet<AgentId>,
    /// A directory may keep others. Then only a name that is nearly that of a known one is a mistake.
    may_be_more: bool,
}

impl KnownAgents {
    /// As `ask`; without a file, the one in the folder of the graph counts, as it does for `run`, unless a server is named.
    pub(crate) async fn of_graph(
        graph: &Path,
        file: Option<&Path>,
        servers: &Servers,
    ) -> Result<Option<Self>, Ending> {
        let is_served = servers.url().is_some() || servers.nats_url().is_some();
        let beside = profiles::beside(graph).filter(|_| file.is_none() && !is_served);
        let known = Self::ask(file.or(beside.as_deref()), servers).await?;
        let may_be_more = beside.is_some() && !servers.has_cluster();
        Ok(known.map(|known| KnownAgents { may_be_more, ..known }))
    }

    /// Those of a file and of the cluster that `NATS_URL` names; none if neither is given. A cluster that can't be asked is
    /// told of: a graph is right or wrong without it too. So is a file that can't be used, which ends the command.
    async fn ask(file: Option<&Path>, servers: &Servers) -> Result<Option<Self>, Ending> {
        let mut known = BTreeSet::new();
        if let Some(file) = file {
            let read = profiles::read(file).map_err(|unusable| profiles::explain(&unusable, file))?;
            known.extend(read.into_iter().map(|profile| profile.agent_id));
        }
        let of_cluster = match servers.has_cluster() {
            true => match listed(servers).await {
                Ok(agents) => Some(agents),
                Err(error) => {
                    output::note(&format!(
                        "the agents are not compared with those of the cluster: {error:#}"
                    ));
                    return Ok(None);
                }
            },
            false => None,
        };
        if file.is_none() && of_cluster.is_none() {
            return Ok(None);
        }
        known.extend(of_cluster.into_iter().flatten());
        // Every deployment has these.
        known.insert(AgentId::default_agent());
        known.extend(BUILTINS.iter().filter_map(|name| AgentId::new(name).ok()));
        Ok(Some(KnownAgents { names: known, may_be_more: false }))
    }

    /// Compares the agents that a graph names with those that there are, if that is known. The graph may have other mistakes.
    pub(crate) fn check(known: Option<&Self>, document: &mut Document) {
        if let Some(known) = known {
            known.graph(&document.value, "", &mut document.unread.problems);
        }
    }

    fn graph(&self, graph: &Value, at: &str, problems: &mut Problems) {
        self.name(graph.get("agent_id"), &join(at, "agent_id"), problems);
        for field in ["fallback", "undo"] {
            let at = join(at, field);
            match graph.get(field) {
                Some(Value::Object(task)) => {
                    self.name(task.get("agent_id"), &join(&at, "agent_id"), problems)
                }
                other => self.name(other, &at, problems),
            }
        }
        if let Some(used) = graph.get("graph") {
            self.graph(used, &join(at, "graph"), problems);
        }
        let steps = graph.get("steps").and_then(Value::as_array);
        for (number, step) in steps.into_iter().flatten().enumerate() {
            self.graph(step, &format!("{}[{number}]", join(at, "steps")), problems);
        }
    }

    fn name(&self, agent: Option<&Value>, at: &str, problems: &mut Problems) {
        let Some(name) = agent.and_then(Value::as_str) else { return };
        // What is no name at all is told of elsewhere.
        let Ok(id) = AgentId::new(name) else { return };
        if !self.names.contains(&id) {
            let hint = match nearest(name, self.names.iter().map(AgentId::as_str)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None if self.may_be_more => return,
                None => "apply its profile first, with `trellis agents apply`".into(),
            };
            problems.add(at, format!("there is no agent `{name}`"), Some(hint));
        }
    }
}

async fn listed(servers: &Servers) -> anyhow::Result<Vec<AgentId>> {
    let bus = servers.cluster().await?;
    let answer = client::query(&bus, &Query::Agents).await?;
    let QueryAnswer::Agents { agents, .. } = answer else { return Err(client::unexpected(&answer)) };
    Ok(agents.into_iter().map(|agent| agent.agent_id).collect())
}
