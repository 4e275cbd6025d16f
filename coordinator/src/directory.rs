//! The known agents: profiles applied by the operator, kept in the store, and the built-in ones under their
//! own names. An applied profile replaces a built-in one of the same name.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock},
};

use shared::{AgentId, AgentProfile, agent::BUILTINS, decode};

use crate::store::{self, Store};

#[derive(Debug, Clone)]
pub(crate) struct Directory {
    store: Store,
    known: Arc<RwLock<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    revision: u64,
    profiles: BTreeMap<AgentId, AgentProfile>,
}

impl Directory {
    pub(crate) async fn open(store: Store) -> Result<Self, store::Error> {
        let directory = Directory { store, known: Arc::default() };
        directory.read().await?;
        Ok(directory)
    }

    /// Reads the profiles again if their revision in the store has changed.
    pub(crate) async fn refresh(&self) -> Result<(), store::Error> {
        let revision = self.store.agents_revision().await?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).revision;
        match revision.cmp(&known) {
            Ordering::Equal => Ok(()),
            Ordering::Greater => self.read().await,
            Ordering::Less => {
                tracing::error!(
                    known,
                    found = revision,
                    "the store has lost agent profiles; applying them again"
                );
                let builtin = builtin();
                let applied: Vec<AgentProfile> = self
                    .all()
                    .into_iter()
                    .filter(|agent| builtin.get(&agent.agent_id) != Some(agent))
                    .collect();
                self.apply(&applied).await
            }
        }
    }

    async fn read(&self) -> Result<(), store::Error> {
        let (revision, texts) = self.store.agents().await?;
        let mut profiles = builtin();
        for (name, text) in texts {
            match decode::json::<AgentProfile>(text.as_bytes()) {
                Ok(profile) => drop(profiles.insert(profile.agent_id.clone(), profile)),
                Err(problems) => {
                    tracing::error!(agent_id = name, %problems, "a stored agent profile can't be read; it is ignored until it is applied again");
                }
            }
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Known { revision, profiles };
        Ok(())
    }

    pub(crate) async fn apply(&self, profiles: &[AgentProfile]) -> Result<(), store::Error> {
        let text = |profile: &AgentProfile| {
            let text = serde_json::to_string(profile).expect("profiles have string keys only");
            (profile.agent_id.as_str().to_owned(), text)
        };
        self.store.apply_agents(&profiles.iter().map(text).collect::<Vec<_>>()).await?;
        self.read().await
    }

    pub(crate) fn all(&self) -> Vec<AgentProfile> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).profiles.values().cloned().collect()
    }

    /// The profiles of these names, as far as they exist. If a name is unknown, the store is read once
    /// more: another coordinator may have applied it a moment ago.
    pub(crate) async fn find(&self, names: &BTreeSet<AgentId>) -> Vec<AgentProfile> {
        let found = self.known_of(names);
        if found.len() == names.len() {
            return found;
        }
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "the agent profiles can't be read again; using those already known");
        }
        self.known_of(names)
    }

    fn known_of(&self, names: &BTreeSet<AgentId>) -> Vec<AgentProfile> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().filter_map(|name| known.profiles.get(name).cloned()).collect()
    }
}

/// Every built-in agent under its own name; `default` answers with the goal.
fn builtin() -> BTreeMap<AgentId, AgentProfile> {
    let named = BUILTINS.iter().map(|name| (AgentId::new(name).expect("built-in names are ids"), *name));
    let all = named.chain([(AgentId::default_agent(), "echo")]);
    all.map(|(id, name)| (id.clone(), AgentProfile::builtin(id, name))).collect()
}
