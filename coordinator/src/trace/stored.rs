//! The stored form of a trace: fields of JSON that an operator can read. Only what changed is written;
//! derived values are computed again when it is read.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shared::{
    ChildId, ContextKey, TraceId,
    limits::Settings,
    wire::{Checkpoint, RunSummary},
};

use super::{ContextIndex, ContextNode, Entry, Generation, Order, Trace, unsaved::Unsaved};

const HEAD: &str = "head";
const AGENTS: &str = "agents";
const PLANS: &str = "plans";
const OUTPUTS: &str = "outputs";

/// What to write so that the stored trace equals this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fields of the trace, by name.
    pub fields: Vec<(String, String)>,
    /// Values of the shared store; none deletes the value.
    pub values: Vec<(String, Option<String>)>,
}

/// A stored trace can't be read.
#[derive(Debug, thiserror::Error)]
#[error("field `{field}` of a stored trace can't be read: {reason}")]
pub struct Corrupt {
    field: String,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct Head {
    settings: Option<Arc<Settings>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tombstones: BTreeMap<ChildId, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancelled_before: Option<String>,
    #[serde(default, skip_serializing_if = "Generation::is_first")]
    generation: Generation,
}

fn context_field(index: u32) -> String {
    format!("c{index}")
}

fn order_field(index: u32) -> String {
    format!("o{index}")
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("states have string keys only")
}

impl Trace {
    /// The field that holds the root context.
    pub const ROOT_FIELD: &str = "c0";
    /// The field that holds the order of the root.
    pub const ROOT_ORDER_FIELD: &str = "o0";

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let unsaved = std::mem::take(&mut self.unsaved);
        let mut fields = Vec::with_capacity(unsaved.contexts.len() + unsaved.orders.len() + 4);
        if unsaved.head {
            let head = Head {
                settings: self.settings.clone(),
                tombstones: self.tombstones.clone(),
                cancelled_before: self.cancelled_before.clone(),
                generation: self.generation,
            };
            fields.push((HEAD.into(), json(&head)));
        }
        if unsaved.agents {
            fields.push((AGENTS.into(), json(&self.agents)));
        }
        if unsaved.plans {
            fields.push((PLANS.into(), json(&self.plans)));
        }
        if unsaved.outputs {
            fields.push((OUTPUTS.into(), json(&self.outputs)));
        }
        fields.extend(unsaved.orders.iter().map(|at| (order_field(at.0), json(&*self.node(*at).order))));
        fields.extend(unsaved.contexts.iter().map(|at| (context_field(at.0), json(self.node(*at)))));
        let values = unsaved.values.into_iter().map(|key| {
            let entry = self.store.get(&key).map(json);
            (key.as_str().to_owned(), entry)
        });
        Changes { fields, values: values.collect() }
    }

    /// A trace from all its fields and values; the inverse of all changes taken so far.
    pub fn from_stored(
        id: TraceId,
        version: u64,
        fields: &HashMap<String, String>,
        values: &HashMap<String, String>,
    ) -> Result<Self, Corrupt> {
        let mut trace = Trace { version, ..Trace::new(id) };
        if let Some(head) = read::<Head>(fields, HEAD)? {
            trace.settings = head.settings;
            trace.tombstones = head.tombstones;
            trace.cancelled_before = head.cancelled_before;
            trace.generation = head.generation;
        }
        trace.agents = read(fields, AGENTS)?.unwrap_or_default();
        trace.plans = read(fields, PLANS)?.unwrap_or_default();
        trace.outputs = read(fields, OUTPUTS)?.unwrap_or_default();
        for (key, text) in values {
            let entry: Entry = parse(key, text)?;
            let key = ContextKey::new(key)
                .map_err(|error| Corrupt { field: key.clone(), reason: error.to_string() })?;
            trace.store_bytes += entry.size_bytes;
            trace.store.insert(key, entry);
        }
        for index in 0.. {
            let Some(mut node) = read::<ContextNode>(fields, &context_field(index))? else { break };
            let field = order_field(index);
            let missing = || Corrupt { field: field.clone(), reason: "it is missing".into() };
            node.order = Arc::new(read::<Order>(fields, &field)?.ok_or_else(missing)?);
            trace.by_id.insert(node.id.clone(), ContextIndex(index));
            trace.contexts.push(node);
        }
        let count = u32::try_from(trace.contexts.len()).expect("max_contexts is a u32");
        for index in (0..count).map(ContextIndex) {
            let tickets = trace.node(index).waiting.iter().map(|hold| (hold.ticket, index));
            trace.line.extend(tickets.collect::<Vec<_>>());
            trace.retime(index);
        }
        trace.unsaved = Unsaved::default();
        Ok(trace)
    }

    /// A summary of a run, from the stored fields of its root.
    pub fn summary(id: TraceId, root: &str, order: &str) -> Result<RunSummary, Corrupt> {
        let node: ContextNode = parse(Self::ROOT_FIELD, root)?;
        let order: Order = parse(Self::ROOT_ORDER_FIELD, order)?;
        Ok(RunSummary {
            trace_id: id,
            status: node.status_word(),
            started_at: node.started_at,
            ended_at: node.end().map(|end| end.at),
            budget: node.budget.snapshot(),
            child_id: node.id,
            agent_id: order.agent_id,
            goal: order.goal,
        })
    }

    /// The root of a stored run and the journal it may still have to copy, from the stored fields of its root.
    pub fn stored_branch(root: &str, order: &str) -> Result<Option<(ChildId, Checkpoint)>, Corrupt> {
        let node: ContextNode = parse(Self::ROOT_FIELD, root)?;
        let order: Order = parse(Self::ROOT_ORDER_FIELD, order)?;
        Ok(order.branch_from.filter(|_| node.is_live()).map(|from| (node.id, from)))
    }

    /// Marks everything as changed, as after a rebuild.
    pub fn mark_all_changed(&mut self) {
        // Values that were deleted and not yet saved still have to be deleted.
        let mut values = std::mem::take(&mut self.unsaved.values);
        values.extend(self.store.keys().cloned());
        let all = || (0..u32::try_from(self.contexts.len()).unwrap_or(u32::MAX)).map(ContextIndex).collect();
        self.unsaved = Unsaved {
            head: true,
            agents: true,
            plans: true,
            outputs: true,
            contexts: all(),
            orders: all(),
            values,
        };
    }
}

fn read<T: DeserializeOwned>(fields: &HashMap<String, String>, field: &str) -> Result<Option<T>, Corrupt> {
    fields.get(field).map(|text| parse(field, text)).transpose()
}

fn parse<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, Corrupt> {
    serde_json::from_str(text).map_err(|error| Corrupt { field: field.into(), reason: error.to_string() })
}
