//! The gate before a call: open, stopped by a check, or waiting for a human.

use domain::{
    check::CheckDecision,
    id::CheckName,
    wire::{CheckedStep, Text},
};

/// The decision of all checks about a call.
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
    /// The checks that passed, for the entry of the call.
    pub(crate) passed: Vec<CheckedStep>,
}

/// A check denied a call, or halted its context.
#[derive(Debug)]
pub(crate) struct GateStop {
    pub(crate) check: CheckName,
    pub(crate) halts: bool,
    pub(crate) reason: String,
    /// The decision, for the entry of the call; `None` if it is in the journal already.
    pub(crate) step: Option<CheckedStep>,
}

impl GateStop {
    /// The text for agents and users.
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

    /// Returns `None` if the decision allows the call.
    pub(super) fn by(step: &CheckedStep) -> Option<Self> {
        match step.decision {
            CheckDecision::Pass | CheckDecision::Change => None,
            CheckDecision::Deny | CheckDecision::Halt => Some(GateStop::new(step)),
        }
    }
}
