//! An amend of a running graph: steps that have not begun are replaced, added or removed (G13).

use serde::{Deserialize, Serialize};

use super::Text;
use crate::{
    graph::TaskGraph,
    id::{CallId, ChildId},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Amend {
    /// The context of the graph, or of a group in it; absent: the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// The sender's own name for the amend: the same id and definition again changes nothing.
    pub id: CallId,
    /// How often the graph had been amended when this was made; another amend since then refuses it.
    pub revision: u32,
    /// The whole definition as it is to be. Steps that have begun, and the fields of the graph itself, are as they were.
    pub graph: TaskGraph,
    /// Who amends it; the event says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}
