//! Writes the changed parts of a trace.

use std::{fmt::Display, hash::Hash};

use serde::Serialize;

use super::{
    super::{
        ContextIndex, ContextNode, Phase, Status, Trace,
        rows::{Change, KeyedRows, Rows},
        spenders::Spenders,
        unsaved::{SavedHashes, UnsavedParts},
    },
    Changes, FORM, HEAD, Head, OUTPUTS, RERUN, SPENT_BY, StoredGraph, hash, json,
};

/// The fields to write.
#[derive(Default)]
struct Fields {
    changed: Vec<(String, Option<String>)>,
    /// The bytes of fields that are written for the first time, or may be.
    grown: usize,
    /// The bytes of fields that are known to have been stored before.
    shrunk: usize,
}

impl Fields {
    fn set(&mut self, name: String, value: &impl Serialize) {
        self.push(name, Some(json(value)));
    }

    fn push(&mut self, name: String, text: Option<String>) {
        self.grown += text.as_ref().map_or(0, |text| name.len() + text.len());
        self.changed.push((name, text));
    }

    /// Writes the field if it has changed since it was last saved.
    fn set_if_new(&mut self, name: impl FnOnce() -> String, value: &impl Serialize, saved: &mut u64) {
        let text = json(value);
        let hash = hash(&text);
        match std::mem::replace(saved, hash) {
            0 => self.push(name(), Some(text)),
            before if before != hash => self.changed.push((name(), Some(text))),
            _ => {}
        }
    }

    /// Writes a part that may be missing. Nothing is stored before the first one.
    fn set_if_any(&mut self, name: impl FnOnce() -> String, value: Option<&impl Serialize>, saved: &mut u64) {
        if value.is_some() || *saved != 0 {
            self.set_if_new(name, &value, saved);
        }
    }

    fn rows<T: Serialize>(&mut self, prefix: String, rows: &mut Rows<T>) {
        for (number, row) in rows.take_changed() {
            self.push(format!("{prefix}.{number}"), row.map(json));
        }
    }

    fn entries<K, V>(&mut self, prefix: String, entries: &mut KeyedRows<K, V>)
    where
        K: Clone + Ord + Hash + Display,
        V: Serialize,
    {
        for Change { key, stored_bytes, entry } in entries.take_changed() {
            let name = format!("{prefix}.{key}");
            self.shrunk += stored_bytes.map_or(0, |bytes| name.len() + bytes);
            self.push(name, entry.map(json));
        }
    }
}

impl Trace {
    /// The approximate size of the trace in the store, in bytes: the bytes read and written since,
    /// without deleted rows.
    pub fn stored_bytes(&self) -> usize {
        self.unsaved.stored_bytes
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let (saved, stored_bytes) = (std::mem::take(&mut self.unsaved.saved), self.unsaved.stored_bytes);
        let index = self.take_index();
        let indexed = std::mem::take(&mut self.unsaved.index);
        let saved_spent_by = self.unsaved.saved_spent_by;
        let kept =
            UnsavedParts { saved, saved_spent_by, stored_bytes, index: indexed, ..UnsavedParts::default() };
        let unsaved = std::mem::replace(&mut self.unsaved, kept);
        let mut fields = Fields::default();
        if unsaved.head {
            let head = Head {
                form: FORM,
                settings: self.settings.clone(),
                cancelled_before: self.cancelled_before.clone(),
                generation: self.generation,
                traced: self.traced.clone(),
            };
            fields.set(HEAD.into(), &head);
        }
        if unsaved.made {
            fields.set(Self::MADE_FIELD.into(), &self.made);
        }
        if let (true, Some(copied_at)) = (unsaved.copied, self.copied_at) {
            fields.set(Self::COPIED_FIELD.into(), &copied_at);
        }
        if unsaved.outputs {
            fields.set(OUTPUTS.into(), &self.outputs);
        }
        if unsaved.spent_by {
            fields.set_if_new(|| SPENT_BY.into(), &self.spent_by, &mut self.unsaved.saved_spent_by);
        }
        if unsaved.rerun {
            fields.set(RERUN.into(), &self.rerun);
        }
        fields.entries("u".into(), &mut self.kept);
        fields.entries("h".into(), &mut self.undo_values.values);
        for id in &unsaved.agents {
            fields.set(format!("a{id}"), &self.agents[id]);
            if let Some(version) = self.agent_versions.get(id) {
                fields.set(format!("z{id}"), version);
            }
        }
        unsaved.plans.iter().for_each(|at| fields.set(format!("p{at}"), &self.plans[*at as usize]));
        unsaved.tombstones.iter().for_each(|id| fields.set(format!("t{id}"), &self.tombstones[id]));
        for at in &unsaved.orders {
            fields.set(format!("o{}", at.0), &*self.node(*at).spec);
        }
        for at in &unsaved.definitions {
            let node = self.node(*at);
            let inherits = node.parent.is_some_and(|parent| self.node(parent).limits == node.limits);
            let limits = Some(&node.limits).filter(|_| !inherits);
            let graph = node.graph.as_deref();
            let of_graph =
                graph.map(|run| StoredGraph { plan: run.plan, group: run.group, begun: run.begun });
            fields.set(format!("d{}", at.0), &(node.parent, &node.identity, &node.terms, limits, of_graph));
            if let Some(run) = graph.filter(|run| run.plan != run.admitted) {
                fields.set(format!("v{}", at.0), &(run.admitted, &run.numbers, &run.amends));
            }
        }
        self.unsaved.saved.resize_with(self.contexts.len(), SavedHashes::default);
        for ContextIndex(at) in unsaved.contexts {
            let saved = &mut self.unsaved.saved[at as usize];
            self.contexts[at as usize].changes(at, saved, &mut fields);
        }
        let values = unsaved.values.into_iter().map(|key| {
            let entry = self.store.get(&key).map(json);
            (key.as_str().to_owned(), entry)
        });
        let values: Vec<(String, Option<String>)> = values.collect();
        let of_values =
            |(name, text): &(String, Option<String>)| name.len() + text.as_ref().map_or(0, String::len);
        let grown = fields.grown + values.iter().map(of_values).sum::<usize>();
        self.unsaved.stored_bytes = (stored_bytes + grown).saturating_sub(fields.shrunk);
        debug_assert!(fields.changed.iter().all(|(name, _)| !is_of_store(name)), "a name of the store's own");
        Changes { fields: fields.changed, values, index }
    }

