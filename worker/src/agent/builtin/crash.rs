//! `crash`: takes the whole worker process down, as a bug or the kernel would.

use shared::wire::Verdict;

use super::parameters::{Bad, Parameters};
use crate::agent::{
    run::Run,
    verdict::{failed, goal},
};

pub(super) fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, Bad> {
    let times = parameters.get_or("times", 1_u32)?;
    if run.attempt.number() > times {
        return Ok(goal(run.work()));
    }
    if !run.attempt.config.may_crash {
        return Ok(failed("crash needs a worker process of its own".into()));
    }
    tracing::error!("told to crash");
    std::process::abort()
}
