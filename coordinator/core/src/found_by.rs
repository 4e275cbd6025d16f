//! The terms by which a run is found (G17): those under which the store's index lists it, and those
//! of a query. The index only selects candidates; `RunsQuery::matches` decides on their summaries.
//! An entry may therefore have more terms than match its run, but never fewer.

use std::fmt::Write;

use domain::{
    AgentId, ThreadId,
    id::{LabelKey, LabelValue},
    wire::{ContextStatus, EndStatus, RunsQuery},
};

use super::Trace;

/// Takes the place of the cost of a live run: the cost is final only when the run has ended.
const NO_COST: &str = "-";

impl Trace {
    /// The text of the run's entries in the index: the time when it began, its cost in nano-dollars
    /// once it has ended, and its terms, separated by spaces. `None` for a trace that is not a run
    /// yet.
    pub(super) fn index_text(&self) -> Option<String> {
        let root = self.root()?;
        let status = root.status_word();
        let mut text = format!("{} ", root.identity.started_at.millis());
        match root.end() {
            Some(_) => {
                let _ = write!(text, "{}", root.budget.snapshot().spent.cost_usd.nanos());
            }
            None => text.push_str(NO_COST),
        }
        let _ = write!(text, " {}", of_status(status));
        if root.lifecycle.waiting_for_humans > 0 {
            let _ = write!(text, " {WAITS}");
        }
        if let Some(agent) = &root.spec.agent_id {
            let _ = write!(text, " {}", of_agent(agent));
        }
        if let Some(thread) = &root.identity.thread_id {
            let _ = write!(text, " {}", of_thread(thread));
        }
        for (key, value) in root.spec.labels.iter() {
            let _ = write!(text, " {}", of_label(key, value));
        }
        Some(text)
    }
}

/// The terms of a query. A matching run is listed under at least one term of each group.
pub fn terms(query: &RunsQuery) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    if !query.status.is_empty() {
        let mut statuses: Vec<String> = query.status.iter().copied().map(of_status).collect();
        statuses.sort_unstable();
        statuses.dedup();
        all.push(statuses);
    }
    if query.waiting_for_human == Some(true) {
        all.push(vec![WAITS.to_owned()]);
    }
    all.extend(query.agent_id.as_ref().map(|agent| vec![of_agent(agent)]));
    all.extend(query.thread_id.as_ref().map(|thread| vec![of_thread(thread)]));
    all.extend(query.labels.iter().map(|(key, value)| vec![of_label(key, value)]));
    all
}

const WAITS: &str = "human";

fn of_status(status: ContextStatus) -> String {
    let word = match status {
        ContextStatus::Submitted => "submitted",
        ContextStatus::Working => "working",
        ContextStatus::InputRequired => "input_required",
        ContextStatus::Paused => "paused",
        ContextStatus::Ended(EndStatus::Completed) => "completed",
        ContextStatus::Ended(EndStatus::Failed) => "failed",
        ContextStatus::Ended(EndStatus::Cancelled) => "cancelled",
        ContextStatus::Ended(EndStatus::TimedOut) => "timed_out",
        ContextStatus::Ended(EndStatus::Aborted) => "aborted",
        ContextStatus::Ended(EndStatus::Rejected) => "rejected",
    };
    format!("status:{word}")
}

fn of_agent(agent: &AgentId) -> String {
    format!("agent:{agent}")
}

fn of_thread(thread: &ThreadId) -> String {
    format!("thread:{thread}")
}

fn of_label(key: &LabelKey, value: &LabelValue) -> String {
    format!("label:{key}={value}")
}
