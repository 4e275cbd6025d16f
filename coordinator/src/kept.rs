//! Graphs that are kept under names (G18), and their log: the versions of each under its own subject. A version is appended
//! behind the last one that its writer saw, or not at all: no two have the same number.
//!
//! What was read is kept in memory, up to a bound: a version never changes. Whether there are later ones is asked of the log
//! each time, with one request for all names; only what was put since is read again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use bus::{Bus, GRAPH_VERSIONS_KEPT, Outgoing, Position, PublishError, Stored};
use domain::{
    GraphName, Timestamp,
    graph::{Found, NotFound},
    subject::{Filter, Subject},
    wire::GraphVersion,
};
use serde_json::Value;

/// The most bytes of graphs in memory: with more, all are forgotten, and read again when they are used.
const MAX_CACHED_BYTES: usize = 64 << 20;
/// The most versions that a hint names.
const MAX_NAMED: usize = 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the log of graphs can't be read")]
    Read(#[from] bus::Error),
    #[error("the graph `{name}` could not be written to the log")]
    Write {
        name: GraphName,
        #[source]
        source: PublishError,
    },
}

impl Error {
    /// Whether the log has no room.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Write { source: PublishError::Full(_), .. })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Graphs {
    bus: Bus,
    cache: Arc<Mutex<Cache>>,
}

#[derive(Debug, Default)]
struct Cache {
    known: BTreeMap<GraphName, Arc<Known>>,
    bytes: usize,
}

/// What the log has of one name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Where the log ended when it was compared.
    as_of: Option<Position>,
    /// The place of its last message; 0: there is none.
    pub(crate) last: u64,
    versions: BTreeMap<u64, Version>,
}

#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) at: Timestamp,
    pub(crate) bytes: usize,
    /// None: the graph was deleted.
    pub(crate) graph: Option<Arc<Value>>,
}

impl Known {
    /// The number of the last version, a deletion included.
    pub(crate) fn number(&self) -> u64 {
        self.versions.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// When it was deleted, if it is.
    pub(crate) fn deleted_at(&self) -> Option<Timestamp> {
        self.versions.last_key_value().filter(|(_, last)| last.graph.is_none()).map(|(_, last)| last.at)
    }

    /// The versions that may be used, the latest first: those behind the last deletion.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (u64, &Version, &Arc<Value>)> {
        let versions = self.versions.iter().rev();
        versions.map_while(|(number, version)| Some((*number, version, version.graph.as_ref()?)))
    }

