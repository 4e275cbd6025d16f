//! Graphs that are kept under names (G18): the versions of each, in a registry. A reader uses all
//! versions. Versions never change, so only those that were put since the last read are read from
//! the log.

use std::{collections::BTreeMap, sync::Arc};

use bus::{GRAPH_VERSIONS_KEPT, StoredMessage};
use domain::{
    GraphName, Json, Timestamp,
    graph::{FoundGraph, NotFound},
    subject::{Filter, Subject},
    wire::GraphVersion,
};
use serde::Deserialize;
use serde_json::Value;

use crate::registry::{Appended, Error, Known, Record, Registry};

/// The most versions in a hint.
const MAX_NAMED: usize = 10;

pub(crate) type Graphs = Registry<GraphRecord>;

/// The versions of one graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct GraphRecord {
    versions: BTreeMap<u64, Version>,
}

#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) at: Timestamp,
    pub(crate) bytes: usize,
    /// None: the graph was deleted.
    pub(crate) graph: Option<Arc<Value>>,
}

impl Record for GraphRecord {
    type Key = GraphName;

    const LOG: &'static str = "the log of graphs";
    const ALL: &'static [Filter] = &[Filter::AllKept];

    fn title(name: &GraphName) -> String {
        format!("the graph `{name}`")
    }

    fn subjects(name: &GraphName) -> Vec<Subject> {
        vec![Subject::Kept(name.clone())]
    }

    fn key(subject: &Subject) -> Option<GraphName> {
        if let Subject::Kept(name) = subject { Some(name.clone()) } else { None }
    }

    fn add(&mut self, stored: &StoredMessage) {
        match serde_json::from_slice::<GraphVersion>(&stored.payload) {
            Ok(GraphVersion { version, graph }) => {
                let graph = graph.map(|graph| Arc::new(graph.value().clone()));
                let bytes = stored.payload.len();
                self.versions.insert(version, Version { at: stored.at, bytes, graph });
            }
            Err(error) => {
                tracing::error!(subject = %stored.subject, %error, "a version of a graph can't be read; it is ignored");
            }
        }
        // The log drops them too.
        while self.versions.len() > usize::try_from(GRAPH_VERSIONS_KEPT).unwrap_or(usize::MAX) {
            self.versions.pop_first();
        }
    }

    fn is_next(&self, stored: &StoredMessage) -> bool {
        serde_json::from_slice::<Number>(&stored.payload).is_ok_and(|next| next.version == self.number() + 1)
    }

    fn bytes(&self) -> usize {
        self.versions.values().map(|version| version.bytes).sum()
    }
}

/// The part of a version that decides its place in the list.
#[derive(Deserialize)]
struct Number {
    version: u64,
}

impl GraphRecord {
    /// The number of the last version, which may be a deletion.
    pub(crate) fn number(&self) -> u64 {
        self.versions.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// When it was deleted, if it is.
    pub(crate) fn deleted_at(&self) -> Option<Timestamp> {
        self.versions.last_key_value().filter(|(_, last)| last.graph.is_none()).map(|(_, last)| last.at)
    }

    /// The usable versions, the latest first: those after the last deletion.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (u64, &Version, &Arc<Value>)> {
        let versions = self.versions.iter().rev();
        versions.map_while(|(number, version)| Some((*number, version, version.graph.as_ref()?)))
    }

    /// Finds a version, or the latest. `unknown` is the hint for a name that never existed.
    pub(crate) fn find(
        &self,
        name: &GraphName,
        version: Option<u64>,
        unknown: &str,
    ) -> Result<FoundGraph, NotFound> {
        if let Some(at) = self.deleted_at() {
            let hint = "store it again with `trellis graphs apply`, or give the graph itself";
            return Err((format!("the graph `{name}` was deleted at {at}"), Some(hint.into())));
        }
        let mut standing = self.standing();
        let found = match version {
            Some(version) => standing.find(|(number, ..)| *number == version),
            None => standing.next(),
        };
        match (found, version) {
            (Some((version, _, graph)), _) => Ok(FoundGraph { version, graph: graph.clone() }),
            (None, Some(version)) if self.number() > 0 => {
                let message = format!("there is no version {version} of the graph `{name}`");
                Err((message, Some(format!("the versions that are kept: {}", self.kept()))))
            }
            (None, _) => Err((format!("there is no graph `{name}`"), Some(unknown.to_owned()))),
        }
    }

    fn kept(&self) -> String {
        let numbers: Vec<u64> = self.standing().map(|(number, ..)| number).collect();
        let named: Vec<String> = numbers.iter().take(MAX_NAMED).map(u64::to_string).collect();
        match numbers.last().filter(|_| numbers.len() > MAX_NAMED) {
            Some(first) => format!("{} and more, down to {first}", named.join(", ")),
            None => named.join(", "),
        }
    }
}

impl Registry<GraphRecord> {
    /// Appends a version after the last known one.
    pub(crate) async fn put(
        &self,
        name: &GraphName,
        known: &Known<GraphRecord>,
        graph: Option<Value>,
    ) -> Result<Appended<GraphRecord>, Error> {
        let version = GraphVersion { version: known.number() + 1, graph: graph.map(Json::from) };
        let payload = serde_json::to_vec(&version).expect("a version has string keys only");
        self.append(name, known, Subject::Kept(name.clone()), payload).await
    }

    /// Removes the versions before the last deletion. Versions that were put since stay.
    pub(crate) async fn remove_deleted(&self, name: &GraphName) -> Result<(), Error> {
        let subject = Subject::Kept(name.clone());
        let all = self.stored(&subject).await?;
        let is_deletion = |stored: &StoredMessage| {
            serde_json::from_slice::<GraphVersion>(&stored.payload)
                .is_ok_and(|version| version.graph.is_none())
        };
        let Some(deletion) = all.iter().rfind(|stored| is_deletion(stored)) else { return Ok(()) };
        self.remove_refused_before(&subject, deletion.sequence).await?;
        self.remove_before(&subject, deletion.sequence).await
    }
}
