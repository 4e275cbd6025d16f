//! The content of the cards of a graph: for steps that are planned, and for steps that run or have
//! ended.

use domain::{
    graph::{Body, Group, Plan, Step, StepIndex},
    wire::{StepReport, StepStatus, UndoStatus},
    wording,
};
use trace::{ContextNode, Ran, StepRun, Trace, word_of_step};

use super::{
    layout::{self, Card, Drawing},
    row, status,
};
use crate::skipped_conditions::Saw;

/// The steps of larger groups, and of groups nested deeper, are not drawn inside the card.
const MOST_INSIDE: usize = 12;
const DEEPEST: usize = 2;
/// The most characters of a failure reason in a tooltip.
const REASON: usize = 400;
/// The most failed steps that the card of a group names.
const MOST_NAMED: usize = 2;

/// The cards of a group before it runs.
pub(super) fn sketch(plan: &Plan, group: &Group, depth: usize) -> Vec<Card> {
    group.steps.iter().map(|step| planned(plan, step, depth)).collect()
}

/// The card of a step that has not begun.
fn planned(plan: &Plan, step: &Step, depth: usize) -> Card {
    let inner = if let Body::Group(inner) = step.body { Some(plan.group(inner)) } else { None };
    let note = match (&step.body, inner) {
        (Body::Agent { agent_id, .. }, _) => agent_id.to_string(),
        (Body::Approve(_), _) => "a human".to_owned(),
        (Body::Group(_), inner) => {
            inner.map_or_else(String::new, |group| wording::count(group.steps.len(), "step"))
        }
    };
    let rounds = step.repeat.as_ref().map(|of| format!("up to {}", wording::count(of.max_rounds, "round")));
    let items = step.for_each.as_ref().map(|of| format!("for each of {}", of.key));
    let race = inner.filter(|group| group.race).map(|_| "a race".to_owned());
    Card {
        title: format!("{}, {note}", step.id),
        class: "idle",
        sign: "○",
        name: step.id.to_string(),
        note,
        more: joined([rounds, items, race]),
        is_frame: inner.is_some(),
        inside: inner.and_then(|group| inside(group, depth, || sketch(plan, group, depth + 1))),
        ..Card::default()
    }
}

/// The drawing inside the frame of a group, if the group is small.
fn inside(group: &Group, depth: usize, cards: impl FnOnce() -> Vec<Card>) -> Option<Drawing> {
    (group.steps.len() <= MOST_INSIDE && depth < DEEPEST).then(|| layout::drawing(group, &cards()))
}

fn joined(words: impl IntoIterator<Item = Option<String>>) -> String {
    words.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The present state of a context's graph.
#[derive(Clone, Copy)]
pub(super) struct Now<'a> {
    pub(super) trace: &'a Trace,
    pub(super) saw: &'a Saw,
    pub(super) node: &'a ContextNode,
    pub(super) group: &'a Group,
    pub(super) depth: usize,
}

