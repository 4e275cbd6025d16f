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
    /// The sender's own id for the amend. A second amend with the same id and definition changes
    /// nothing.
    pub id: CallId,
    /// The number of amends of the graph when this one was made. If another amend came in between,
    /// this one is refused.
    pub revision: u32,
    /// The whole new definition. Steps that have begun and the fields of the graph itself must be
    /// unchanged.
    pub graph: TaskGraph,
    /// The name of the sender; the event has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}
