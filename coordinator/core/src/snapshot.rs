//! The public views of a trace: snapshots of contexts at any moment (B14), questions, outcomes.

use std::collections::BTreeMap;

use domain::{
    Amount, ChildId,
    wire::{
        Adjustment, ContextOutcome, ContextSnapshot, ContextStatus, OnExhausted, Outcome, Payload, Question,
    },
};

use super::{ContextIndex, ContextNode, End, Phase, QuestionDetails, Status, Trace, hold_queue::Fit};

impl Status {
    /// The status that clients see. A context that waits for children or runs steps shows
    /// `input_required` while a descendant has asked a human (G7).
    pub(super) fn shown(&self, questions: u32) -> ContextStatus {
        match self {
            Status::Submitted { .. } => ContextStatus::Submitted,
            Status::Working(Phase::Waiting { .. } | Phase::Steps) if questions > 0 => {
                ContextStatus::InputRequired
            }
            Status::Working(_) => ContextStatus::Working,
            Status::InputRequired { .. } => ContextStatus::InputRequired,
            Status::Paused { .. } => ContextStatus::Paused,
            Status::Ended(end) => ContextStatus::Ended(end.status),
        }
    }
}

impl ContextNode {
    pub fn status_word(&self) -> ContextStatus {
        self.status.shown(self.lifecycle.questions)
    }

    /// Returns true if it waits for the answer of a human.
    pub fn asks(&self) -> bool {
        matches!(self.status, Status::InputRequired { .. })
    }

    /// The first reason why calls are answered with `halt` here, if they are (B4).
    fn aborted(&self) -> Option<String> {
        let exhausted = self.lifecycle.exhausted.filter(|_| self.terms.on_exhausted == OnExhausted::Abort);
        let exhausted = exhausted.map(|dimension| format!("its {dimension} budget is used up"));
        exhausted.or_else(|| self.end()?.details.reason.clone())
    }
}

impl Trace {
    /// A snapshot of one context: limits, spent, held, remaining, its own cost apart from its
    /// descendants', steps, retries, aborted with the first reason, parent and children (B14).
    pub fn snapshot(&self, node: &ContextNode) -> ContextSnapshot {
        let id = |index: &ContextIndex| self.node(*index).id.clone();
        let aborted = node.aborted();
        ContextSnapshot {
            trace_id: self.id(),
            child_id: node.id.clone(),
            parent_id: node.parent.as_ref().map(id),
            agent_id: node.spec.agent_id.clone(),
            profile_version: node.spec.agent_id.as_ref().and_then(|id| self.agent_versions.get(id).copied()),
            thread_id: node.identity.thread_id.clone(),
            labels: node.spec.labels.clone(),
            depth: node.identity.depth,
            status: node.status_word(),
            taken_from: node.identity.taken.clone(),
            undoes: node.identity.undoes.map(|of| self.node(of).id.clone()),
            undoing: node.is_undoing(),
            waiting_for: match &node.status {
                Status::Working(Phase::Waiting { children, .. }) => children.iter().map(id).collect(),
                Status::Submitted { .. }
                | Status::Working(_)
                | Status::InputRequired { .. }
                | Status::Paused { .. }
                | Status::Ended(_) => Vec::new(),
            },
            waits: self.waits(node),
            asked_by: self.asked_by(node),
            budget: node.budget.snapshot(),
            limits: (*node.limits).clone(),
            adjusted: node.terms.adjusted.clone(),
            deadline: self.deadline(node),
            timeout_ms: node.terms.timeout_ms,
            queue_until: node.queue_until(),
            attempts: node.attempt(),
            steps: node.lifecycle.progress.steps,
            retries: node.retries(),
            aborted: aborted.is_some(),
            reason: aborted,
            children: node.children.iter().map(id).collect(),
            notes: node.notes.to_vec(),
            told: u32::try_from(node.told.len()).unwrap_or(u32::MAX),
            unseen: node.unseen(),
            on_budget: self.ladder(node).to_vec(),
            rungs: node.lifecycle.rungs,
            checks: node.lifecycle.checks,
            disputes: node.disputes.to_vec(),
        }
    }

