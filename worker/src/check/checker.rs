//! The checks of one context: their rules, their decisions so far, and how one check runs. `call`
//! and `tool` run them around the calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::{
    Usd,
    check::Moment,
    wire::{Answer, Ask, CheckReport, CheckedStep, HistoryEntry, HistoryStep, Verdict},
};

use super::{
    answer::CheckRequest,
    content::{self, Content, ContentDecision},
    outside::Outside,
    recorded::{RecordedChecks, notable},
    rule::Rule,
};
use crate::{
    attempt::Attempt,
    crash::Point,
    journal::{Journal, checkpoint},
    tool::human,
};

#[derive(Debug)]
pub(crate) struct Checker<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) journal: &'a Journal<'a>,
    outside: Outside<'a>,
    pub(super) rules: Vec<Rule>,
    recorded: Mutex<RecordedChecks>,
}

/// The facts about a call that a check gets besides the content.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) moment: Moment,
    pub(super) tool: Option<&'a str>,
    pub(super) cost: Option<Usd>,
}

impl<'a> Checker<'a> {
    /// Reads the decisions of earlier attempts. The last decision is reported again, since its
    /// attempt may have ended before the report.
    pub(crate) async fn open(attempt: &'a Attempt, journal: &'a Journal<'a>, outside: Outside<'a>) -> Self {
        let rules = attempt.work.agent.checks.iter().map(Rule::new).collect();
        let recorded =
            if journal.with_all_entries(|all| all.iter().all(|entry| entry.step.checks().is_empty())) {
                RecordedChecks::default()
            } else {
                let standing = journal.entries();
                journal.with_all_entries(|all| RecordedChecks::read(all, &standing))
            };
        let checker = Checker { attempt, journal, outside, rules, recorded: Mutex::new(recorded) };
        if attempt.number() > 1 {
            let last = journal.with_all_entries(|all| {
                all.iter().rev().find(|entry| notable(entry).next().is_some()).cloned()
            });
            let count = checker.recorded().count;
            if let Some(last) = last {
                checker.tell(&last, count).await;
            }
        }
        checker
    }

    /// Returns true if an answer must be hidden until its checks have passed.
    pub(crate) fn guards_answers(&self) -> bool {
        self.rules.iter().any(|rule| rule.runs_on(Moment::AfterCall))
    }

    /// The verdict of a context that a check halted.
    pub(crate) fn halted(&self) -> Option<Verdict> {
        self.recorded().halted()
    }

    /// The number of answers of humans that this context has used.
    pub(crate) fn answers_used(&self) -> usize {
        checkpoint::answers_before(self.attempt, self.journal, &human::name())
    }

    /// Adds an appended entry, and reports the decisions of its checks.
    pub(crate) async fn note(&self, entry: &HistoryEntry) {
        let count = {
            let mut recorded = self.recorded();
            recorded.add(entry);
            recorded.count += u32::try_from(notable(entry).count()).unwrap_or(u32::MAX);
            recorded.count
        };
        self.tell(entry, count).await;
    }

    /// Reports the decisions of an entry; the last of them has the number `last`.
    async fn tell(&self, entry: &HistoryEntry, last: u32) {
        let steps: Vec<&CheckedStep> = notable(entry).collect();
        for (step, before_last) in steps.iter().zip((0..u32::try_from(steps.len()).unwrap_or(0)).rev()) {
            tracing::debug!(check = %step.check, moment = step.moment.as_str(), decision = step.decision.as_str(), "a check decided");
            let told = CheckReport {
                lease: self.attempt.token(),
                number: last - before_last,
                check: step.check.clone(),
                moment: step.moment,
                decision: step.decision,
                reason: step.reason.clone(),
            };
            if let Answer::Refused(refusal) = self.attempt.ask(Ask::Checked(told)).await {
                tracing::warn!(code = refusal.code, "the decision of a check is only in the journal");
            }
        }
    }

    /// Appends a decision as a separate entry, and reports it.
    pub(super) async fn write(&self, step: CheckedStep) {
        self.attempt.config.crash.pass(Point::Decided);
        let entry = self.journal.append(HistoryStep::Checked(Box::new(step))).await;
        self.note(&entry).await;
    }

    pub(super) fn decided(&self, rule: &Rule, moment: Moment, place: &str) -> Option<CheckedStep> {
        self.recorded().decision(&rule.name, moment, place).cloned()
    }

    /// Runs a check that reads content.
    pub(super) async fn judge(&self, rule: &Rule, about: About<'_>, content: &Content) -> ContentDecision {
        if let Some(decided) = content::judge(rule, content) {
            return decided;
        }
        let (text, arguments) = match content {
            Content::Text(text) => (Some(text.as_str()), None),
            Content::Arguments(arguments) => (None, Some(arguments)),
        };
        let is_output = about.moment == Moment::AfterTool;
        let asked = CheckRequest {
            check: &rule.name,
            moment: about.moment,
            trace_id: self.attempt.trace_id(),
            child_id: self.attempt.child_id(),
            agent_id: &self.attempt.work.agent.agent_id,
            tool: about.tool,
            text: text.filter(|_| !is_output),
            arguments,
            output: text.filter(|_| is_output),
            cost_usd: about.cost,
        };
        let decided = self.outside.judge(self.attempt, rule, &asked, content).await;
        decided.unwrap_or_else(|| ContentDecision::failed("it can't run on this".into()))
    }

    /// The guard is never held over an await.
    pub(super) fn recorded(&self) -> MutexGuard<'_, RecordedChecks> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn step(rule: &Rule, moment: Moment, decided: ContentDecision) -> CheckedStep {
    let ContentDecision { decision, reason, .. } = decided;
    CheckedStep {
        check: rule.name.clone(),
        moment,
        decision,
        reason,
        place: None,
        asked: false,
        changed: BTreeMap::new(),
        judged: BTreeSet::new(),
    }
}

pub(super) fn with(step: CheckedStep, decided: ContentDecision) -> CheckedStep {
    CheckedStep { decision: decided.decision, reason: decided.reason, ..step }
}
