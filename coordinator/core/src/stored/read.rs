//! Reads a stored trace, and computes the parts that are not stored.

use std::{collections::HashMap, panic::catch_unwind, sync::Arc};

use domain::{
    AgentId, AgentProfile, Amount, CallId, ChildId, ContextKey, Json, Limits, Timestamp, TraceId,
    graph::Plan,
    wire::{Checkpoint, Dispute, GivenAnswer, RestorePoint, RunSummary, TakenFrom},
};
use serde::de::DeserializeOwned;

use super::{
    super::{
        Attempt, Budget, Call, Calls, ContextIndex, ContextNode, ContextSpec, ContextTerms, Entry, GraphRun,
        Identity, Lifecycle, Mark, Message, Phase, Rerun, Status, StepPlace, StepRun, Trace,
        folded::FoldedCalls,
        rows::{KeyedRows, Rows},
        spenders::Spenders,
        undo_values::UndoValues,
        unsaved::SavedHashes,
    },
    Corrupt, FORM, HEAD, Head, HeadForm, OUTPUTS, RERUN, SPENT_BY, StoredGraph, hash, parse, read, required,
};

/// The parts of a context in its field `d`. A context without limits has those of its parent.
type Definition = (Option<ContextIndex>, Identity, ContextTerms, Option<Arc<Limits>>, Option<StoredGraph>);

impl Trace {
    /// Builds a trace from all its fields and values; the inverse of all changes taken so far.
    /// Fields that contradict each other are rejected like a field that can't be read.
    pub fn from_stored(
        id: TraceId,
        version: u64,
        fields: &HashMap<String, String>,
        values: &HashMap<String, String>,
    ) -> Result<Self, Corrupt> {
        let read = catch_unwind(|| Self::read_stored(id, version, fields, values));
        let reason = "it contradicts other fields: computing from them panicked";
        read.unwrap_or_else(|_| Err(Corrupt { field: HEAD.into(), reason: reason.into() }))
    }

    fn read_stored(
        id: TraceId,
        version: u64,
        fields: &HashMap<String, String>,
        values: &HashMap<String, String>,
    ) -> Result<Self, Corrupt> {
        let bytes = |stored: &HashMap<String, String>| {
            stored.iter().map(|(name, text)| name.len() + text.len()).sum::<usize>()
        };
        let mut trace = Trace { version, ..Trace::new(id) };
        trace.unsaved.stored_bytes = bytes(fields) + bytes(values);
        check_form(fields)?;
        if let Some(head) = read::<Head>(fields, HEAD)? {
            trace.settings = head.settings;
            trace.cancelled_before = head.cancelled_before;
            trace.generation = head.generation;
            trace.traced = head.traced;
        }
        trace.unsaved.index = fields.get(Self::INDEX_FIELD).cloned().unwrap_or_default();
        trace.made = read(fields, Self::MADE_FIELD)?.unwrap_or_default();
        trace.copied_at = read(fields, Self::COPIED_FIELD)?;
        trace.outputs = read(fields, OUTPUTS)?.unwrap_or_default();
        trace.rerun = read(fields, RERUN)?;
        trace.spent_by = read(fields, SPENT_BY)?.unwrap_or_default();
        trace.unsaved.saved_spent_by = fields.get(SPENT_BY).map_or(0, |text| hash(text));
        for (key, text) in values {
            let entry: Entry = parse(key, text)?;
            let key = ContextKey::new(key)
                .map_err(|error| Corrupt { field: key.clone(), reason: error.to_string() })?;
            trace.store_bytes += entry.size_bytes;
            trace.store.insert(key, entry);
        }
        for index in 0.. {
            let Some(plan) = read::<Arc<Plan>>(fields, &format!("p{index}"))? else { break };
            trace.plans.push(plan);
        }
        for index in 0.. {
            let Some(definition) = read::<Definition>(fields, &format!("d{index}"))? else { break };
            trace.add_stored(index, definition, fields)?;
        }
        trace.add_rows(fields)?;
        trace.derive();
        Ok(trace)
    }