impl Now<'_> {
    pub(super) fn cards(&self, reports: &[StepReport]) -> Vec<Card> {
        let Some((run, plan)) = self.node.graph.as_deref().zip(self.trace.whole_plan(self.node)) else {
            return Vec::new();
        };
        let steps = (0u32..).zip(self.group.steps.iter().zip(run.steps.iter())).zip(reports);
        let card = |((place, (step, ran)), report)| {
            let has_won = self.group.race && run.progress.winner == Some(place);
            self.card(plan, step, ran, report, (place, has_won))
        };
        steps.map(card).collect()
    }

    fn card(
        &self,
        plan: &Plan,
        step: &Step,
        ran: &StepRun,
        report: &StepReport,
        (place, has_won): (StepIndex, bool),
    ) -> Card {
        let trace = self.trace;
        let context = report.contexts.last().and_then(|id| trace.context(id));
        if context.is_none() && report.status == StepStatus::Pending {
            let title = format!("{}, {}", step.id, status::words(&word_of_step(report)));
            return Card { title, is_pale: true, ..planned(plan, step, self.depth) };
        }
        // The context of a running step may wait for a human or for money.
        let word = match context.filter(|node| node.is_live()) {
            Some(node) => trace.word(node),
            None => word_of_step(report),
        };
        let href = context.map(|node| match node.graph {
            Some(_) => format!("runs/{}/graph?of={}", trace.id(), node.id),
            None => format!("runs/{}/contexts/{}", trace.id(), node.id),
        });
        let many =
            if report.contexts.len() > 1 { format!(" ×{}", report.contexts.len()) } else { String::new() };
        let attempt = context.filter(|node| node.is_live()).map_or(0, ContextNode::attempt);
        let again = if attempt > 1 { format!(" · attempt {attempt}") } else { String::new() };
        let skipped = self.skipped(step, place, report);
        let (note, saw) = match (&skipped, report.reason.as_deref().filter(|reason| !reason.is_empty())) {
            (Some((when, saw)), _) => (format!("when {when}"), saw.as_ref().map(|saw| format!("read {saw}"))),
            (None, Some(reason)) => (reason.to_owned(), None),
            (None, None) => (format!("{}{again}", report.cost_usd), None),
        };
        let is_group = matches!(step.body, Body::Group(_));
        let more = joined([
            saw,
            has_won.then(|| "won".to_owned()),
            round(step, context),
            ran.items.map(|items| format!("{} of {} items ended", items.ended, items.total)),
            within(&report.steps),
            taken_over(report),
            report.undo.as_ref().map(|undo| undo_word(undo.status).to_owned()),
            report.fallback.then(|| "fallback".to_owned()),
        ]);
        let why =
            report.reason.as_deref().map_or_else(String::new, |why| format!(": {}", row::short(why, REASON)));
        let also = if more.is_empty() { String::new() } else { format!(", {}", row::short(&more, REASON)) };
        Card {
            title: format!("{}, {}{why}{also}", step.id, status::words(&word)),
            class: status::class(&word),
            sign: status::sign_of(&word),
            name: format!("{}{many}", step.id),
            note,
            more,
            href,
            is_pale: matches!(report.status, StepStatus::Skipped | StepStatus::Pending),
            is_frame: is_group,
            inside: context.and_then(|node| self.inside(node, &report.steps)),
        }
    }

    /// The steps of a group as its last context ran them; none for a result that was taken over.
    fn inside(&self, node: &ContextNode, steps: &[StepReport]) -> Option<Drawing> {
        let group = self.trace.plan_of(node).filter(|_| !steps.is_empty())?;
        let now = Now { node, group, depth: self.depth + 1, ..*self };
        inside(group, self.depth, || now.cards(steps))
    }

    /// The condition that skipped a step, and the values that it read if the events have them.
    pub(super) fn skipped(
        &self,
        step: &Step,
        place: StepIndex,
        report: &StepReport,
    ) -> Option<(String, Option<String>)> {
        let when = step.when.as_ref().filter(|_| report.status == StepStatus::Skipped)?;
        report.reason.as_ref().filter(|reason| reason.starts_with("when"))?;
        Some((when.source().to_owned(), self.saw.words(&self.node.id, place, when)))
    }
}

/// The last round of a loop.
fn round(step: &Step, context: Option<&ContextNode>) -> Option<String> {
    let repeat = step.repeat.as_ref()?;
    match context?.identity.step?.ran {
        Ran::Round(round) => Some(format!("round {round} of {}", repeat.max_rounds)),
        Ran::Itself | Ran::Item(_) | Ran::Fallback => None,
    }
}

/// The progress of a group, and its failed steps.
fn within(steps: &[StepReport]) -> Option<String> {
    let is_open = |step: &&StepReport| matches!(step.status, StepStatus::Pending | StepStatus::Running);
    let is_failed = |step: &&StepReport| {
        matches!(step.status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Aborted)
    };
    let failed: Vec<&str> = steps.iter().filter(is_failed).map(|step| step.id.as_str()).collect();
    let mut named = failed.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    if failed.len() > MOST_NAMED {
        named.push_str(&format!(" and {} more", failed.len() - MOST_NAMED));
    }
    let ended = steps.len() - steps.iter().filter(is_open).count();
    let wrong = if failed.is_empty() { String::new() } else { format!("{named} failed · ") };
    (!steps.is_empty()).then(|| format!("{wrong}{ended} of {} steps ended", steps.len()))
}

/// The results that were taken from an earlier run (G15).
fn taken_over(report: &StepReport) -> Option<String> {
    match (report.taken_from.len(), report.contexts.len()) {
        (0, _) => None,
        (taken, all) if taken < all => Some(format!("{taken} taken over")),
        (_, _) => Some("taken over".into()),
    }
}

fn undo_word(status: UndoStatus) -> &'static str {
    match status {
        UndoStatus::Pending => "to be undone",
        UndoStatus::Running => "being undone",
        UndoStatus::Undone => "undone",
        UndoStatus::Failed => "undo failed",
        UndoStatus::Dropped => "not undone",
    }
}
