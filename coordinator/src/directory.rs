//! The known agents: profiles that an operator applied, and the built-in ones under their own
//! names. An applied profile replaces a built-in one of the same name.
//!
//! Every version is written to the log first (it is durable, and numbers the versions), then to the
//! store (all coordinators compare its revision). Where the two differ, the later version is valid
//! and is written to the other, so that either may be lost. After the answer to a change, no run is
//! admitted with an earlier profile: its commit would be rejected, because the partition has the
//! revision. If the process dies between log and store, no answer was sent, and the next comparison
//! by any coordinator writes the version to the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard},
};

use bus::{Bus, Position};
use domain::{AgentId, AgentProfile, Timestamp, agent::BUILTINS, problem::nearest, wire::AgentVersion};
use tokio::sync::Mutex;
use trace::NamedProfiles;

use crate::{
    crash::{Crash, Point},
    error_log,
    profile_log::{AgentRecord, Content},
    registry::{self, Appended, Known, Records, Registry},
    sealed::SealedStore,
    store::{self, Agents},
};

/// The most tries of a change, because another coordinator may be faster.
const TRIES: usize = 8;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Log(#[from] registry::Error),
    #[error("other requests keep changing the profile of `{0}`")]
    Contended(AgentId),
    #[error("version {version} of `{agent}` can't be read")]
    Unreadable { agent: AgentId, version: u64 },
}

impl Error {
    /// Returns true if the log has no room for a profile.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Log(error) if error.is_full())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Directory {
    store: SealedStore,
    log: Registry<AgentRecord>,
    crash: Crash,
    compared: Arc<RwLock<Compared>>,
    /// One change or comparison at a time.
    one: Arc<Mutex<()>>,
}

#[derive(Debug, Clone, Default)]
struct Compared {
    /// The revision of the store at the last comparison.
    revision: u64,
    /// The end of the log at the last comparison.
    end: Option<Position>,
    /// The latest version of each agent, including deleted ones.
    agents: Records<AgentRecord>,
}

impl Compared {
    fn get(&self, agent: &AgentId) -> Option<&AgentRecord> {
        self.agents.get(agent).map(|known| &***known)
    }
}

/// The result of applying profiles.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) versions: BTreeMap<AgentId, u64>,
    pub(crate) unchanged: Vec<AgentId>,
}

/// The outcome of a change for one agent.
struct Changed {
    agent: AgentId,
    latest: Arc<Known<AgentRecord>>,
    is_new: bool,
}

impl Directory {
    /// A directory that is empty until it is refreshed.
    pub(crate) fn new(store: SealedStore, bus: Bus, crash: Crash) -> Self {
        Directory { store, log: Registry::new(bus), crash, compared: Arc::default(), one: Arc::default() }
    }

    fn compared(&self) -> RwLockReadGuard<'_, Compared> {
        self.compared.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares store and log if either has changed.
    pub(crate) async fn refresh(&self) -> Result<(), Error> {
        let revision = self.store.agents_revision().await?;
        let end = self.log.end().await?;
        let same = {
            let known = self.compared();
            known.revision == revision && known.end == Some(end)
        };
        if same { Ok(()) } else { self.compare(0).await }
    }

    /// Compares store and log if the store has another revision than this one. Returns true if it
    /// has.
    pub(crate) async fn renew(&self, revision: Option<u64>) -> Result<bool, Error> {
        let found = self.store.agents_revision().await?;
        let differs = revision != Some(found);
        if differs {
            self.compare(found).await?;
        }
        Ok(differs)
    }

