//! The checks of one context: which ones, what they decided so far, and how one is run. `call` and `tool` put them around the
//! calls.

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

/// What about the call a check that reads content is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) moment: Moment,
    pub(super) tool: Option<&'a str>,
    pub(super) cost: Option<Usd>,
}

impl<'a> Checker<'a> {
    /// Reads what earlier attempts decided. The last decision may not have been told: it is told again.
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

    /// Whether an answer must not be shown before its checks have passed.
    pub(crate) fn guards_answers(&self) -> bool {
        self.rules.iter().any(|rule| rule.runs_on(Moment::AfterCall))
    }

    /// A context that a check halted does not go on.
    pub(crate) fn halted(&self) -> Option<Verdict> {
        self.recorded().halted()
    }

    /// How many answers of humans this context has used.
    pub(crate) fn answers_used(&self) -> usize {
        checkpoint::answers_before(self.attempt, self.journal, &human::name())
    }

    /// Takes an entry that was appended, and tells what its checks decided.
    pub(crate) async fn note(&self, entry: &HistoryEntry) {
        let count = {
            let mut recorded = self.recorded();
            recorded.add(entry);
            recorded.count += u32::try_from(notable(entry).count()).unwrap_or(u32::MAX);
            recorded.count
        };
        self.tell(entry, count).await;
    }

    /// Tells the decisions of an entry; the last of them has the number `last`.
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

    /// Appends a decision as an entry of its own, and tells it.
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

    /// Never held over an await.
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