    /// Adds the next context, without its lists.
    fn add_stored(
        &mut self,
        index: u32,
        definition: Definition,
        fields: &HashMap<String, String>,
    ) -> Result<(), Corrupt> {
        let corrupt = |reason: &str| Corrupt { field: format!("d{index}"), reason: reason.to_owned() };
        let field = |prefix: char| format!("{prefix}{index}");
        let (parent, identity, terms, limits, of_graph) = definition;
        let above = parent.map(|ContextIndex(parent)| self.contexts.get(parent as usize));
        let above = above.map(|above| above.ok_or_else(|| corrupt("its parent is missing"))).transpose()?;
        let limits = limits.or_else(|| above.map(|above| above.limits.clone()));
        let limits = limits.ok_or_else(|| corrupt("its limits are missing"))?;
        let graph = of_graph.map(|StoredGraph { plan: number, group, begun }| {
            let plan = self.plans.get(number as usize).ok_or_else(|| corrupt("its plan is missing"))?;
            let mut run = GraphRun::new(number, group, plan.group(group), identity.started_at, begun);
            run.progress = required(fields, &field('G'))?;
            run.ending = read::<Option<_>>(fields, &field('E'))?.flatten();
            if let Some(amended) = read(fields, &field('v'))? {
                (run.admitted, run.numbers, run.amends) = amended;
            }
            Ok(Box::new(run))
        });
        let spec: Arc<ContextSpec> = required(fields, &field('o'))?;
        let (mut status, lifecycle): (Status, Lifecycle) = required(fields, &field('c'))?;
        if let Status::Working(Phase::Waiting { children, .. }) = &mut status {
            *children = read(fields, &field('w'))?.unwrap_or_default();
        } else if let Status::Ended(end) = &mut status {
            end.details = read(fields, &field('f'))?.unwrap_or_default();
        }
        let mut node = ContextNode::new(spec, parent, identity, terms, limits, status, lifecycle);
        node.budget = budget(fields, index)?;
        node.graph = graph.transpose()?;
        node.undo = read::<Option<_>>(fields, &field('h'))?.flatten();
        self.by_id.insert(node.id.clone(), ContextIndex(index));
        self.contexts.push(node);
        let hashed = |prefix: char| fields.get(&format!("{prefix}{index}")).map_or(0, |text| hash(text));
        self.unsaved.saved.push(SavedHashes {
            lifecycle: hashed('c'),
            waits_for: hashed('w'),
            end: hashed('f'),
            ceilings: hashed('l'),
            sums: hashed('b'),
            undo: hashed('h'),
            graph: hashed('G'),
            ending: hashed('E'),
        });
        Ok(())
    }

