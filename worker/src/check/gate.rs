//! Whether a call may be made, and if not, why.

use domain::{
    check::CheckDecision,
    id::CheckName,
    wire::{CheckedStep, Text},
};

/// Whether a call may be made.
#[derive(Debug)]
pub(crate) enum Gate<T> {
    Open(T),
    Stopped(GateStop),
    /// A human must approve it.
    Asks {
        question: Text,
    },
}

#[derive(Debug)]
pub(crate) struct GatePass<T> {
    /// The changed content, if a check changed it.
    pub(crate) changed: Option<T>,
    /// The passes, for the entry of the call.
    pub(crate) passed: Vec<CheckedStep>,
}

/// A check denied a call, or halted its context.
#[derive(Debug)]
pub(crate) struct GateStop {
    pub(crate) check: CheckName,
    pub(crate) halts: bool,
    pub(crate) reason: String,
    /// The decision, for the entry of the call; none if it is in the journal already.
    pub(crate) step: Option<CheckedStep>,
}

impl GateStop {
    /// As agents and people read it.
    pub(crate) fn describe(&self) -> String {
        let GateStop { check, halts, reason, .. } = self;
        let how = if *halts { "halted" } else { "denied" };
        format!("{how} by the check `{check}`: {reason}")
    }

    fn new(step: &CheckedStep) -> Self {
        let halts = step.decision == CheckDecision::Halt;
        GateStop {
            check: step.check.clone(),
            halts,
            reason: step.reason.clone().unwrap_or_default(),
            step: None,
        }
    }

    /// None if the decision lets the call go on.
    pub(super) fn by(step: &CheckedStep) -> Option<Self> {
        match step.decision {
            CheckDecision::Pass | CheckDecision::Change => None,
            CheckDecision::Deny | CheckDecision::Halt => Some(GateStop::new(step)),
        }
    }
}