    /// Makes log, store and memory equal: the later version of each agent is valid. `seen` is a
    /// revision that the store has had.
    pub(crate) async fn compare(&self, seen: u64) -> Result<(), Error> {
        let _one = self.one.lock().await;
        for _ in 0..TRIES {
            // The store is read first: its versions are in the log already, unless the log has lost
            // them.
            let stored = self.store.agents().await?;
            let end = self.log.end().await?;
            let known = self.compared().clone();
            let mut agents =
                if known.end == Some(end) { known.agents.clone() } else { self.log.all().await? };
            let missing = missing_in_log(&known.agents, &stored, &agents);
            if known.end.is_some_and(|was| !was.is_in(end)) {
                tracing::warn!(
                    profiles = missing.len(),
                    "the log of agent profiles was lost; they are written to it again"
                );
            }
            for (agent, (version, content)) in missing {
                let logged = agents.get(&agent).cloned().unwrap_or_default();
                let logged = match self.log.put(&agent, &logged, version, &content).await? {
                    Appended::Done(logged) => logged,
                    Appended::Behind => self.log.one(&agent).await?,
                };
                if logged.exists() {
                    agents.insert(agent, logged);
                }
            }
            let is_behind = |agent: &AgentId, latest: &AgentRecord| {
                stored.versions.get(agent.as_str()).is_none_or(|version| *version < latest.version)
            };
            let behind = agents.iter().filter(|(agent, latest)| is_behind(agent, latest));
            let behind: Vec<_> = behind.map(|(agent, latest)| write(agent, latest)).collect();
            let revision = known.revision.max(seen);
            let went_back = stored.revision < revision;
            let is_empty = stored.profiles.is_empty() && stored.versions.is_empty();
            *self.compared.write().unwrap_or_else(PoisonError::into_inner) =
                Compared { revision: stored.revision, end: Some(end), agents };
            if behind.is_empty() && !went_back {
                return Ok(());
            }
            if went_back || (is_empty && !behind.is_empty()) {
                tracing::warn!(
                    known = revision,
                    found = stored.revision,
                    profiles = behind.len(),
                    "the store has lost agent profiles; they are written to it again, from the log"
                );
            }
            self.store.apply_agents(&behind, if went_back { revision + 1 } else { 0 }).await?;
            // Another coordinator may have made a change meanwhile: memory must have profiles that
            // were read together with their revision.
        }
        Ok(())
    }

    /// Writes the profiles that another key has signed to the store again. Returns their number.
    pub(crate) async fn sign_again(&self) -> Result<usize, Error> {
        let otherwise = self.store.agents_signed_otherwise().await?;
        if otherwise.is_empty() {
            return Ok(0);
        }
        self.compare(0).await?;
        let again = {
            let known = self.compared();
            let old = known.agents.iter().filter(|(agent, _)| otherwise.contains(agent.as_str()));
            let again = |(agent, latest): (&AgentId, &Arc<Known<AgentRecord>>)| store::AgentVersion {
                again: true,
                ..write(agent, latest)
            };
            old.map(again).collect::<Vec<_>>()
        };
        let revision = {
            let _one = self.one.lock().await;
            self.store.apply_agents(&again, 0).await?
        };
        self.compare(revision).await?;
        Ok(again.len())
    }

    /// Adds profiles, or replaces profiles of the same name. Once it returns, no run is admitted
    /// with an earlier profile. A second call is harmless: an equal profile gets no new version.
    pub(crate) async fn apply(&self, profiles: Vec<AgentProfile>) -> Result<Applied, Error> {
        let mut applied = Applied::default();
        let changes = profiles
            .into_iter()
            .map(|profile| (profile.agent_id.clone(), Content::Profile(Arc::new(profile))));
        for Changed { agent, latest, is_new } in self.change(changes.collect()).await? {
            applied.versions.insert(agent.clone(), latest.version);
            applied.unchanged.extend((!is_new).then_some(agent));
        }
        Ok(applied)
    }

    /// Deletes an agent that was applied. Returns when it was first deleted; none if the agent
    /// never existed.
    pub(crate) async fn delete(&self, agent: &AgentId) -> Result<Option<Timestamp>, Error> {
        self.refresh().await?;
        if !self.compared().agents.contains_key(agent) {
            return Ok(None);
        }
        let changed = self.change(vec![(agent.clone(), Content::Deleted)]).await?;
        Ok(changed.first().map(|changed| changed.latest.at))
    }

    async fn change(&self, changes: Vec<(AgentId, Content)>) -> Result<Vec<Changed>, Error> {
        self.refresh().await?;
        let mut changed = Vec::new();
        let revision = {
            let _one = self.one.lock().await;
            for (agent, content) in changes {
                let (latest, is_new) = self.append(&agent, &content).await?;
                changed.push(Changed { agent, latest, is_new });
            }
            self.crash.pass(Point::ProfilesLogged);
            // Unchanged versions are written too: the coordinator that logged them may have died
            // before this write.
            let writes: Vec<_> = changed.iter().map(|change| write(&change.agent, &change.latest)).collect();
            self.store.apply_agents(&writes, 0).await?
        };
        self.compare(revision).await?;
        Ok(changed)
    }

