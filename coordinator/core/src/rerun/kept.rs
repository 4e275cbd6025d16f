//! The results of an earlier run that are kept for a new one, as plain values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use domain::{
    AgentId, ContextKey, Json, StepId, StepPath, TraceId, digest,
    wire::{self, Payload, StepStatus, TakenFrom},
};
use serde::{Deserialize, Serialize};

/// The results of an earlier run that a new one may take over.
#[derive(Debug, Clone, PartialEq)]
pub struct Earlier {
    pub rerun: Rerun,
    pub kept: Vec<(StepPlace, KeptResult)>,
    /// Agents that are named only by steps taken as a whole. They may have been deleted since, and
    /// are needed only if such a step reads other values now.
    pub spared: BTreeSet<AgentId>,
}

/// The run whose results this one takes over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "RerunSource")]
pub struct Rerun {
    pub trace_id: TraceId,
    /// The contexts to whose stored objects its results refer. These objects must not be removed
    /// before this run is (W6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<TakenFrom>,
}

/// The request of a rerun. Two submissions with the same request are one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RerunOrder {
    #[serde(flatten)]
    pub of: wire::RerunOf,
    /// The digest of the whole submission.
    pub request: String,
}

impl RerunOrder {
    /// `root` distinguishes requests of one caller that name no ids.
    pub fn new(asked: &wire::Rerun, root: &domain::ChildId) -> Self {
        let whole = wire::Rerun { reply_to: None, ..asked.clone() };
        let text = serde_json::to_string(&(whole, root)).expect("messages have string keys only");
        RerunOrder { of: asked.rerun.clone(), request: digest::short_sha256(text) }
    }
}

/// The path of the step with a result, which is unique in the graph: `write`; `write.4` for an item
/// of it. An amend may move the step.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct StepPlace(String);

impl fmt::Display for StepPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StepPlace {
    pub(crate) fn stored(text: &str) -> Self {
        StepPlace(text.to_owned())
    }

    pub(super) fn of(step: &StepPath, item: Option<u32>) -> Self {
        StepPlace(item.map_or_else(|| step.to_string(), |number| format!("{step}.{number}")))
    }

    /// The id of the step.
    pub(super) fn step(&self) -> &str {
        self.0.split_once('.').map_or(&self.0, |(step, _)| step)
    }

    /// Returns true if it is an item of this step.
    pub(crate) fn is_item_of(&self, step: &StepPlace) -> bool {
        self.0.strip_prefix(&step.0).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// A result of the earlier run that may be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeptResult {
    pub from: TakenFrom,
    /// True if the fallback produced the result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// Digests of the values that it read, by key, and of its element, if it is an item.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub read: BTreeMap<ContextKey, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The values that it wrote under its own id, by the rest of the key, and to other keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, Json>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<ContextKey, Json>,
    /// For a group: the ends of its steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<KeptStep>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeptStep {
    pub id: StepId,
    pub status: StepStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl KeptResult {
    /// Without the content that agents wrote (W6).
    pub(crate) fn without_content(self) -> Self {
        let (own, values) = (BTreeMap::new(), BTreeMap::new());
        let steps = self.steps.into_iter().map(|step| KeptStep { reason: None, ..step }).collect();
        KeptResult { result: None, own, values, steps, ..self }
    }
}

pub(super) fn digest_of(value: &Json) -> String {
    digest::short_sha256(value.value().to_string())
}
