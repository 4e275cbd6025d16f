//! `sleep`, `fail` and `panic`: agents that take time or go wrong.

use std::time::Duration;

use domain::{
    limits::MAX_TIMEOUT_MS,
    wire::{Failure, FailureKind, Verdict},
};

use super::parameters::{InvalidParameter, Parameters};
use crate::agent::{run::Run, verdict::goal};

pub(super) async fn sleep(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let ms = parameters.get_or("ms", 1_000_u64)?;
    if ms > MAX_TIMEOUT_MS {
        return Err(InvalidParameter {
            name: "ms",
            reason: format!("{ms} is more than a year ({MAX_TIMEOUT_MS})"),
        });
    }
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(goal(run.work()))
}

pub(super) fn fail(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let times = parameters.get_or("times", u32::MAX)?;
    let message = parameters.get_or("message", "failed as requested".to_owned())?;
    let retryable = parameters.get_or("retryable", true)?;
    if run.attempt.number() > times {
        return Ok(goal(run.work()));
    }
    Ok(Verdict::Failed(Failure { kind: FailureKind::Agent, message, retryable }))
}

pub(super) fn panic(run: &Run<'_>) -> Result<Verdict, InvalidParameter> {
    panic!("panic as requested, in attempt {}", run.attempt.number())
}
