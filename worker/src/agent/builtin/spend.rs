//! `spend`: paid calls without a provider. An attempt skips the calls that earlier attempts paid
//! for, as far as the budget shows them.

use std::time::Duration;

use domain::{
    Amount, Json, Tokens, Usd,
    wire::{FailureKind, Refusal, Verdict, exhausted},
};
use serde_json::json;
use text::set_limit::UsedLimit;

use super::parameters::{InvalidParameter, Parameters};
use crate::{
    agent::{
        run::Run,
        verdict::{completed, failed_as, limit_exceeded, out_of_budget},
    },
    billing::meter::Hold,
};

const MAX_CALLS: u32 = 10_000;
const MAX_CALL_MS: u32 = 24 * 3600 * 1000;

pub(super) async fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let usd = parameters.get_or("usd", Usd::from_cents(1))?;
    let tokens = parameters.get_or("tokens", Tokens::new(100))?;
    let calls = parameters.count("calls", 1, 0, MAX_CALLS)?;
    let ms = parameters.count("ms", 0, 0, MAX_CALL_MS)?;
    let hold_usd = parameters.get_or("hold_usd", usd)?;
    let (cost, hold) = (Amount::new(usd, tokens), Amount::new(hold_usd, tokens));
    let max_steps = run.work().limits.max_steps;
    for step in calls_paid(run.work().budget.own, cost).min(calls)..calls {
        if step >= max_steps {
            return Ok(limit_exceeded(&UsedLimit::new("max_steps", step, max_steps)));
        }
        let call_id = run.meter.next_call();
        match run.meter.hold(&call_id, hold, false, None).await {
            Hold::Held => {}
            // There is no cheaper call to fall back to: the context waits for a raise if it may, or
            // ends (B5, B8).
            Hold::Crowded(_) => return Ok(Verdict::OutOfBudget),
            Hold::Denied(denied) if denied.pause => return Ok(Verdict::OutOfBudget),
            Hold::Denied(denied) => return Ok(out_of_budget(denied.describe("hold"))),
            Hold::Halt { pause: true, .. } => return Ok(Verdict::OutOfBudget),
            Hold::Halt { context, dimension, pause: false } => {
                return Ok(out_of_budget(exhausted(&context, dimension)));
            }
            Hold::News(_) => {
                return Ok(failed_as(FailureKind::Refused, Refusal::unexpected("hold").to_text()));
            }
            Hold::Refused(refusal) => {
                return Ok(failed_as(FailureKind::Refused, refusal.to_text()));
            }
        }
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms.into())).await;
        }
        run.meter.settle(&call_id, cost.into()).await;
        run.attempt.progress.count_step();
    }
    let spent = usd.nanos().checked_mul(calls.into()).map(Usd::from_nanos);
    let spent = spent.map_or_else(|| "more than can be shown".into(), |usd| usd.to_string());
    Ok(completed(Json::from(json!({"calls": calls, "spent_usd": spent.trim_start_matches('$')}))))
}

/// The number of calls of this cost that the budget already contains.
fn calls_paid(own: Amount, cost: Amount) -> u32 {
    let times = match (cost.cost_usd.nanos(), cost.tokens.count()) {
        (0, 0) => 0,
        (0, tokens) => own.tokens.count() / tokens,
        (nanos, _) => own.cost_usd.nanos() / nanos,
    };
    u32::try_from(times).unwrap_or(u32::MAX)
}