    /// Adds profiles, cancels, and the lists of contexts.
    fn add_rows(&mut self, fields: &HashMap<String, String>) -> Result<(), Corrupt> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for (name, text) in fields {
            let corrupt = |reason: &dyn ToString| Corrupt { field: name.clone(), reason: reason.to_string() };
            if let Some(row) = Row::read(name, text) {
                rows.push(row);
            } else if let Some(agent) = name.strip_prefix('a') {
                let agent = AgentId::new(agent).map_err(|error| corrupt(&error))?;
                self.agents.insert(agent, parse::<Arc<AgentProfile>>(name, text)?);
            } else if let Some(agent) = name.strip_prefix('z') {
                let agent = AgentId::new(agent).map_err(|error| corrupt(&error))?;
                self.agent_versions.insert(agent, parse(name, text)?);
            } else if let Some(child) = name.strip_prefix('t') {
                let child = ChildId::new(child).map_err(|error| corrupt(&error))?;
                self.tombstones.insert(child, parse(name, text)?);
            }
        }
        let kept = fields.iter().filter_map(|(name, text)| Some((name.strip_prefix("u.")?, name, text)));
        let kept = kept.map(|(place, name, text)| Ok((StepPlace::stored(place), parse(name, text)?)));
        self.kept = KeyedRows::stored(kept.collect::<Result<_, Corrupt>>()?);
        let read = fields.iter().filter_map(|(name, text)| Some((name.strip_prefix("h.")?, name, text)));
        let read = read.map(|(digest, name, text)| Ok((digest.to_owned(), parse(name, text)?)));
        self.undo_values = UndoValues::stored(read.collect::<Result<_, Corrupt>>()?);
        rows.sort_unstable_by_key(|row| (row.kind, row.context, row.number));
        let mut collected: HashMap<u32, Lists> = HashMap::new();
        for row in rows {
            collected.entry(row.context).or_default().add(&row)?;
        }
        for (index, lists) in collected {
            if let Some(node) = self.contexts.get_mut(index as usize) {
                lists.put(node);
            }
        }
        Ok(())
    }

    /// Computes the parts that are not stored.
    fn derive(&mut self) {
        for index in (0..self.contexts.len()).map(|place| ContextIndex(u32::try_from(place).expect("a u32")))
        {
            let node = &self.contexts[index.0 as usize];
            let (parent, step, is_live) = (node.parent, node.identity.step, node.is_live());
            let undoes = node.identity.undoes;
            if let Some(undo) = undoes.and_then(|ContextIndex(of)| self.contexts[of as usize].undo.as_mut()) {
                undo.by = Some(index);
            }
            let Some(ContextIndex(parent)) = parent else { continue };
            let parent = &mut self.contexts[parent as usize];
            parent.children.push(index);
            parent.live_children += u32::from(is_live);
            if let (Some(of), Some(run)) = (step, &mut parent.graph) {
                run.steps.unstored_mut(run.place(of.step)).contexts.push(index);
            }
        }
        for index in (0..self.contexts.len()).map(|place| ContextIndex(u32::try_from(place).expect("a u32")))
        {
            let tickets = self.node(index).lifecycle.waiting.iter().map(|hold| (hold.ticket, index));
            self.line.extend(tickets.collect::<Vec<_>>());
            self.count_inputs(index);
            if self.node(index).is_undoing() {
                let undos = self.undoable(index);
                if let Some(run) = &mut self.node_mut(index).graph {
                    run.undos = undos;
                }
                self.count_undoing(index, true);
            }
            self.retime(index);
        }
        self.content_bytes = self.recounted_bytes();
        self.unsaved.contexts.clear();
    }

    /// The summary of a run, from [`Trace::SUMMARY_FIELDS`].
    pub fn summary(id: TraceId, fields: &HashMap<String, String>) -> Result<Option<RunSummary>, Corrupt> {
        if fields.is_empty() {
            return Ok(None);
        }
        let (_, identity, ..): Definition = required(fields, "d0")?;
        let spec: ContextSpec = required(fields, "o0")?;
        let (status, lifecycle): (Status, Lifecycle) = required(fields, "c0")?;
        let questions = lifecycle.questions;
        Ok(Some(RunSummary {
            trace_id: id,
            status: status.shown(questions),
            questions,
            started_at: identity.started_at,
            ended_at: status.end().map(|end| end.at),
            budget: budget(fields, 0)?.snapshot(),
            child_id: spec.child_id,
            agent_id: spec.agent_id,
            goal: spec.goal,
            thread_id: identity.thread_id,
            labels: spec.labels,
            waiting_for_human: lifecycle.waiting_for_humans > 0,
            spent_by: read::<Spenders>(fields, SPENT_BY)?.unwrap_or_default().told(),
        }))
    }

    /// The time of the last copy of a stored trace in its log, with `true`; without a copy, the
    /// time when the trace began, with `false`. It is read from [`Trace::COPIED_FIELD`] and the
    /// first of [`Trace::SUMMARY_FIELDS`].
    pub fn begins_at(fields: &HashMap<String, String>) -> Result<Option<(Timestamp, bool)>, Corrupt> {
        let copied = read(fields, Self::COPIED_FIELD)?;
        let began =
            || Ok(read::<Definition>(fields, "d0")?.map(|(_, identity, ..)| (identity.started_at, false)));
        copied.map_or_else(began, |at| Ok(Some((at, true))))
    }

    /// The field with the run from which a stored run takes results.
    pub const RERUN_FIELD: &str = RERUN;

    /// The contexts of other runs to whose objects the results of a stored run refer, from
    /// [`Trace::RERUN_FIELD`].
    pub fn stored_needs(fields: &HashMap<String, String>) -> Result<Vec<TakenFrom>, Corrupt> {
        Ok(read::<Rerun>(fields, RERUN)?.map(|rerun| rerun.needs).unwrap_or_default())
    }

    /// The root of a stored run and the journal that it may still have to copy, from
    /// [`Trace::SUMMARY_FIELDS`].
    pub fn stored_branch(fields: &HashMap<String, String>) -> Result<Option<(ChildId, Checkpoint)>, Corrupt> {
        if fields.is_empty() {
            return Ok(None);
        }
        let spec: ContextSpec = required(fields, "o0")?;
        let (status, _): (Status, Lifecycle) = required(fields, "c0")?;
        Ok(spec.branch_from.filter(|_| status.end().is_none()).map(|from| (spec.child_id, from)))
    }
}

