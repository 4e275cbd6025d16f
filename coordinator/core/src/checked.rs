//! Checks (B16): which checks a context runs, and what they decided. A child also runs the checks
//! of its ancestors, outermost first, so that a spawn can't evade a check (I5). Workers run them;
//! the trace counts each decision other than a pass once.

use domain::{
    AgentProfile,
    check::{Check, CheckDecision},
    id::CheckName,
    wire::CheckReport,
    wording,
};

use super::{ContextIndex, ContextNode, Event, Refusal, Trace};

/// The longest reason that is stored.
const MAX_REASON_BYTES: usize = 1000;

/// Counts a reported decision.
pub(super) fn count(node: &mut ContextNode, number: u32, decision: CheckDecision) {
    node.lifecycle.checks_told = number;
    match decision {
        CheckDecision::Pass => {}
        CheckDecision::Change => node.lifecycle.checks.changed += 1,
        CheckDecision::Deny => node.lifecycle.checks.denied += 1,
        CheckDecision::Halt => node.lifecycle.checks.halted += 1,
    }
}

/// A second delivery has a number that was already counted, and changes nothing. Numbers may have
/// gaps, because a branch begins with the decisions of another context.
pub(super) fn checked(trace: &Trace, told: &CheckReport) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(trace.running(&told.lease)?);
    if told.number <= node.lifecycle.checks_told || told.decision == CheckDecision::Pass {
        return Ok(Vec::new());
    }
    Ok(vec![Event::Checked {
        child_id: node.id.clone(),
        number: told.number,
        check: told.check.clone(),
        moment: told.moment,
        decision: told.decision,
        reason: told.reason.clone().map(|reason| wording::cut(reason, MAX_REASON_BYTES)),
    }])
}

impl Trace {
    /// The checks of a context that runs `own`: those of its ancestors, outermost first, then its
    /// own. A check that an ancestor has as well runs once. `is_step`: the context is a step of its
    /// parent.
    pub(super) fn checks_of(
        &self,
        parent: Option<ContextIndex>,
        is_step: bool,
        own: &AgentProfile,
    ) -> Vec<Check> {
        let mut above = Vec::new();
        let mut is_step = is_step;
        for (_, node) in parent.into_iter().flat_map(|parent| self.chain(parent)) {
            // The agent of a graph did not start the graph's steps, so its checks do not apply to
            // them. They apply to the children that it spawns in its synthesis.
            let agent = node.spec.agent_id.as_ref().filter(|_| !is_step);
            above.extend(agent.and_then(|agent| self.agents.get(agent)).cloned());
            is_step = node.is_of_graph();
        }
        above.reverse();
        let mut all: Vec<Check> = Vec::new();
        for check in above.iter().flat_map(|agent| &agent.checks).chain(&own.checks) {
            let is_same = |other: &Check| Check { name: check.name.clone(), ..other.clone() } == *check;
            if !all.iter().any(|other| is_same(other) && is_named(&other.name, &check.name)) {
                let name = unique(&check.name, &all);
                all.push(Check { name, ..check.clone() });
            }
        }
        all
    }
}

/// Two profiles may give the same name to different checks: the second is then called `<name>-2`.
fn unique(name: &CheckName, taken: &[Check]) -> CheckName {
    let is_free = |candidate: &CheckName| taken.iter().all(|check| check.name != *candidate);
    let numbered = (2..).map(|number: u32| {
        let end = format!("-{number}");
        let kept = name.as_str().len().min(64 - end.len());
        CheckName::new(&format!("{}{end}", &name.as_str()[..kept])).expect("a name and a number")
    });
    std::iter::once(name.clone()).chain(numbered).find(is_free).expect("numbers do not end")
}

/// Returns true if a check that is called `has` in a list is called `name` in its profile.
fn is_named(has: &CheckName, name: &CheckName) -> bool {
    let numbered = |end: &str| end.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok());
    has == name || has.as_str().strip_prefix(name.as_str()).is_some_and(numbered)
}
