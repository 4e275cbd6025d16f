//! Definitions that use graphs by name (G18): the named graphs are inserted before any decision. A
//! second delivery is harmless: the request is compared as it was sent, so a later version under
//! the name changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    GraphName,
    graph::{self, FoundGraph, NotFound, Purpose, ResolveError, ResolvedGraph},
    problem::nearest,
};
use serde_json::Value;

use crate::{
    kept::GraphRecord,
    loops::{Handles, LARGE_BYTES},
    registry::{Error, Records},
};

/// The kept graphs of some names, and hints for names that never existed.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    known: Records<GraphRecord>,
    hints: BTreeMap<GraphName, String>,
}

impl Shelf {
    pub(super) async fn read(handles: &Handles, names: &BTreeSet<GraphName>) -> Result<Self, Error> {
        let known = handles.graphs.some(names).await?;
        let mut hints = BTreeMap::new();
        for (name, _) in known.iter().filter(|(_, known)| known.number() == 0) {
            hints.insert(name.clone(), unknown(handles, name).await?);
        }
        Ok(Shelf { known, hints })
    }

    pub(super) fn find(
        &self,
        name: &GraphName,
        version: Option<u64>,
    ) -> Result<Option<FoundGraph>, NotFound> {
        let hint = self.hints.get(name).map_or("", String::as_str);
        let known = self.known.get(name).cloned().unwrap_or_default();
        known.find(name, version, hint).map(Some)
    }

    fn bytes(&self) -> usize {
        self.known
            .values()
            .flat_map(|known| known.standing().next())
            .map(|(_, version, _)| version.bytes)
            .sum()
    }
}

/// The hint for a name that never existed.
pub(super) async fn unknown(handles: &Handles, name: &GraphName) -> Result<String, Error> {
    let names = handles.graphs.keys().await?;
    if let Some(meant) = nearest(name.as_str(), names.iter().map(GraphName::as_str))
        && let Ok(meant) = GraphName::new(meant)
        && handles.graphs.one(&meant).await?.deleted_at().is_none()
    {
        return Ok(format!("did you mean `{meant}`?"));
    }
    Ok("`trellis graphs list` shows all of them; for a file, write its path, such as `./facts.yaml`".into())
}

/// Reads a definition of so many bytes, with the graphs that it names.
pub(super) async fn read(
    handles: &Handles,
    given: Value,
    bytes: usize,
    purpose: Purpose,
) -> Result<Result<ResolvedGraph, ResolveError>, Error> {
    let shelf = Shelf::read(handles, &graph::names(&given)).await?;
    let is_large = bytes + shelf.bytes() > LARGE_BYTES;
    let read = move || graph::read_named(&given, purpose, &|name, version| shelf.find(name, version));
    if is_large {
        return Ok(tokio::task::spawn_blocking(read).await.expect("the reader does not panic"));
    }
    Ok(read())
}