    /// Appends a version to the log, unless the latest is equal. Returns the latest version, and
    /// true if it is new.
    async fn append(
        &self,
        agent: &AgentId,
        content: &Content,
    ) -> Result<(Arc<Known<AgentRecord>>, bool), Error> {
        let mut latest = self.compared().agents.get(agent).cloned().unwrap_or_default();
        let mut version = latest.version;
        for _ in 0..TRIES {
            if latest.exists() && latest.content == *content {
                return Ok((latest, false));
            }
            latest = match self.log.put(agent, &latest, version + 1, content).await? {
                Appended::Done(new) if new.version == version + 1 && new.content == *content => {
                    return Ok((new, true));
                }
                Appended::Done(later) => later,
                Appended::Behind => self.log.one(agent).await?,
            };
            version = version.max(latest.version);
        }
        Err(Error::Contended(agent.clone()))
    }

    /// Every agent that a submission may name, and the versions of applied ones.
    pub(crate) fn all(&self) -> (Vec<AgentProfile>, BTreeMap<AgentId, u64>) {
        let known = self.compared();
        let names: BTreeSet<AgentId> = BUILT_IN.keys().chain(known.agents.keys()).cloned().collect();
        let named = named(&known, &names);
        (named.profiles, named.versions)
    }

    /// The latest version of a profile, or the requested one; none if it does not exist. A version
    /// that can't be read is an error.
    pub(crate) async fn version(
        &self,
        agent: &AgentId,
        version: Option<u64>,
    ) -> Result<Option<AgentVersion>, Error> {
        let kept = self.log.versions(agent).await?;
        let found = match version {
            Some(version) => kept.iter().find(|entry| entry.version == version),
            None => kept.last(),
        };
        let built_in = BUILT_IN.get(agent).filter(|_| kept.is_empty() && version.is_none());
        let versions = kept.iter().rev().map(|entry| entry.version).collect();
        if let Some(AgentRecord { version, content: Content::Unreadable(_), .. }) = found {
            return Err(Error::Unreadable { agent: agent.clone(), version: *version });
        }
        Ok(match (found.and_then(|entry| Some((entry, entry.content.profile()?))), built_in) {
            (Some((entry, profile)), _) => Some(AgentVersion {
                agent: (**profile).clone(),
                version: Some(entry.version),
                applied_at: Some(entry.at),
                versions,
            }),
            (None, Some(profile)) => {
                Some(AgentVersion { agent: profile.clone(), version: None, applied_at: None, versions })
            }
            (None, None) => None,
        })
    }

    /// When an agent was deleted, if it is.
    pub(crate) fn deleted_at(&self, agent: &AgentId) -> Option<Timestamp> {
        let known = self.compared();
        known.get(agent).filter(|latest| latest.content == Content::Deleted).map(|latest| latest.at)
    }

    /// The profiles of these names, as far as they exist. For an unknown name the store is read
    /// once more: another coordinator may have applied the profile a moment ago.
    pub(crate) async fn find(&self, names: &BTreeSet<AgentId>) -> NamedProfiles {
        let found = self.known_of(names);
        if found.profiles.len() == names.len() {
            return found;
        }
        if let Err(error) = self.renew(found.revision).await {
            error_log::tell(
                &error,
                None,
                "the agent profiles can't be read again; using those already known",
            );
        }
        self.known_of(names)
    }

    pub(crate) fn known_of(&self, names: &BTreeSet<AgentId>) -> NamedProfiles {
        named(&self.compared(), names)
    }
}

