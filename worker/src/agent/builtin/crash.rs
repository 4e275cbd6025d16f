//! `crash`: aborts the whole worker process, as a bug or the kernel would.

use domain::wire::Verdict;

use super::parameters::{InvalidParameter, Parameters};
use crate::agent::{
    run::Run,
    verdict::{failed, goal},
};

pub(super) fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let times = parameters.get_or("times", 1_u32)?;
    if run.attempt.number() > times {
        return Ok(goal(run.work()));
    }
    if !run.attempt.config.may_crash {
        return Ok(failed("`crash` runs only in a worker with its own process".into()));
    }
    tracing::warn!("aborting, because a `crash` agent runs");
    std::process::abort()
}
