//! Queries about graphs that are kept under names, and their changes (G18). A second delivery is
//! harmless: an equal graph gets no new version, and a deleted one is not deleted again.

use bus::{Storage, Stream};
use domain::{
    GraphName, Json, Problems,
    graph::{self, MAX_KEPT_BYTES, Purpose, Put, TaskGraph},
    wire::{GraphShown, GraphSummary, QueryAnswer, Refusal},
};
use serde::Deserialize;
use serde_json::Value;

use super::names::{Shelf, unknown};
use crate::{
    error_log,
    kept::Version,
    loops::Handles,
    registry::{Appended, Error},
    storage_headroom::MARK_PERCENT,
};

/// The most tries of a change, because another client may be faster.
const TRIES: usize = 16;
/// The most graphs of one answer.
const MAX_LISTED: u32 = 500;

/// The answer, or a refusal after an error.
fn told(answer: Result<QueryAnswer, Error>) -> QueryAnswer {
    answer.unwrap_or_else(|error| {
        error_log::tell(&error, None, "a query about kept graphs could not be answered");
        QueryAnswer::Refused(if error.is_full() { full() } else { Refusal::unavailable() })
    })
}

fn full() -> Refusal {
    let hint = "delete unused graphs with `trellis graphs delete NAME`";
    Refusal::storage_full(format!("there is no room for more graphs\n\nhint: {hint}"))
}

fn refused(problems: &Problems) -> QueryAnswer {
    QueryAnswer::Refused(Refusal::invalid(problems))
}

fn contended(name: &GraphName) -> QueryAnswer {
    let message = format!("other requests keep changing the graph `{name}`: try again");
    QueryAnswer::Refused(Refusal { message, ..Refusal::unavailable() })
}

pub(super) async fn put(handles: &Handles, name: &GraphName, given: &Json) -> QueryAnswer {
    told(keep(handles, name, given).await)
}

async fn keep(handles: &Handles, name: &GraphName, given: &Json) -> Result<QueryAnswer, Error> {
    let shelf = Shelf::read(handles, &graph::names(given.value())).await?;
    let graph = match check(name, given.value().clone(), &shelf) {
        Ok(graph) => graph,
        Err(problems) => return Ok(refused(&problems)),
    };
    for _ in 0..TRIES {
        let known = handles.graphs.one(name).await?;
        if let Some((version, ..)) = known.standing().next().filter(|(.., latest)| ***latest == graph) {
            return Ok(QueryAnswer::GraphKept { name: name.clone(), version, unchanged: true });
        }
        if has_no_room(handles) {
            return Ok(QueryAnswer::Refused(full()));
        }
        if let Appended::Done(_) = handles.graphs.put(name, &known, Some(graph.clone())).await? {
            let version = known.number() + 1;
            return Ok(QueryAnswer::GraphKept { name: name.clone(), version, unchanged: false });
        }
    }
    Ok(contended(name))
}

/// The graph in the form in which it is kept, with the graphs that its steps name; or all of its
/// problems.
fn check(name: &GraphName, mut graph: Value, shelf: &Shelf) -> Result<Value, Problems> {
    let itself = graph::circle(&graph, name);
    let find = |used: &GraphName, version| if used == name { Ok(None) } else { shelf.find(used, version) };
    let Put { mut problems, .. } = graph::put(&mut graph, Purpose::Keep, &find);
    if let Some((path, circle)) = itself.or_else(|| graph::circle(&graph, name)) {
        let message = format!("the graphs use each other: {name} → {}", circle.join(" → "));
        problems.add(path, message, Some("use a graph that does not use this one".into()));
    }
    match graph::read_to_keep(graph) {
        Ok(definition) => {
            let kept = serde_json::to_value(&definition).expect("a definition has string keys only");
            let bytes = domain::json::size_bytes(&kept);
            if bytes > MAX_KEPT_BYTES {
                let message = format!("it has {bytes} bytes, more than the {MAX_KEPT_BYTES} allowed");
                problems.add("", message, Some("store parts of it as separate graphs".into()));
            }
            problems.or(kept)
        }
        Err(more) => {
            problems.extend(more);
            Err(problems)
        }
    }
}