    /// Its new entries in the index of runs, if they changed.
    fn take_index(&mut self) -> Option<String> {
        if !self.unsaved.contexts.contains(&ContextIndex(0)) {
            return None;
        }
        let index = self.index_text()?;
        (index != self.unsaved.index).then(|| {
            self.unsaved.index.clone_from(&index);
            index
        })
    }

    /// Marks everything as changed, as after a rebuild: the next write then replaces the whole
    /// stored trace.
    pub fn mark_all_changed(&mut self) {
        let all = || (0..u32::try_from(self.contexts.len()).unwrap_or(u32::MAX)).map(ContextIndex).collect();
        self.unsaved = UnsavedParts {
            head: true,
            made: true,
            copied: true,
            outputs: true,
            rerun: self.rerun.is_some(),
            spent_by: self.spent_by != Spenders::default(),
            agents: self.agents.keys().cloned().collect(),
            plans: (0..u32::try_from(self.plans.len()).unwrap_or(u32::MAX)).collect(),
            tombstones: self.tombstones.keys().cloned().collect(),
            contexts: all(),
            definitions: all(),
            orders: all(),
            values: self.store.keys().cloned().collect(),
            saved: Vec::new(),
            saved_spent_by: 0,
            stored_bytes: 0,
            index: String::new(),
        };
        self.kept.mark_all();
        self.undo_values.values.mark_all();
        self.contexts.iter_mut().for_each(ContextNode::mark_all_changed);
    }
}

/// Returns true if the store itself uses a field of this name: the version, and the outboxes.
fn is_of_store(name: &str) -> bool {
    name == "v" || name.starts_with('x')
}

impl ContextNode {
    fn changes(&mut self, at: u32, saved: &mut SavedHashes, fields: &mut Fields) {
        fields.set_if_new(|| format!("c{at}"), &(&self.status, &self.lifecycle), &mut saved.lifecycle);
        fields.set_if_new(|| format!("l{at}"), &self.budget.ceilings, &mut saved.ceilings);
        fields.set_if_new(|| format!("b{at}"), &self.budget, &mut saved.sums);
        match &self.status {
            Status::Working(Phase::Waiting { children, .. }) => {
                fields.set_if_new(|| format!("w{at}"), children, &mut saved.waits_for);
            }
            Status::Ended(end) => {
                fields.set_if_new(|| format!("f{at}"), &end.details, &mut saved.end);
            }
            Status::Submitted { .. }
            | Status::Working(_)
            | Status::InputRequired { .. }
            | Status::Paused { .. } => {}
        }
        fields.set_if_any(|| format!("h{at}"), self.undo.as_ref(), &mut saved.undo);
        let (kept, folded) = self.calls.stored_mut();
        fields.entries(format!("k{at}"), kept);
        fields.entries(format!("g{at}"), folded);
        fields.entries(format!("m{at}"), &mut self.charges);
        fields.rows(format!("n{at}"), &mut self.attempts);
        fields.rows(format!("q{at}"), &mut self.answers);
        fields.rows(format!("i{at}"), &mut self.told);
        fields.rows(format!("r{at}"), &mut self.restores);
        fields.rows(format!("e{at}"), &mut self.notes);
        fields.rows(format!("y{at}"), &mut self.disputes);
        fields.rows(format!("T{at}"), &mut self.marks);
        if let Some(run) = &mut self.graph {
            fields.set_if_new(|| format!("G{at}"), &run.progress, &mut saved.graph);
            fields.set_if_any(|| format!("E{at}"), run.ending.as_ref(), &mut saved.ending);
            fields.entries(format!("j{at}"), &mut run.lists);
            fields.rows(format!("s{at}"), &mut run.steps);
        }
    }

    fn mark_all_changed(&mut self) {
        self.calls.mark_all();
        self.charges.mark_all();
        self.attempts.mark_all();
        self.answers.mark_all();
        self.told.mark_all();
        self.restores.mark_all();
        self.notes.mark_all();
        self.disputes.mark_all();
        self.marks.mark_all();
        if let Some(run) = &mut self.graph {
            run.steps.mark_all();
            run.lists.mark_all();
        }
    }
}
