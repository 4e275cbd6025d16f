//! The stored form of a trace: fields of JSON that an operator can read. Only what changed is written;
//! what follows from other fields is computed again when it is read.
//!
//! | field | holds |
//! |---|---|
//! | `head` `made` | settings, generation, form; when the last commit was made |
//! | `a<agent>` `p<number>` `t<child>` `outputs` | profiles, plans, cancels that came early, the shared store at the end |
//! | `d<n>` `o<n>` | what context `n` was admitted with; its order |
//! | `c<n>` `w<n>` `f<n>` | its status and counters; the children it waits for; its result |
//! | `l<n>` `b<n>` | its ceilings; its sums |
//! | `k<n>.<call>` `m<n>.<key>` | its calls; its charges |
//! | `n<n>.<i>` `q<n>.<i>` `r<n>.<i>` `e<n>.<i>` `y<n>.<i>` | its attempts, answers, restores, notes, disputes |
//! | `s<n>.<step>` `j<n>.<step>` | the steps of its graph; their lists of items |

mod context;

use std::{
    collections::HashMap,
    fmt::Display,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shared::{
    AgentId, AgentProfile, CallId, ChildId, ContextKey, Json, TraceId,
    graph::Plan,
    limits::Settings,
    wire::{Checkpoint, RunSummary},
};

use self::context::{Ceilings, Definition, Left, Running, StoredStep, Sums};
use super::{
    ContextIndex, ContextNode, Entry, GraphRun, Order, Phase, Status, Trace,
    rows::{Keyed, Rows},
    unsaved::{Saved, Unsaved},
};

const HEAD: &str = "head";
const OUTPUTS: &str = "outputs";
/// The number of this stored form. A trace in another form is rebuilt from its event log.
const FORM: u32 = 2;

/// What to write so that the stored trace equals this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fields of the trace, by name; none deletes the field.
    pub fields: Vec<(String, Option<String>)>,
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
    #[serde(default)]
    form: u32,
    settings: Option<Arc<Settings>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancelled_before: Option<String>,
    #[serde(default)]
    generation: u32,
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("states have string keys only")
}

/// Fields to write.
#[derive(Default)]
struct Fields {
    changed: Vec<(String, Option<String>)>,
    /// The bytes of those that are written for the first time, or may be.
    grown: usize,
}

impl Fields {
    fn set(&mut self, name: String, value: &impl Serialize) {
        self.push(name, Some(json(value)));
    }