fn named(known: &Compared, names: &BTreeSet<AgentId>) -> NamedProfiles {
    let mut found = NamedProfiles { revision: Some(known.revision), ..Default::default() };
    for name in names {
        match known.get(name) {
            Some(AgentRecord { version, content: Content::Profile(profile), .. }) => {
                found.profiles.push((**profile).clone());
                found.versions.insert(name.clone(), *version);
            }
            Some(AgentRecord { at, content: Content::Deleted, .. }) => {
                found.deleted.insert(name.clone(), *at);
            }
            Some(AgentRecord { version, content: Content::Unreadable(_), .. }) => {
                found.unreadable.insert(name.clone(), *version);
            }
            None => match BUILT_IN.get(name) {
                Some(profile) => found.profiles.push(profile.clone()),
                None => {
                    let similar = similar(known, name).map(|similar| (name.clone(), similar.clone()));
                    found.similar.extend(similar);
                }
            },
        }
    }
    found
}

/// The agent whose name is similar to a name that does not exist.
fn similar<'a>(known: &'a Compared, name: &AgentId) -> Option<&'a AgentId> {
    let is_there = |latest: &AgentRecord| latest.content != Content::Deleted;
    let applied = known.agents.iter().filter(|(_, latest)| is_there(latest)).map(|(agent, _)| agent);
    let all = || applied.clone().chain(BUILT_IN.keys());
    let meant = nearest(name.as_str(), all().map(AgentId::as_str))?;
    all().find(|agent| agent.as_str() == meant)
}

/// The versions that memory or the store has, and the log lacks.
fn missing_in_log(
    known: &Records<AgentRecord>,
    stored: &Agents,
    logged: &Records<AgentRecord>,
) -> BTreeMap<AgentId, (u64, Content)> {
    let logged_version = |agent: &AgentId| logged.get(agent).map_or(0, |entry| entry.version);
    let mut missing: BTreeMap<_, _> = known
        .iter()
        .filter(|(agent, entry)| entry.version > logged_version(agent))
        .map(|(agent, entry)| (agent.clone(), (entry.version, entry.content.clone())))
        .collect();
    let names: BTreeSet<&String> = stored.profiles.keys().chain(stored.versions.keys()).collect();
    for name in names {
        let agent = match AgentId::new(name) {
            Ok(agent) => agent,
            Err(error) => {
                tracing::error!(agent_id = name, %error, "a stored agent profile has no valid name; it is ignored");
                continue;
            }
        };
        let content = stored.profiles.get(name).map_or(Content::Deleted, |text| Content::of(&agent, text));
        let latest = missing.get(&agent).map_or(0, |(version, _)| *version).max(logged_version(&agent));
        let version = match stored.versions.get(name) {
            Some(version) if *version == latest && !missing.contains_key(&agent) => {
                let logged = logged.get(&agent).map(|entry| &entry.content);
                let differs = content.profile().is_some() && logged != Some(&content);
                if differs { latest + 1 } else { continue }
            }
            Some(version) if *version > latest => *version,
            Some(_) | None => continue,
        };
        missing.insert(agent, (version, content));
    }
    missing
}

/// A version in the form of the store.
fn write(agent: &AgentId, latest: &AgentRecord) -> store::AgentVersion {
    store::AgentVersion {
        agent_id: agent.as_str().to_owned(),
        version: latest.version,
        profile: latest.content.text(),
        again: false,
    }
}

/// Returns true if an agent of this name is part of every deployment.
pub(crate) fn is_built_in(agent: &AgentId) -> bool {
    BUILT_IN.contains_key(agent)
}

/// Every built-in agent under its own name; `default` answers with the goal.
static BUILT_IN: LazyLock<BTreeMap<AgentId, AgentProfile>> = LazyLock::new(|| {
    let named = BUILTINS.iter().map(|name| (AgentId::new(name).expect("built-in names are ids"), *name));
    let all = named.chain([(AgentId::default_agent(), "echo")]);
    all.map(|(id, name)| (id.clone(), AgentProfile::builtin(id, name))).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_an_agent_that_is_not_there_comes_with_the_one_whose_name_is_much_the_same() {
        let find = |name: &str| named(&Compared::default(), &BTreeSet::from([AgentId::new(name).unwrap()]));
        let built_in = AgentId::default_agent();
        assert_eq!(find(built_in.as_str()).similar, BTreeMap::new());
        let misspelt = AgentId::new("defautl").unwrap();
        assert_eq!(find("defautl").similar, BTreeMap::from([(misspelt, built_in)]));
        assert_eq!(find("somebody-else-altogether").similar, BTreeMap::new());
    }
}