/// Rejects a trace in another form. The number is read before the rest of the head, because another
/// form may have another head.
fn check_form(fields: &HashMap<String, String>) -> Result<(), Corrupt> {
    match read::<HeadForm>(fields, HEAD)? {
        Some(HeadForm { form }) if form != FORM => {
            let which = if form < FORM { "an earlier" } else { "a later" };
            let reason = format!(
                "it has form {form}, this program reads form {FORM}; hint: {which} build of Trellis wrote it and can read it"
            );
            Err(Corrupt { field: HEAD.into(), reason })
        }
        Some(_) | None => Ok(()),
    }
}

fn budget(fields: &HashMap<String, String>, index: u32) -> Result<Budget, Corrupt> {
    let sums: Budget = required(fields, &format!("b{index}"))?;
    Ok(Budget { ceilings: required(fields, &format!("l{index}"))?, ..sums })
}

/// A field that is one entry of a list.
struct Row<'a> {
    kind: char,
    context: u32,
    key: &'a str,
    /// The key, if it is a number.
    number: Option<u32>,
    name: &'a str,
    text: &'a str,
}

impl<'a> Row<'a> {
    fn read(name: &'a str, text: &'a str) -> Option<Self> {
        let kind = name.chars().next().filter(|kind| "kgmnqireysjT".contains(*kind))?;
        let (context, key) = name[1..].split_once('.')?;
        Some(Row { kind, context: context.parse().ok()?, key, number: key.parse().ok(), name, text })
    }

    fn value<T: DeserializeOwned>(&self) -> Result<T, Corrupt> {
        parse(self.name, self.text)
    }
}

/// The lists of one context.
#[derive(Default)]
struct Lists {
    calls: HashMap<CallId, Call>,
    folded: HashMap<u32, FoldedCalls>,
    charges: HashMap<CallId, Amount>,
    attempts: Vec<Attempt>,
    answers: Vec<GivenAnswer>,
    told: Vec<Message>,
    restores: Vec<RestorePoint>,
    notes: Vec<String>,
    marks: Vec<Mark>,
    disputes: Vec<Dispute>,
    items: HashMap<u32, Json>,
    steps: Vec<(u32, StepRun)>,
}

impl Lists {
    /// Adds an entry. The entries of a list arrive in order.
    fn add(&mut self, row: &Row<'_>) -> Result<(), Corrupt> {
        let corrupt = |reason: &dyn ToString| Corrupt { field: row.name.into(), reason: reason.to_string() };
        let call = || CallId::new(row.key).map_err(|error| corrupt(&error));
        let number = || row.number.ok_or_else(|| corrupt(&"its name ends with no number"));
        match row.kind {
            'k' => drop(self.calls.insert(call()?, row.value()?)),
            'g' => drop(self.folded.insert(number()?, row.value()?)),
            'm' => drop(self.charges.insert(call()?, row.value()?)),
            'n' => next(&mut self.attempts, row)?,
            'q' => next(&mut self.answers, row)?,
            'i' => next(&mut self.told, row)?,
            'r' => next(&mut self.restores, row)?,
            'e' => next(&mut self.notes, row)?,
            'y' => next(&mut self.disputes, row)?,
            'T' => next(&mut self.marks, row)?,
            'j' => drop(self.items.insert(number()?, row.value()?)),
            _ => self.steps.push((number()?, row.value()?)),
        }
        Ok(())
    }

    fn put(self, node: &mut ContextNode) {
        node.charges = KeyedRows::stored(self.charges);
        node.attempts = Rows::stored(self.attempts);
        node.answers = Rows::stored(self.answers);
        node.told = Rows::stored(self.told);
        node.restores = Rows::stored(self.restores);
        node.notes = Rows::stored(self.notes);
        node.marks = Rows::stored(self.marks);
        node.calls = Calls::stored(self.calls, self.folded, &self.disputes);
        node.disputes = Rows::stored(self.disputes);
        if let Some(run) = &mut node.graph {
            run.lists = KeyedRows::stored(self.items);
            self.steps.into_iter().for_each(|(number, step)| run.put_stored(number, step));
        }
    }
}

/// Adds the next entry of a list.
fn next<T: DeserializeOwned>(list: &mut Vec<T>, row: &Row<'_>) -> Result<(), Corrupt> {
    if row.number.is_none_or(|number| number as usize != list.len()) {
        return Err(Corrupt { field: row.name.into(), reason: "an entry before it is missing".into() });
    }
    list.push(row.value()?);
    Ok(())
}