    fn push(&mut self, name: String, text: Option<String>) {
        self.grown += name.len() + text.as_ref().map_or(0, String::len);
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

    fn rows<T, S: Serialize>(&mut self, prefix: String, rows: &mut Rows<T>, stored: impl Fn(&T) -> S) {
        for (number, row) in rows.take_changed() {
            self.push(format!("{prefix}.{number}"), row.map(|row| json(&stored(row))));
        }
    }

    fn entries<K, V>(&mut self, prefix: String, entries: &mut Keyed<K, V>)
    where
        K: Clone + Ord + Hash + Display,
        V: Serialize,
    {
        for (key, entry) in entries.take_changed() {
            self.push(format!("{prefix}.{key}"), Some(json(entry)));
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    // 0 stands for what was never saved.
    hasher.finish().max(1)
}

impl Trace {
    /// The field that says when the last commit was made.
    pub const MADE_FIELD: &str = "made";
    /// The fields that a summary of a run is made from.
    pub const SUMMARY_FIELDS: [&str; 5] = ["d0", "o0", "c0", "l0", "b0"];

    /// About the bytes that it takes in the store: what was read, and all that was written since.
    pub fn stored_bytes(&self) -> usize {
        self.unsaved.stored_bytes
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let (saved, stored_bytes) = (std::mem::take(&mut self.unsaved.saved), self.unsaved.stored_bytes);
        let kept = Unsaved { saved, stored_bytes, ..Unsaved::default() };
        let unsaved = std::mem::replace(&mut self.unsaved, kept);
        let mut fields = Fields::default();
        if unsaved.head {
            let head = Head {
                form: FORM,
                settings: self.settings.clone(),
                cancelled_before: self.cancelled_before.clone(),
                generation: self.generation,
            };
            fields.set(HEAD.into(), &head);
        }
        if unsaved.made {
            fields.set(Self::MADE_FIELD.into(), &self.made);
        }
        if unsaved.outputs {
            fields.set(OUTPUTS.into(), &self.outputs);
        }
        unsaved.agents.iter().for_each(|id| fields.set(format!("a{id}"), &self.agents[id]));
        unsaved.plans.iter().for_each(|at| fields.set(format!("p{at}"), &self.plans[*at as usize]));
        unsaved.tombstones.iter().for_each(|id| fields.set(format!("t{id}"), &self.tombstones[id]));
        for at in &unsaved.orders {
            fields.set(format!("o{}", at.0), &*self.node(*at).order);
        }
        for at in &unsaved.definitions {
            let node = self.node(*at);
            fields.set(
                format!("d{}", at.0),
                &Definition::of(node, node.parent.map(|parent| self.node(parent))),
            );
        }
        self.unsaved.saved.resize_with(self.contexts.len(), Saved::default);
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
        self.unsaved.stored_bytes += fields.grown + values.iter().map(of_values).sum::<usize>();
        Changes { fields: fields.changed, values }
    }

    /// A trace from all its fields and values; the inverse of all changes taken so far.
    pub fn from_stored(
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
        let head = read::<Head>(fields, HEAD)?;
        if let Some(Head { form, .. }) = head
            && form != FORM
        {
            let reason = format!("it has form {form}, this program reads form {FORM}");
            return Err(Corrupt { field: HEAD.into(), reason });
        }
        if let Some(head) = head {
            trace.settings = head.settings;
            trace.cancelled_before = head.cancelled_before;
            trace.generation = head.generation;
        }
        trace.made = read(fields, Self::MADE_FIELD)?.unwrap_or_default();
        trace.outputs = read(fields, OUTPUTS)?.unwrap_or_default();
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
        let parent = definition.parent.map(|parent| self.contexts.get(parent.0 as usize));
        let parent =
            parent.map(|parent| parent.ok_or_else(|| corrupt("its parent is missing"))).transpose()?;
        let limits = definition.limits.clone().or_else(|| parent.map(|parent| parent.limits.clone()));
        let limits = limits.ok_or_else(|| corrupt("its limits are missing"))?;
        let graph = definition.graph.map(|of| {
            let plan = self.plans.get(of.plan as usize).ok_or_else(|| corrupt("its plan is missing"))?;
            let group = plan.group(of.group);
            Ok(Box::new(GraphRun::new(of.plan, of.group, group, definition.started_at, of.begun)))
        });
        let node = ContextNode::from_stored(definition, limits, graph.transpose()?, index, fields)?;
        self.by_id.insert(node.id.clone(), ContextIndex(index));
        self.contexts.push(node);
        let hashed = |prefix: char| fields.get(&format!("{prefix}{index}")).map_or(0, |text| hash(text));
        self.unsaved.saved.push(Saved {
            running: hashed('c'),
            waits_for: hashed('w'),
            left: hashed('f'),
            ceilings: hashed('l'),
            sums: hashed('b'),
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
            } else if let Some(child) = name.strip_prefix('t') {
                let child = ChildId::new(child).map_err(|error| corrupt(&error))?;
                self.tombstones.insert(child, parse(name, text)?);
            }
        }
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

    /// Computes what is not stored.
    fn derive(&mut self) {
        for index in (0..self.contexts.len()).map(|place| ContextIndex(u32::try_from(place).expect("a u32")))
        {
            let node = &mut self.contexts[index.0 as usize];
            let open = node.calls.values().filter(|call| call.state == super::CallState::Held);
            node.open_calls = u32::try_from(open.count()).unwrap_or(u32::MAX);
            let (parent, step, is_live) = (node.parent, node.step, node.is_live());
            let Some(ContextIndex(parent)) = parent else { continue };
            let parent = &mut self.contexts[parent as usize];
            parent.children.push(index);
            parent.live_children += u32::from(is_live);
            if let (Some(of), Some(run)) = (step, &mut parent.graph) {
                run.steps.unstored_mut(of.step).contexts.push(index);
            }
        }
        for index in (0..self.contexts.len()).map(|place| ContextIndex(u32::try_from(place).expect("a u32")))
        {
            let tickets = self.node(index).waiting.iter().map(|hold| (hold.ticket, index));
            self.line.extend(tickets.collect::<Vec<_>>());
            self.retime(index);
        }
        self.unsaved.contexts.clear();
    }

    /// A summary of a run, from [`Trace::SUMMARY_FIELDS`].
    pub fn summary(id: TraceId, fields: &HashMap<String, String>) -> Result<Option<RunSummary>, Corrupt> {
        if fields.is_empty() {
            return Ok(None);
        }
        let definition: Definition = required(fields, "d0")?;
        let order: Order = required(fields, "o0")?;
        let status = required::<Running>(fields, "c0")?.status.with(Vec::new(), None);
        let budget = required::<Ceilings>(fields, "l0")?.with(required::<Sums>(fields, "b0")?);
        Ok(Some(RunSummary {
            trace_id: id,
            status: status.word(),
            started_at: definition.started_at,
            ended_at: status.end().map(|end| end.at),
            budget: budget.snapshot(),
            child_id: definition.id,
            agent_id: order.agent_id,
            goal: order.goal,
        }))
    }

    /// The root of a stored run and the journal it may still have to copy, from [`Trace::SUMMARY_FIELDS`].
    pub fn stored_branch(fields: &HashMap<String, String>) -> Result<Option<(ChildId, Checkpoint)>, Corrupt> {
        if fields.is_empty() {
            return Ok(None);
        }
        let definition: Definition = required(fields, "d0")?;
        let order: Order = required(fields, "o0")?;
        let status = required::<Running>(fields, "c0")?.status.with(Vec::new(), None);
        Ok(order.branch_from.filter(|_| status.end().is_none()).map(|from| (definition.id, from)))
    }

    /// Marks everything as changed, as after a rebuild: what is stored then replaces what was.
    pub fn mark_all_changed(&mut self) {
        let all = || (0..u32::try_from(self.contexts.len()).unwrap_or(u32::MAX)).map(ContextIndex).collect();
        self.unsaved = Unsaved {
            head: true,
            made: true,
            outputs: true,
            agents: self.agents.keys().cloned().collect(),
            plans: (0..u32::try_from(self.plans.len()).unwrap_or(u32::MAX)).collect(),
            tombstones: self.tombstones.keys().cloned().collect(),
            contexts: all(),
            definitions: all(),
            orders: all(),
            values: self.store.keys().cloned().collect(),
            saved: Vec::new(),
            stored_bytes: 0,
        };
        self.contexts.iter_mut().for_each(ContextNode::mark_all_changed);
    }
}

impl ContextNode {
    fn changes(&mut self, at: u32, saved: &mut Saved, fields: &mut Fields) {
        fields.set_if_new(|| format!("c{at}"), &Running::of(self), &mut saved.running);
        fields.set_if_new(|| format!("l{at}"), &Ceilings::of(&self.budget), &mut saved.ceilings);
        fields.set_if_new(|| format!("b{at}"), &Sums::of(&self.budget), &mut saved.sums);
        match &self.status {
            Status::Working(Phase::Waiting { children, .. }) => {
                fields.set_if_new(|| format!("w{at}"), children, &mut saved.waits_for);
            }
            Status::Ended(end) => {
                let left =
                    Left { result: end.result.clone(), error: end.error.clone(), reason: end.reason.clone() };
                fields.set_if_new(|| format!("f{at}"), &left, &mut saved.left);
            }
            Status::Submitted { .. }
            | Status::Working(_)
            | Status::InputRequired { .. }
            | Status::Paused { .. } => {}
        }
        fields.entries(format!("k{at}"), &mut self.calls);
        fields.entries(format!("m{at}"), &mut self.charges);
        fields.rows(format!("n{at}"), &mut self.attempts, Clone::clone);
        fields.rows(format!("q{at}"), &mut self.answers, Clone::clone);
        fields.rows(format!("r{at}"), &mut self.restores, Clone::clone);
        fields.rows(format!("e{at}"), &mut self.notes, Clone::clone);
        fields.rows(format!("y{at}"), &mut self.disputes, Clone::clone);
        if let Some(run) = &mut self.graph {
            fields.entries(format!("j{at}"), &mut run.lists);
            fields.rows(format!("s{at}"), &mut run.steps, StoredStep::of);
        }
    }

    fn from_stored(
        definition: Definition,
        limits: Arc<shared::Limits>,
        mut graph: Option<Box<GraphRun>>,
        index: u32,
        fields: &HashMap<String, String>,
    ) -> Result<Self, Corrupt> {
        let field = |prefix: char| format!("{prefix}{index}");
        let running: Running = required(fields, &field('c'))?;
        let waits_for = read(fields, &field('w'))?.unwrap_or_default();
        let budget = required::<Ceilings>(fields, &field('l'))?.with(required(fields, &field('b'))?);
        if let (Some(run), Some(stored)) = (&mut graph, running.graph) {
            run.phase = stored.phase;
            run.unfinished = stored.unfinished;
            run.failing = stored.failing;
            run.winner = stored.winner;
            run.gather_by = stored.gather_by;
            run.gathered = stored.gathered;
        }
        Ok(ContextNode {
            id: definition.id,
            parent: definition.parent,
            children: Vec::new(),
            live_children: 0,
            depth: definition.depth,
            order: Arc::new(required(fields, &field('o'))?),
            graph,
            step: definition.step,
            scope: definition.scope,
            thread_id: definition.thread_id,
            status: running.status.with(waits_for, read(fields, &field('f'))?),
            budget,
            own_limit: running.own_limit,
            calls: Keyed::default(),
            open_calls: 0,
            waiting: running.waiting,
            left_at_pause: running.left_at_pause,
            growths: running.growths,
            growths_before: running.growths_before,
            charges: Keyed::default(),
            disputes: Rows::default(),
            exhausted: running.exhausted,
            limits,
            adjusted: definition.adjusted,
            tools: definition.tools,
            window_tokens: definition.window_tokens,
            on_exhausted: definition.on_exhausted,
            hitl: definition.hitl,
            attempts: Rows::default(),
            retried: running.retried,
            progress: running.progress,
            answers: Rows::default(),
            restores: Rows::default(),
            notes: Rows::default(),
            deadline: running.deadline,
            timeout_ms: definition.timeout_ms,
            waiting_for_humans: running.waiting_for_humans,
            clock_stopped_at: running.clock_stopped_at,
            started_at: definition.started_at,
            deleted: running.deleted,
            outcome_due: running.outcome_due,
            timer: None,
        })
    }

    fn mark_all_changed(&mut self) {
        self.calls.mark_all();
        self.charges.mark_all();
        self.attempts.mark_all();
        self.answers.mark_all();
        self.restores.mark_all();
        self.notes.mark_all();
        self.disputes.mark_all();
        if let Some(run) = &mut self.graph {
            run.steps.mark_all();
            run.lists.mark_all();
        }
    }
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
        let kind = name.chars().next().filter(|kind| "kmnqreysj".contains(*kind))?;
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
    calls: HashMap<CallId, super::Call>,
    charges: HashMap<CallId, shared::Amount>,
    attempts: Vec<super::Attempt>,
    answers: Vec<shared::wire::GivenAnswer>,
    restores: Vec<shared::wire::RestorePoint>,
    notes: Vec<String>,
    disputes: Vec<shared::wire::Dispute>,
    items: HashMap<u32, Json>,
    steps: Vec<(u32, StoredStep)>,
}

impl Lists {
    /// Adds an entry. Entries of a list come in order.
    fn add(&mut self, row: &Row<'_>) -> Result<(), Corrupt> {
        let corrupt = |reason: &dyn ToString| Corrupt { field: row.name.into(), reason: reason.to_string() };
        let call = || CallId::new(row.key).map_err(|error| corrupt(&error));
        let number = || row.number.ok_or_else(|| corrupt(&"its name ends with no number"));
        match row.kind {
            'k' => drop(self.calls.insert(call()?, row.value()?)),
            'm' => drop(self.charges.insert(call()?, row.value()?)),
            'n' => next(&mut self.attempts, row)?,
            'q' => next(&mut self.answers, row)?,
            'r' => next(&mut self.restores, row)?,
            'e' => next(&mut self.notes, row)?,
            'y' => next(&mut self.disputes, row)?,
            'j' => drop(self.items.insert(number()?, row.value()?)),
            _ => self.steps.push((number()?, row.value()?)),
        }
        Ok(())
    }

    fn put(self, node: &mut ContextNode) {
        node.calls = Keyed::stored(self.calls);
        node.charges = Keyed::stored(self.charges);
        node.attempts = Rows::stored(self.attempts);
        node.answers = Rows::stored(self.answers);
        node.restores = Rows::stored(self.restores);
        node.notes = Rows::stored(self.notes);
        node.disputes = Rows::stored(self.disputes);
        if let Some(run) = &mut node.graph {
            run.lists = Keyed::stored(self.items);
            self.steps.into_iter().for_each(|(number, step)| run.put_stored(number, step.into_step()));
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

fn required<T: DeserializeOwned>(fields: &HashMap<String, String>, field: &str) -> Result<T, Corrupt> {
    read(fields, field)?.ok_or_else(|| Corrupt { field: field.into(), reason: "it is missing".into() })
}

fn read<T: DeserializeOwned>(fields: &HashMap<String, String>, field: &str) -> Result<Option<T>, Corrupt> {
    fields.get(field).map(|text| parse(field, text)).transpose()
}

fn parse<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, Corrupt> {
    serde_json::from_str(text).map_err(|error| Corrupt { field: field.into(), reason: error.to_string() })
}
