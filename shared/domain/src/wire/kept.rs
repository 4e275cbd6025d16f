//! Graphs that are stored under names (G18): their versions, and the answers about them.

use serde::{Deserialize, Serialize};

use crate::{id::GraphName, json::Json, time::Timestamp};

/// A version of a stored graph, on `agent.kept.<name>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GraphVersion {
    /// Counted from 1; a deletion does not reset it.
    pub version: u64,
    /// The graph, including the graphs that its own steps name. `None`: the graph was deleted, with
    /// all earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Json>,
}

/// A stored graph in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GraphSummary {
    pub name: GraphName,
    pub version: u64,
    /// The time at which this version was stored.
    pub at: Timestamp,
    pub bytes: u64,
    /// The inputs that its `input_schema` requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// The versions of other graphs that its steps use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
}

/// One version of a stored graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GraphShown {
    #[serde(flatten)]
    pub summary: GraphSummary,
    /// The latest version, and all earlier ones that are still stored.
    pub versions: Vec<u64>,
    /// The graph itself, including the graphs that its steps name. `input_schema`, `output` and
    /// `output_schema` describe its inputs and its result.
    pub graph: Json,
}
