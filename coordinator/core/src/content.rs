//! The number of bytes that a run keeps in its state (L, `max_trace_bytes`): orders, plans and
//! profiles, messages, questions and answers, results and errors, the lists of `for_each`, the
//! results that a rerun may take over, and the inputs of undos. The shared store has its own limit
//! and is not included.
//!
//! Only present data is counted; deleted data is subtracted, as in the shared store. The number is
//! derived from the rest of the state, so it is not stored. It changes when an event that changes
//! counted data is applied, with work in proportion to the change.
//!
//! Room is reserved for the end of every live context, and for the spec of the undo of every run
//! that may be undone. Neither is ever refused for lack of room. Data with a fixed size for each
//! context, step, attempt and call is not counted, because other limits bound it.

use std::{collections::BTreeSet, sync::Arc};

use domain::{
    Json,
    graph::{Form, Undo},
    id::ToolName,
    json,
    limits::Settings,
    wire::{Adjustment, EndStatus, Failure, GivenAnswer, Payload, Text},
};

use super::{
    ContextAdmitted, ContextEnded, ContextIndex, ContextNode, ContextSpec, Event, Refusal, Status, Trace,
    limit_text,
};

/// The room reserved for the end of a live context: a short result, or an error.
pub(super) const END_BYTES: u64 = 2 * 1024;
/// The most bytes that the spec of an undo has besides its goal, inputs and secrets.
const UNDO_ORDER_BYTES: u64 = 1024;

/// L: checks that the trace has room for `asked` more bytes.
pub(super) fn check_room(trace: &Trace, settings: &Settings, asked: u64) -> Result<(), Refusal> {
    let (have, max) = (trace.content_bytes, settings.limits.max_trace_bytes);
    if have.saturating_add(asked) > max {
        let limit = Box::new(limit_text::of_settings(settings, "max_trace_bytes"));
        return Err(Refusal::MaxTraceBytes { asked, have, max, limit });
    }
    Ok(())
}

/// L: checks that the trace has room for a result, and for the inputs of the run's undo. The error
/// is a message.
pub(super) fn check_end(
    trace: &Trace,
    at: ContextIndex,
    status: EndStatus,
    result: Option<&Payload>,
) -> Result<(), String> {
    let node = trace.node(at);
    let size = result.map_or(0, json::size_bytes);
    let undo = node.undo.as_ref().filter(|_| status == EndStatus::Completed);
    let of_undo = undo.map_or(0, |undo| trace.undo_bytes(at, size).saturating_sub(undo.bytes));
    match size.saturating_sub(node.said_bytes()) + of_undo {
        0 => Ok(()),
        more => check_room(trace, trace.settings(), more).map_err(|refusal| match of_undo {
            0 => refusal.to_string(),
            _ => format!("its work is not undone, because the input of the undo does not fit: {refusal}"),
        }),
    }
}

/// The counted bytes that an event adds.
pub(super) fn added_by(event: &Event) -> u64 {
    if let Event::Admitted(admitted) = event {
        let ContextAdmitted { spec, tools, adjusted, .. } = &**admitted;
        size_of_terms(spec, tools.as_ref(), adjusted) + END_BYTES
    } else if let Event::AgentAdded { agent, .. } = event {
        json::size_bytes(agent)
    } else if let Event::PlanAdded { plan } | Event::Amended { plan, .. } = event {
        json::size_bytes(plan)
    } else if let Event::ResultKept { kept, .. } = event {
        json::size_bytes(kept)
    } else if let Event::ItemsTaken { items, .. } = event {
        items.size_bytes()
    } else if let Event::Told { id, text, by, .. } = event {
        json::size_bytes(&(id, text, by))
    } else {
        0
    }
}

/// The sum of `added_by` for all events.
pub(super) fn added_by_all(events: &[Event]) -> u64 {
    events.iter().map(added_by).sum()
}

/// The bytes of a question while it is open.
pub(super) fn question_bytes(question: &Text, form: Option<&Form>) -> u64 {
    json::size_bytes(question) + form.map_or(0, json::size_bytes)
}

fn size_of_terms(
    spec: &ContextSpec,
    tools: Option<&Arc<BTreeSet<ToolName>>>,
    adjusted: &[Adjustment],
) -> u64 {
    json::size_bytes(spec) + tools.map_or(0, json::size_bytes) + json::size_bytes(&adjusted)
}

fn end_bytes(result: Option<&Payload>, error: Option<&Failure>, reason: Option<&String>) -> u64 {
    let texts = error.map(|error| &error.message).into_iter().chain(reason);
    result.map_or(0, json::size_bytes) + texts.map(|text| text.len() as u64).sum::<u64>()
}

