//! The durable log of agent profiles: the versions of each agent under its own subject, of which the latest counts.
//!
//! A version is appended behind the last one that its writer saw, or not at all: no two have the same number. A full log
//! drops earlier versions, never the latest of an agent that exists.

use std::{collections::BTreeMap, sync::Arc};

use bus::{Bus, Outgoing, PROFILE_VERSIONS_KEPT, PublishError, Stored};
use domain::{
    AgentId, AgentProfile, Problems, Timestamp, decode,
    subject::{Filter, Subject},
    wire::ProfileVersion,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One version of an agent's profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    /// Its place in the log.
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    pub(crate) content: Content,
}

/// What a version is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Profile(Arc<AgentProfile>),
    Deleted,
    /// Written by a newer version of this program: the JSON of the profile. No run is admitted with it, nor with an
    /// earlier one.
    Unreadable(Arc<str>),
}

impl Content {
    /// From the JSON of a profile.
    pub(crate) fn of(agent: &AgentId, text: &str) -> Self {
        decode::json(text.as_bytes()).map_or_else(
            |problems| Self::unreadable(agent, text, &problems),
            |profile| Content::Profile(Arc::new(profile)),
        )
    }

    fn unreadable(agent: &AgentId, text: &str, problems: &Problems) -> Self {
        tracing::debug!(%problems, "what is wrong with a profile");
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

/// What can be read of a version that a newer version of this program wrote.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Foreign {
    version: u64,
    profile: Option<Box<RawValue>>,
}

pub(crate) enum Appended {
    Done(Entry),
    /// Another was first, or the log has lost what was expected: the last version that it has.
    Behind(Option<Entry>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the log of agent profiles can't be read")]
    Read(#[from] bus::Error),
    #[error("the profile of `{agent}` could not be written to the log")]
    Write {
        agent: AgentId,
        #[source]
        source: PublishError,
    },
}

/// The latest version of each agent.
pub(crate) async fn read(bus: &Bus) -> Result<BTreeMap<AgentId, Entry>, bus::Error> {
    let mut latest: BTreeMap<AgentId, Entry> = BTreeMap::new();
    // Oldest first: the last of an agent stays. One whose number can't be read has at least the one before.
    for (agent, mut entry) in bus.read(&Filter::Profiles).await?.iter().filter_map(entry) {
        entry.version = latest.get(&agent).map_or(0, |before| before.version).max(entry.version);
        latest.insert(agent, entry);
    }
    Ok(latest)
}

/// All versions of an agent that are kept, oldest first.
pub(crate) async fn versions(bus: &Bus, agent: &AgentId) -> Result<Vec<Entry>, bus::Error> {
    let stored = bus.read(&Filter::One(Subject::Profile(agent.clone()))).await?;
    // The log may have a few more, until there is no room for the next.
    let kept = usize::try_from(PROFILE_VERSIONS_KEPT).unwrap_or(usize::MAX);
    let stored = &stored[stored.len().saturating_sub(kept)..];
    Ok(stored.iter().filter_map(entry).map(|(_, entry)| entry).collect())
}

/// The bytes that a version of a profile has in the log.
pub(crate) fn payload(version: u64, profile: Option<&AgentProfile>) -> Vec<u8> {
    let version = ProfileVersion { version, profile: profile.cloned() };
    serde_json::to_vec(&version).expect("profiles have string keys only")
}

/// Appends a version behind the message with the sequence `after`; 0: as the first. A second try is harmless: if the
/// first was stored, it is found. If the log is full, the earlier versions of the agent make room, then those of all
/// deleted agents.
pub(crate) async fn append(
    bus: &Bus,
    agent: &AgentId,
    version: u64,
    content: &Content,
    after: u64,
) -> Result<Appended, Error> {
    let subject = Subject::Profile(agent.clone());
    let payload = match content {
        Content::Profile(profile) => payload(version, Some(profile)),
        Content::Deleted => payload(version, None),
        Content::Unreadable(text) => format!(r#"{{"version":{version},"profile":{text}}}"#).into_bytes(),
    };
    let message = |after: u64| Outgoing {
        subject: subject.clone(),
        id: None,
        headers: Default::default(),
        payload: payload.clone().into(),
        expect_last: Some(after),
    };
    let mut published = bus.publish(message(after)).await;
    if let Err(PublishError::Full(_)) = published {
        remove_before(bus, agent, after).await?;
        published = bus.publish(message(after)).await;
    }
    if let Err(PublishError::Full(_)) = published {
        remove_deleted(bus).await?;
        published = bus.publish(message(after)).await;
    }
    if let (Err(PublishError::Full(_)), Content::Deleted) = (&published, content) {
        // Not even a deletion fits. If the process dies now, the store still has the profile, and nobody was answered.
        remove_before(bus, agent, after + 1).await?;
        published = bus.publish_behind_removed(message(after)).await;
    }
    let last = bus.last(&Filter::One(subject)).await?;
    let last = last.as_ref().and_then(entry).map(|(_, entry)| entry);
    let ours = |last: &Entry| last.version == version && last.content == *content;
    match (published, last) {
        (Ok(_) | Err(PublishError::WrongSequence | PublishError::Unacknowledged), Some(last))
            if ours(&last) =>
        {
            Ok(Appended::Done(last))
        }
        (Ok(_) | Err(PublishError::WrongSequence), last) => Ok(Appended::Behind(last)),
        (
            Err(
                source @ (PublishError::Unacknowledged
                | PublishError::Full(_)
                | PublishError::Denied(_)
                | PublishError::Other(_)),
            ),
            _,
        ) => Err(Error::Write { agent: agent.clone(), source }),
    }
}

/// Removes the versions of deleted agents; the deletions stay.
async fn remove_deleted(bus: &Bus) -> Result<(), bus::Error> {
    for (agent, entry) in read(bus).await?.iter().filter(|(_, entry)| entry.content == Content::Deleted) {
        remove_before(bus, agent, entry.sequence).await?;
    }
    Ok(())
}

/// Removes the versions of an agent that are earlier in the log than this sequence.
async fn remove_before(bus: &Bus, agent: &AgentId, sequence: u64) -> Result<(), bus::Error> {
    let subject = Subject::Profile(agent.clone());
    let kept = bus.read(&Filter::One(subject.clone())).await?;
    for earlier in kept.iter().filter(|stored| stored.sequence < sequence) {
        bus.delete_message(&subject, earlier.sequence).await?;
    }
    Ok(())
}

/// The number of a version is read apart from its profile: what a newer version of this program wrote counts, too.
fn entry(stored: &Stored) -> Option<(AgentId, Entry)> {
    let Subject::Profile(agent) = &stored.subject else { return None };
    let (version, content) = match decode::json::<ProfileVersion>(&stored.payload) {
        Ok(ProfileVersion { version, profile }) => {
            (version, profile.map_or(Content::Deleted, |profile| Content::Profile(Arc::new(profile))))
        }
        Err(problems) => {
            let Foreign { version, profile } = serde_json::from_slice(&stored.payload).unwrap_or_default();
            let text = profile.as_ref().map_or("null", |profile| profile.get());
            (version, Content::unreadable(agent, text, &problems))
        }
    };
    Some((agent.clone(), Entry { version, sequence: stored.sequence, at: stored.at, content }))
}
