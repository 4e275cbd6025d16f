//! W6: removes the texts of people and agents from deleted contexts, and from the events of a
//! deleted trace. Places in the tree, statuses, costs, counts and the coordinator's own reasons for
//! an end stay. The reasons of steps and of cancels are removed, because they may quote an agent or
//! a human. The profiles of agents belong to the deployment and stay too.
//!
//! Replaying events without their content gives the state after a delete of the whole trace (t9).
//! After the delete of a part of a trace its events stay unchanged, because observers have already
//! read them.

use std::sync::Arc;

use domain::{
    Json,
    graph::Plan,
    wire::{EndStatus, Payload, Text},
};

use super::{ContextAdmitted, ContextEnded, ContextNode, ContextSpec, Event, LoggedEvents, Status};

/// Removes the content of a context.
pub(super) fn context(node: &mut ContextNode) {
    node.lifecycle.deleted = true;
    node.spec = Arc::new(spec(&node.spec));
    node.answers.clear();
    node.notes.clear();
    for number in 0..u32::try_from(node.told.len()).unwrap_or(u32::MAX) {
        let told = node.told.row_mut(number);
        (told.text, told.by) = (blank_text(), None);
    }
    if let Status::Ended(end) = &mut node.status {
        end.details.result = None::<Payload>;
        end.details.error = None;
        end.details.reason = reason(end.status, end.details.reason.take());
    }
    if let Some(undo) = &mut node.undo {
        undo.inputs.clear();
        undo.long_inputs.clear();
    }
    if let Some(run) = &mut node.graph {
        for number in 0..u32::try_from(run.steps.len()).unwrap_or(u32::MAX) {
            if run.step(number).reason.is_some() {
                run.steps.row_mut(number).reason = None;
            }
        }
        let lists: Vec<_> = run.lists.iter().map(|(step, list)| (*step, blank(list))).collect();
        lists.into_iter().for_each(|(step, list)| run.lists.insert(step, list));
    }
}

pub(super) fn plan(plan: &Arc<Plan>) -> Arc<Plan> {
    Arc::new(plan.without_content())
}

fn spec(spec: &ContextSpec) -> ContextSpec {
    let mut spec = spec.clone();
    spec.goal = None;
    spec.inputs.clear();
    spec.shared_messages.clear();
    spec.files.clear();
    spec
}

/// The reason of an end. The reason of a cancel is removed, because its sender wrote it.
pub(super) fn reason(status: EndStatus, reason: Option<String>) -> Option<String> {
    reason.filter(|_| status != EndStatus::Cancelled)
}

fn ended_without_content(ended: ContextEnded) -> ContextEnded {
    let reason = reason(ended.status, ended.reason.clone());
    ContextEnded { result: None, error: None, reason, ..ended }
}

/// A list with null for each element, or null.
fn blank(value: &Json) -> Json {
    match value.elements() {
        Some(elements) => Json::from(serde_json::Value::from(vec![serde_json::Value::Null; elements.len()])),
        None => Json::null(),
    }
}

fn blank_text() -> Text {
    Text::new("(deleted)").expect("a valid literal")
}

impl LoggedEvents {
    /// The message without its content, for a deleted trace.
    pub fn without_content(self) -> Self {
        let events = self.events.into_iter().map(Event::without_content).collect();
        LoggedEvents { events, ..self }
    }
}

impl Event {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the facts of an event say that it has content")]
    fn without_content(self) -> Self {
        if !self.facts().has_content {
            return self;
        }
        match self {
            Event::PlanAdded { plan: whole } => Event::PlanAdded { plan: plan(&whole) },
            Event::Amended { child_id, id, by: _, plan: whole } => {
                Event::Amended { child_id, id, by: None, plan: plan(&whole) }
            }
            Event::Admitted(admitted) => {
                let spec = Arc::new(spec(&admitted.spec));
                Event::Admitted(Box::new(ContextAdmitted { spec, ..*admitted }))
            }
            Event::InputRequired { child_id, number, path, question: _, form: _ } => {
                Event::InputRequired { child_id, number, path, question: blank_text(), form: None }
            }
            Event::Answered { child_id, number, default, answer: _, by: _ } => {
                Event::Answered { child_id, number, answer: blank_text(), by: None, default }
            }
            Event::Told { child_id, number, id, text: _, by: _ } => {
                Event::Told { child_id, number, id, text: blank_text(), by: None }
            }
            Event::Checked { child_id, number, check, moment, decision, reason: _ } => {
                Event::Checked { child_id, number, check, moment, decision, reason: None }
            }
            Event::Ended(ended) => Event::Ended(Box::new(ended_without_content(*ended))),
            Event::UndoingBegun(ended) => Event::UndoingBegun(Box::new(ended_without_content(*ended))),
            Event::Tombstoned { child_id, reason: _ } => {
                Event::Tombstoned { child_id, reason: String::new() }
            }
            Event::StepEnded { child_id, step, status, partial, reason: _ } => {
                Event::StepEnded { child_id, step, status, partial, reason: None }
            }
            Event::ValueSet { key, writer, value: _ } => Event::ValueSet { key, writer, value: Json::null() },
            Event::ConditionAsked { child_id, step, question, answer, saw: _ } => {
                Event::ConditionAsked { child_id, step, question, answer, saw: Json::null() }
            }
            Event::ItemsTaken { child_id, step, items } => {
                Event::ItemsTaken { child_id, step, items: blank(&items) }
            }
            Event::ResultKept { place, kept } => {
                Event::ResultKept { place, kept: Box::new(kept.without_content()) }
            }
            Event::Copied(copied) => Event::Copied(Box::new(copied.without_content())),
            other => {
                debug_assert!(!other.facts().has_content, "{other:?} has no content");
                other
            }
        }
    }
}