impl ContextNode {
    /// The bytes of its status: its end, or its question. A live context includes the reserve for
    /// its end.
    pub(super) fn said_bytes(&self) -> u64 {
        let ending = self.graph.as_ref().and_then(|run| run.ending.as_deref());
        let ending = ending.map_or(0, |ContextEnded { result, error, reason, .. }| {
            end_bytes(result.as_ref(), error.as_ref(), reason.as_ref())
        });
        match &self.status {
            Status::Ended(end) => end_bytes(
                end.details.result.as_ref(),
                end.details.error.as_ref(),
                end.details.reason.as_ref(),
            ),
            Status::InputRequired { question, asked } => {
                END_BYTES + ending + question_bytes(question, asked.as_ref().map(|asked| &asked.form))
            }
            Status::Submitted { .. } | Status::Working(_) | Status::Paused { .. } => END_BYTES + ending,
        }
    }

    /// All counted bytes of the context, apart from the data for its undo.
    fn content_bytes(&self) -> u64 {
        let told = self.told.iter().map(|told| json::size_bytes(&(&told.id, &told.text, &told.by)));
        let answers = self.answers.iter().map(answer_bytes);
        let notes = self.notes.iter().map(|note| note.len() as u64);
        let lists = self.graph.iter().flat_map(|run| run.lists.values().map(Json::size_bytes));
        let rows = told.chain(answers).chain(notes).chain(lists).sum::<u64>();
        size_of_terms(&self.spec, self.terms.tools.as_ref(), &self.terms.adjusted) + self.said_bytes() + rows
    }
}

/// The bytes of an answer, with its question.
pub(super) fn answer_bytes(given: &GivenAnswer) -> u64 {
    json::size_bytes(given)
}

impl Trace {
    /// The number of bytes that the trace keeps.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// The same number, counted again from the whole state.
    pub fn recounted_bytes(&self) -> u64 {
        let plans = self.plans.iter().map(|plan| json::size_bytes(&**plan));
        let agents = self.agents.values().map(|agent| json::size_bytes(&**agent));
        let kept = self.kept.values().map(json::size_bytes);
        let contexts = self.contexts.iter().map(ContextNode::content_bytes);
        let undos = (0u32..).zip(&self.contexts).filter_map(|(at, node)| {
            let undo = node.undo.as_deref().filter(|undo| undo.bytes > 0)?;
            self.holder(ContextIndex(at)).map(|_| undo.bytes)
        });
        plans.chain(agents).chain(kept).chain(contexts).chain(undos).sum()
    }

    /// The most bytes that the undo of a run needs for its spec and its context, with the current
    /// values.
    pub(super) fn undo_bytes(&self, run: ContextIndex, result: u64) -> u64 {
        let node = self.node(run);
        let undo = self.undo_of(run);
        undo.map_or(0, |undo| self.undo_bytes_of(undo, &node.spec, node, result))
    }

    /// The same for a run that may not exist yet; `node` reads the same keys as the run.
    pub(super) fn undo_bytes_of(
        &self,
        undo: &Undo,
        spec: &ContextSpec,
        node: &ContextNode,
        result: u64,
    ) -> u64 {
        let read = spec.input_from.iter().map(|key| {
            let value = self.value_in(node, key).map_or(0, |entry| entry.size_bytes);
            key.as_str().len() as u64 + value + 8
        });
        let tools = self.agent(&undo.agent_id).and_then(|agent| agent.tools.as_ref());
        let tools = tools.map(json::size_bytes).or_else(|| node.terms.tools.as_deref().map(json::size_bytes));
        UNDO_ORDER_BYTES
            + END_BYTES
            + json::size_bytes(&undo.goal)
            + json::size_bytes(&spec.inputs)
            + json::size_bytes(self.secrets_of(node))
            + tools.unwrap_or_default()
            + read.sum::<u64>()
            + result
    }

    /// Sets the bytes that are reserved for the undo of a run.
    pub(super) fn keep_room_for_undo(&mut self, run: ContextIndex, bytes: u64) {
        let Some(undo) = &mut self.node_mut(run).undo else { return };
        let before = std::mem::replace(&mut undo.bytes, bytes);
        self.content_bytes = self.content_bytes + bytes - before;
    }

    /// Replaces the status of a context.
    pub(super) fn put_status(&mut self, at: ContextIndex, status: Status) {
        self.recount_said(at, |node| node.status = status);
    }

    /// Changes the data in the status of a context, and updates the count.
    pub(super) fn recount_said(&mut self, at: ContextIndex, change: impl FnOnce(&mut ContextNode)) {
        let node = self.node_mut(at);
        let before = node.said_bytes();
        change(node);
        let after = node.said_bytes();
        self.content_bytes = self.content_bytes + after - before;
    }

    /// Changes a whole context, and updates the count. The data for its undo must stay the same.
    pub(super) fn recount_context(&mut self, at: ContextIndex, change: impl FnOnce(&mut ContextNode)) {
        let node = self.node_mut(at);
        let before = node.content_bytes();
        change(node);
        let after = node.content_bytes();
        self.content_bytes = self.content_bytes + after - before;
    }
}
