//! The durable log of agent profiles: the versions of each agent under its own subject, of which the latest counts.
//!
//! A version is appended behind the last one that its writer saw, or not at all: no two have the same number.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    AgentId, AgentProfile, Timestamp,
    bus::{self, Bus, Outgoing, PublishError, Stored},
    decode,
    subject::{Filter, Subject},
    wire::ProfileVersion,
};

/// One version of an agent's profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    /// Its place in the log.
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    /// None: the agent was deleted.
    pub(crate) profile: Option<Arc<AgentProfile>>,
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
    let stored = bus.read(&Filter::Profiles).await?;
    // Oldest first: the last of an agent stays.
    Ok(stored.iter().filter_map(entry).collect())
}

/// All versions of an agent that are kept, oldest first.
pub(crate) async fn versions(bus: &Bus, agent: &AgentId) -> Result<Vec<Entry>, bus::Error> {
    let stored = bus.read(&Filter::One(Subject::Profile(agent.clone()))).await?;
    Ok(stored.iter().filter_map(entry).map(|(_, entry)| entry).collect())
}

/// The bytes that a version has in the log.
pub(crate) fn payload(version: u64, profile: Option<&AgentProfile>) -> Vec<u8> {
    let version = ProfileVersion { version, profile: profile.cloned() };
    serde_json::to_vec(&version).expect("profiles have string keys only")
}

/// Appends a version behind the message with the sequence `after`; 0: as the first. A second try is harmless: if the
/// first was stored, it is found.
pub(crate) async fn append(
    bus: &Bus,
    agent: &AgentId,
    version: u64,
    profile: Option<&AgentProfile>,
    after: u64,
) -> Result<Appended, Error> {
    let subject = Subject::Profile(agent.clone());
    let message = Outgoing {
        subject: subject.clone(),
        id: None,
        headers: Default::default(),
        payload: payload(version, profile).into(),
        expect_last: Some(after),
    };
    let published = bus.publish(message).await;
    let last = bus.last(&Filter::One(subject)).await?;
    let last = last.as_ref().and_then(entry).map(|(_, entry)| entry);
    let ours = |last: &Entry| last.version == version && last.profile.as_deref() == profile;
    match (published, last) {
        (Ok(_) | Err(PublishError::WrongSequence | PublishError::Unacknowledged), Some(last))
            if ours(&last) =>
        {
            Ok(Appended::Done(last))
        }
        (Ok(_) | Err(PublishError::WrongSequence), last) => Ok(Appended::Behind(last)),
        (
            Err(source @ (PublishError::Unacknowledged | PublishError::Full(_) | PublishError::Other(_))),
            _,
        ) => Err(Error::Write { agent: agent.clone(), source }),
    }
}

/// What can't be read was written by another version; the store may still have the profile.
fn entry(stored: &Stored) -> Option<(AgentId, Entry)> {
    let Subject::Profile(agent) = &stored.subject else { return None };
    match decode::json::<ProfileVersion>(&stored.payload) {
        Ok(ProfileVersion { version, profile }) => {
            let (sequence, at) = (stored.sequence, stored.at);
            Some((agent.clone(), Entry { version, sequence, at, profile: profile.map(Arc::new) }))
        }
        Err(problems) => {
            tracing::error!(agent_id = %agent, %problems, "a profile in the log can't be read; it is ignored until it is applied again");
            None
        }
    }
}
