//! The versions of agent profiles in their registry; the latest version of each agent is valid. A
//! full log drops earlier versions, but never the latest of an agent that exists.

use std::sync::Arc;

use bus::{PROFILE_VERSIONS_KEPT, StoredMessage};
use domain::{
    AgentId, AgentProfile, Problems, Timestamp, decode,
    subject::{Filter, Subject},
    wire::ProfileVersion,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::registry::{Appended, Error, Known, Record, Registry};

/// The latest version of an agent's profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentRecord {
    pub(crate) version: u64,
    pub(crate) at: Timestamp,
    pub(crate) content: Content,
}

impl Default for AgentRecord {
    fn default() -> Self {
        AgentRecord { version: 0, at: Timestamp::default(), content: Content::Deleted }
    }
}

/// The content of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Profile(Arc<AgentProfile>),
    Deleted,
    /// Written by a newer version of this program: the JSON of the profile. No run is admitted with
    /// it, nor with an earlier version.
    Unreadable(Arc<str>),
}

impl Content {
    /// Reads the JSON of a profile.
    pub(crate) fn of(agent: &AgentId, text: &str) -> Self {
        decode::json(text.as_bytes()).map_or_else(
            |problems| Self::unreadable(agent, text, &problems),
            |profile| Content::Profile(Arc::new(profile)),
        )
    }

    fn unreadable(agent: &AgentId, text: &str, problems: &Problems) -> Self {
        tracing::debug!(%problems, "the problems of an agent profile");
        tracing::error!(agent_id = %agent, "an agent profile can't be read, perhaps because a newer version \
            wrote it; submissions that name it are refused until it is applied again");
        Content::Unreadable(text.into())
    }

    pub(crate) fn profile(&self) -> Option<&Arc<AgentProfile>> {
        match self {
            Content::Profile(profile) => Some(profile),
            Content::Deleted | Content::Unreadable(_) => None,
        }
    }

    /// Its JSON; none if the agent was deleted.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Content::Profile(profile) => {
                Some(serde_json::to_string(&**profile).expect("profiles have string keys only"))
            }
            Content::Deleted => None,
            Content::Unreadable(text) => Some((**text).to_owned()),
        }
    }
}

/// The readable parts of a version that a newer version of this program wrote.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Foreign {
    version: u64,
    profile: Option<Box<RawValue>>,
}

impl Record for AgentRecord {
    type Key = AgentId;

    const LOG: &'static str = "the log of agent profiles";
    const ALL: &'static [Filter] = &[Filter::Profiles];

    fn title(agent: &AgentId) -> String {
        format!("the profile of `{agent}`")
    }

    fn subjects(agent: &AgentId) -> Vec<Subject> {
        vec![Subject::Profile(agent.clone())]
    }

    fn key(subject: &Subject) -> Option<AgentId> {
        if let Subject::Profile(agent) = subject { Some(agent.clone()) } else { None }
    }

    /// A version whose number can't be read gets at least the number of the version before.
    fn add(&mut self, stored: &StoredMessage) {
        if let Some(latest) = AgentRecord::read(stored) {
            *self = AgentRecord { version: latest.version.max(self.version), ..latest };
        }
    }
}

impl AgentRecord {
    /// Reads the number of a version apart from its profile, which a newer version of this program
    /// may have written.
    fn read(stored: &StoredMessage) -> Option<Self> {
        let Subject::Profile(agent) = &stored.subject else { return None };
        let (version, content) = match decode::json::<ProfileVersion>(&stored.payload) {
            Ok(ProfileVersion { version, profile }) => {
                (version, profile.map_or(Content::Deleted, |profile| Content::Profile(Arc::new(profile))))
            }
            Err(problems) => {
                let Foreign { version, profile } =
                    serde_json::from_slice(&stored.payload).unwrap_or_default();
                let text = profile.as_ref().map_or("null", |profile| profile.get());
                (version, Content::unreadable(agent, text, &problems))
            }
        };
        Some(AgentRecord { version, at: stored.at, content })
    }
}

/// The bytes of a profile version in the log.
pub(crate) fn payload(version: u64, profile: Option<&AgentProfile>) -> Vec<u8> {
    let version = ProfileVersion { version, profile: profile.cloned() };
    serde_json::to_vec(&version).expect("profiles have string keys only")
}

fn is_full(appended: &Result<Appended<AgentRecord>, Error>) -> bool {
    appended.as_ref().is_err_and(Error::is_full)
}

impl Registry<AgentRecord> {
    /// The last versions of an agent, oldest first, up to the limit.
    pub(crate) async fn versions(&self, agent: &AgentId) -> Result<Vec<AgentRecord>, Error> {
        let stored = self.stored(&Subject::Profile(agent.clone())).await?;
        // The log may have a few more, until it needs the room.
        let kept = usize::try_from(PROFILE_VERSIONS_KEPT).unwrap_or(usize::MAX);
        let stored = &stored[stored.len().saturating_sub(kept)..];
        Ok(stored.iter().filter_map(AgentRecord::read).collect())
    }

    /// Appends a version after the last known one. If the log is full, the earlier versions of the
    /// agent are removed, then those of all deleted agents.
    pub(crate) async fn put(
        &self,
        agent: &AgentId,
        known: &Known<AgentRecord>,
        version: u64,
        content: &Content,
    ) -> Result<Appended<AgentRecord>, Error> {
        let subject = Subject::Profile(agent.clone());
        let payload = match content {
            Content::Profile(profile) => payload(version, Some(profile)),
            Content::Deleted => payload(version, None),
            Content::Unreadable(text) => format!(r#"{{"version":{version},"profile":{text}}}"#).into_bytes(),
        };
        let after = known.last(&subject);
        let append = async || self.append(agent, known, subject.clone(), payload.clone()).await;
        let mut appended = append().await;
        if is_full(&appended) {
            self.remove_before(&subject, after).await?;
            appended = append().await;
        }
        if is_full(&appended) {
            self.remove_deleted_agents().await?;
            appended = append().await;
        }
        if is_full(&appended) && *content == Content::Deleted {
            // Even a deletion does not fit. If the process dies now, the store still has the
            // profile, and no client has an answer.
            self.remove_before(&subject, after + 1).await?;
            appended = self.append_alone(agent, known, subject.clone(), payload.clone()).await;
        }
        appended
    }

    /// Removes the versions of deleted agents; the deletions stay.
    async fn remove_deleted_agents(&self) -> Result<(), Error> {
        for (agent, known) in self.all().await?.iter().filter(|(_, known)| known.content == Content::Deleted)
        {
            let subject = Subject::Profile(agent.clone());
            self.remove_before(&subject, known.last(&subject)).await?;
        }
        Ok(())
    }
}
