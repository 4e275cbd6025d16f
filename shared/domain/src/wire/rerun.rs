//! A new run of a graph that takes over the successful results of an earlier run (G15).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    id::{ChildId, ContextKey, StepPath, TraceId},
    json::Json,
    money::{Tokens, Usd},
};

/// Runs the graph of an earlier run again, as a new run that does not pay again for successful
/// steps. Absent fields are as in the earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rerun {
    pub rerun: RerunOf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// Inputs of the graph that replace those of the earlier run. A step whose inputs differ from
    /// the earlier run is run again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<ContextKey, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    /// The subject that gets the acceptance or the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}

/// The earlier run, and the steps that are run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RerunOf {
    /// The earlier run. It must have ended.
    pub trace_id: TraceId,
    /// Steps that are run again although they succeeded, together with all steps after them: those
    /// that read their outputs, depend on them, or follow them in sequence. Absent: only the steps
    /// that did not succeed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<StepPath>,
}

/// The context of an earlier run whose result was taken over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TakenFrom {
    pub trace_id: TraceId,
    pub child_id: ChildId,
}