    /// A version, or the latest. `unknown` is the hint for a name that never was there.
    pub(crate) fn find(
        &self,
        name: &GraphName,
        version: Option<u64>,
        unknown: &str,
    ) -> Result<Found, NotFound> {
        if let Some(at) = self.deleted_at() {
            let hint = "keep it again, with `trellis graphs apply`, or give the graph itself";
            return Err((format!("the graph `{name}` was deleted at {at}"), Some(hint.into())));
        }
        let mut standing = self.standing();
        let found = match version {
            Some(version) => standing.find(|(number, ..)| *number == version),
            None => standing.next(),
        };
        match (found, version) {
            (Some((version, _, graph)), _) => Ok(Found { version, graph: graph.clone() }),
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

    fn bytes(&self) -> usize {
        self.versions.values().map(|version| version.bytes).sum()
    }

    fn add(&mut self, stored: &Stored) {
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
        self.last = stored.sequence;
        // The log drops them, too.
        while self.versions.len() > usize::try_from(GRAPH_VERSIONS_KEPT).unwrap_or(usize::MAX) {
            self.versions.pop_first();
        }
    }
}

pub(crate) enum Written {
    Done,
    /// Another was first.
    Behind,
}

impl Graphs {
    pub(crate) fn new(bus: Bus) -> Self {
        Graphs { bus, cache: Arc::default() }
    }

    /// What the log has of these names now.
    pub(crate) async fn read(
        &self,
        names: &BTreeSet<GraphName>,
    ) -> Result<BTreeMap<GraphName, Arc<Known>>, Error> {
        let end = self.bus.end(&Filter::AllKept).await?;
        let mut found = BTreeMap::new();
        for name in names {
            found.insert(name.clone(), self.compared(name, end).await?);
        }
        Ok(found)
    }

    pub(crate) async fn one(&self, name: &GraphName) -> Result<Arc<Known>, Error> {
        let end = self.bus.end(&Filter::AllKept).await?;
        self.compared(name, end).await
    }

    async fn compared(&self, name: &GraphName, end: Position) -> Result<Arc<Known>, Error> {
        let cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner).known.get(name).cloned();
        if let Some(cached) = cached.as_ref().filter(|cached| cached.as_of == Some(end)) {
            return Ok(cached.clone());
        }
        let filter = Filter::One(Subject::Kept(name.clone()));
        // A log that was made anew has other messages under the same numbers.
        let is_same_log = |known: &Known| known.as_of.is_some_and(|as_of| as_of.log == end.log);
        let mut known = match cached.filter(|cached| is_same_log(cached)) {
            Some(cached) => self.renewed(&cached, self.bus.last(&filter).await?),
            None => None,
        };
        if known.is_none() {
            let mut all = Known::default();
            self.bus.read(&filter).await?.iter().for_each(|stored| all.add(stored));
            known = Some(all);
        }
        let known = Arc::new(Known { as_of: Some(end), ..known.unwrap_or_default() });
        self.keep(name, known.clone());
        Ok(known)
    }

    /// What is known with the last message of the log; none if there is more between them.
    fn renewed(&self, cached: &Known, last: Option<Stored>) -> Option<Known> {
        let Some(last) = last else { return (cached.last == 0).then(|| cached.clone()) };
        if last.sequence == cached.last {
            return Some(cached.clone());
        }
        let mut known = cached.clone();
        known.add(&last);
        (known.number() == cached.number() + 1).then_some(known)
    }

    fn keep(&self, name: &GraphName, known: Arc<Known>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let before = cache.known.get(name).map_or(0, |known| known.bytes());
        cache.bytes = cache.bytes.saturating_sub(before) + known.bytes();
        if cache.bytes > MAX_CACHED_BYTES {
            *cache = Cache { bytes: known.bytes(), known: BTreeMap::new() };
        }
        cache.known.insert(name.clone(), known);
    }

    /// All names, in order; those of deleted graphs too.
    pub(crate) async fn names(&self) -> Result<BTreeSet<GraphName>, Error> {
        let subjects = self.bus.subjects(&Filter::AllKept).await?;
        let name = |subject| if let Subject::Kept(name) = subject { Some(name) } else { None };
        Ok(subjects.into_iter().filter_map(name).collect())
    }

    /// The last version of a name alone, for a list.
    pub(crate) async fn last(&self, name: &GraphName) -> Result<Known, Error> {
        let mut known = Known::default();
        let last = self.bus.last(&Filter::One(Subject::Kept(name.clone()))).await?;
        last.iter().for_each(|stored| known.add(stored));
        Ok(known)
    }

    /// Writes a version behind the last one that is known. A second try is harmless: if the first was stored, it is found.
    pub(crate) async fn append(
        &self,
        name: &GraphName,
        known: &Known,
        version: &GraphVersion,
    ) -> Result<Written, Error> {
        let subject = Subject::Kept(name.clone());
        let payload = serde_json::to_vec(version).expect("a version has string keys only");
        let message = Outgoing {
            subject: subject.clone(),
            id: None,
            headers: Default::default(),
            payload: payload.clone().into(),
            expect_last: Some(known.last),
        };
        let source = match self.bus.publish(message).await {
            Ok(_) => return Ok(Written::Done),
            Err(source) => source,
        };
        match source {
            PublishError::WrongSequence => Ok(Written::Behind),
            // A lost acknowledgement: what is there may be ours.
            source @ (PublishError::Unacknowledged
            | PublishError::Full(_)
            | PublishError::Denied(_)
            | PublishError::Other(_)) => {
                let last = self.bus.last(&Filter::One(subject)).await?;
                let is_ours = last.is_some_and(|last| last.payload == payload);
                if is_ours { Ok(Written::Done) } else { Err(Error::Write { name: name.clone(), source }) }
            }
        }
    }

    /// Removes the versions before the last deletion. Those that were put since stay.
    pub(crate) async fn forget(&self, name: &GraphName) -> Result<(), Error> {
        let subject = Subject::Kept(name.clone());
        let all = self.bus.read(&Filter::One(subject.clone())).await?;
        let is_deletion = |stored: &Stored| {
            serde_json::from_slice::<GraphVersion>(&stored.payload)
                .is_ok_and(|version| version.graph.is_none())
        };
        let deletion = all.iter().rposition(is_deletion).unwrap_or_default();
        let before = all.get(deletion).map_or(0, |deletion| deletion.sequence);
        let refused = self.bus.read_refused(&Filter::One(subject.clone())).await?;
        for stored in refused.iter().filter(|refused| refused.sequence < before).chain(&all[..deletion]) {
            self.bus.delete_message(&subject, stored.sequence).await?;
        }
        Ok(())
    }
}
