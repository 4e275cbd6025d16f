//! The results of steps in a report: each result once, and all together within a bounded size.

use domain::{
    Json,
    graph::Step,
    wire::{EndStatus, ObjectReference, Payload, StepStatus},
};
use serde_json::Value;

use crate::{ContextNode, Ran, StepRun, Trace, context_store::full_key};

/// The most bytes of results in one report. Further results are listed by their size only; they are
/// in the outcomes of their contexts.
const MAX_RESULTS_BYTES: u64 = 1024 * 1024;

/// Adds results to a report while it has room.
pub(super) struct Results<'a> {
    trace: &'a Trace,
    room: u64,
}

/// The result of a step in a report: at most one of the three fields is set.
#[derive(Default)]
pub(super) struct ReportedResult {
    pub(super) inline: Option<Json>,
    pub(super) object: Option<ObjectReference>,
    pub(super) left_out_bytes: Option<u64>,
}

impl<'a> Results<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        Results { trace, room: MAX_RESULTS_BYTES }
    }

    /// The value that the step wrote to its `output_to`; otherwise the result of its last context,
    /// including the last report of an aborted one. For a `for_each`, the list of results.
    pub(super) fn take(&mut self, graph: &ContextNode, run: &StepRun, step: &Step) -> ReportedResult {
        let Some(last) = run.contexts.last().map(|context| self.trace.node(*context)) else {
            return ReportedResult::default();
        };
        if run.status == StepStatus::Succeeded && !last.lifecycle.deleted {
            let key = step.output_to.as_ref().map(|key| full_key(self.trace, graph, key));
            let live = key.as_ref().and_then(|key| self.trace.values().get(key)).map(|entry| &entry.value);
            if let Some(value) = live.or_else(|| self.trace.outputs().get(&key?)) {
                return self.inline(value);
            }
        }
        if run.items.is_some() {
            return self.list(run);
        }
        self.payload(last.end().and_then(|end| end.details.result.as_ref()))
    }

    /// The result of a context.
    pub(super) fn payload(&mut self, result: Option<&Payload>) -> ReportedResult {
        match result {
            None => ReportedResult::default(),
            Some(Payload::Inline(value)) => self.inline(value),
            Some(Payload::Reference(object)) => {
                ReportedResult { object: Some(object.clone()), ..ReportedResult::default() }
            }
        }
    }

    fn inline(&mut self, value: &Json) -> ReportedResult {
        match self.fits(value.size_bytes()) {
            Ok(()) => ReportedResult { inline: Some(value.clone()), ..ReportedResult::default() },
            Err(left_out) => left_out,
        }
    }

    fn fits(&mut self, size_bytes: u64) -> Result<(), ReportedResult> {
        let left_out = || ReportedResult { left_out_bytes: Some(size_bytes), ..ReportedResult::default() };
        self.room = self.room.checked_sub(size_bytes).ok_or_else(left_out)?;
        Ok(())
    }

    /// The results of the items in the order of the list, with null for an item without one.
    fn list(&mut self, run: &StepRun) -> ReportedResult {
        let nodes = run.contexts.iter().map(|context| self.trace.node(*context));
        let completed = nodes.filter_map(|node| {
            let end = node.end().filter(|end| end.status == EndStatus::Completed)?;
            match (node.identity.step?.ran, end.details.result.as_ref()?) {
                (Ran::Item(number), result) => Some((number as usize, result)),
                (Ran::Itself | Ran::Round(_) | Ran::Fallback, _) => None,
            }
        });
        let completed: Vec<(usize, &Payload)> = completed.collect();
        let total = run.items.map_or(0, |items| items.total as usize);
        if completed.is_empty() {
            return ReportedResult::default();
        }
        let size = |result: &Payload| match result {
            Payload::Inline(value) => value.size_bytes(),
            Payload::Reference(_) => result.to_value().size_bytes(),
        };
        let size_bytes: u64 = completed.iter().map(|(_, result)| size(result)).sum();
        if let Err(left_out) = self.fits(size_bytes + total as u64) {
            return left_out;
        }
        let mut list = vec![Value::Null; total];
        for (number, result) in completed {
            list[number] = result.to_value().value().clone();
        }
        ReportedResult { inline: Some(Json::from(Value::Array(list))), ..ReportedResult::default() }
    }
}