/// Returns true if the log of graphs has reached the mark. The room above it is for deletions.
fn has_no_room(handles: &Handles) -> bool {
    let fills = handles.room.fills();
    let mut fills = fills.iter().filter(|fill| fill.storage == Storage::Stream(Stream::Graph));
    fills.any(|fill| fill.percent() >= MARK_PERCENT)
}

pub(super) async fn delete(handles: &Handles, name: &GraphName) -> QueryAnswer {
    told(remove(handles, name).await)
}

async fn remove(handles: &Handles, name: &GraphName) -> Result<QueryAnswer, Error> {
    for _ in 0..TRIES {
        let known = handles.graphs.one(name).await?;
        if known.number() == 0 {
            let hint = unknown(handles, name).await?;
            return Ok(refused(&Problems::one("name", format!("there is no graph `{name}`"), Some(hint))));
        }
        if let Some(at) = known.deleted_at() {
            // The coordinator that deleted it may have died before it removed the versions.
            handles.graphs.remove_deleted(name).await?;
            return Ok(QueryAnswer::GraphDeleted { name: name.clone(), at });
        }
        // The next round answers, with the time of the log.
        handles.graphs.put(name, &known, None).await?;
    }
    Ok(contended(name))
}

pub(super) async fn list(handles: &Handles, after: Option<&GraphName>, limit: u32) -> QueryAnswer {
    told(page(handles, after, limit.clamp(1, MAX_LISTED) as usize).await)
}

async fn page(handles: &Handles, after: Option<&GraphName>, limit: usize) -> Result<QueryAnswer, Error> {
    let mut graphs: Vec<GraphSummary> = Vec::new();
    let names = handles.graphs.keys().await?;
    for name in names.iter().filter(|name| after.is_none_or(|after| *name > after)) {
        let last = handles.graphs.latest(name).await?;
        let Some((version, found, graph)) = last.standing().next() else { continue };
        if graphs.len() == limit {
            let next = graphs.last().map(|graph| graph.name.clone());
            return Ok(QueryAnswer::Graphs { graphs, next });
        }
        graphs.push(summary(name, version, found, graph));
    }
    Ok(QueryAnswer::Graphs { graphs, next: None })
}

fn summary(name: &GraphName, version: u64, found: &Version, graph: &Value) -> GraphSummary {
    let definition = TaskGraph::deserialize(graph).ok();
    GraphSummary {
        name: name.clone(),
        version,
        at: found.at,
        bytes: found.bytes as u64,
        needs: definition.as_ref().map(TaskGraph::needed_inputs).unwrap_or_default(),
        uses: definition.as_ref().map(TaskGraph::used_names).unwrap_or_default(),
    }
}

pub(super) async fn show(handles: &Handles, name: &GraphName, version: Option<u64>) -> QueryAnswer {
    told(shown(handles, name, version).await)
}

async fn shown(handles: &Handles, name: &GraphName, version: Option<u64>) -> Result<QueryAnswer, Error> {
    let known = handles.graphs.one(name).await?;
    let hint = if known.number() == 0 { unknown(handles, name).await? } else { String::new() };
    match known.find(name, version, &hint) {
        Ok(found) => {
            let mut standing = known.standing();
            let found = standing.find(|(number, ..)| *number == found.version);
            let Some((number, version, graph)) = found else { return Ok(contended(name)) };
            Ok(QueryAnswer::Graph(Box::new(GraphShown {
                summary: summary(name, number, version, graph),
                versions: known.standing().map(|(number, ..)| number).collect(),
                graph: Value::clone(graph).into(),
            })))
        }
        Err((message, hint)) => {
            let path = if version.is_some() && known.deleted_at().is_none() && known.number() > 0 {
                "version"
            } else {
                "name"
            };
            Ok(refused(&Problems::one(path, message, hint)))
        }
    }
}