    /// The amount that a context can still spend: the least that is left to it and to the ancestors
    /// on which it draws. A grant belongs to the context (B6).
    pub fn left(&self, node: &ContextNode) -> Amount {
        let own = node.budget.snapshot().remaining;
        let Some(parent) = node.parent.map(|parent| self.node(parent)) else { return own };
        node.budget.ceilings.granted.choose(own, own.min(self.left(parent)))
    }

    /// The limits and amounts that are lower than requested for a context (B17).
    pub fn adjusted(&self, child_id: &ChildId) -> Vec<Adjustment> {
        self.context(child_id).map(|node| node.terms.adjusted.clone()).unwrap_or_default()
    }

    /// The contexts from here down to the first that has asked a human (G7); empty if none has.
    pub fn asked_by(&self, node: &ContextNode) -> Vec<ChildId> {
        let mut path = Vec::new();
        let mut next = (node.lifecycle.questions > 0).then_some(node);
        while let Some(node) = next {
            path.push(node.id.clone());
            let mut children = node.children.iter().map(|child| self.node(*child)).filter(|_| !node.asks());
            next = children.find(|child| child.lifecycle.questions > 0);
        }
        path
    }

    /// Why a context is paused, or why its call waits for room in a budget.
    pub fn waits(&self, node: &ContextNode) -> Option<String> {
        let reason = if let Status::Paused { reason } = &node.status { Some(reason.clone()) } else { None };
        let Some(hold) = node.lifecycle.waiting.first() else { return reason };
        let at = self.find(&node.id)?;
        Some(match self.fit(at, hold.amount, hold.closing, Some(hold.ticket)) {
            Fit::Later(denied) => format!("{}; it waits for calls in flight", denied.describe("hold")),
            Fit::Now => "its hold now fits into the budget".into(),
            Fit::Never(refusal) => refusal.to_string(),
        })
    }

    /// The outcome of a context that has ended.
    pub fn outcome(&self, child_id: &ChildId) -> Option<Outcome> {
        let node = self.context(child_id)?;
        let end = node.end()?;
        let outputs = if node.parent.is_none() { self.outputs().clone() } else { BTreeMap::new() };
        let context = self.context_outcome(node, end);
        Some(Outcome { trace_id: self.id(), context, outputs, graph: self.graph_outcome(node) })
    }

    fn context_outcome(&self, node: &ContextNode, end: &End) -> ContextOutcome {
        let (result, result_object) = match end.details.result.clone() {
            None => (None, None),
            Some(Payload::Inline(value)) => (Some(value), None),
            Some(Payload::Reference(object)) => (None, Some(object)),
        };
        ContextOutcome {
            child_id: node.id.clone(),
            parent_id: node.parent.map(|parent| self.node(parent).id.clone()),
            thread_id: node.identity.thread_id.clone(),
            agent_id: node.spec.agent_id.clone(),
            status: end.status,
            result,
            result_object,
            error: end.details.error.clone(),
            reason: end.details.reason.clone(),
            budget: node.budget.snapshot(),
            attempts: node.attempt(),
            steps: node.lifecycle.progress.steps,
            retries: node.retries(),
            unseen: node.unseen(),
            started_at: node.identity.started_at,
            ended_at: end.at,
        }
    }

    /// The open question of a context, with the path of agents to it (G7).
    pub fn question(&self, child_id: &ChildId) -> Option<Question> {
        let at = self.find(child_id)?;
        let node = self.node(at);
        let Status::InputRequired { question, asked } = &node.status else { return None };
        let asked = asked.as_deref();
        Some(Question {
            trace_id: self.id(),
            child_id: node.id.clone(),
            number: node.question_number(),
            question: question.clone(),
            path: self.path(at),
            form: asked.map(|asked| asked.form.clone()).unwrap_or_default(),
            answer_by: asked.and_then(QuestionDetails::answer_by),
            reminder: asked.map_or(0, |asked| asked.reminders),
        })
    }
}
