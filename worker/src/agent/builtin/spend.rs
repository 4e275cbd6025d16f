//! `spend`: paid calls with no provider behind them. What earlier attempts paid for is not paid again,
//! as far as the books show it.

use std::time::Duration;

use serde_json::json;
use shared::{
    Amount, Dimension, Json, Tokens, Usd,
    wire::{Failure, FailureKind, HoldDenied, Verdict},
};

use super::{Bad, Parameters, Run, completed};
use crate::billing::meter::Hold;

const MOST_CALLS: u32 = 10_000;
const LONGEST_CALL_MS: u32 = 24 * 3600 * 1000;

pub(super) async fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, Bad> {
    let usd = parameters.get_or("usd", Usd::from_cents(1))?;
    let tokens = parameters.get_or("tokens", Tokens::new(100))?;
    let calls = parameters.count("calls", 1, 0, MOST_CALLS)?;
    let ms = parameters.count("ms", 0, 0, LONGEST_CALL_MS)?;
    let hold_usd = parameters.get_or("hold_usd", usd)?;
    let (cost, hold) = (Amount::new(usd, tokens), Amount::new(hold_usd, tokens));
    for _ in paid(run.work.budget.own, cost).min(calls)..calls {
        let call_id = run.meter.next_call();
        match run.meter.hold(&call_id, hold, false).await {
            Hold::Held => {}
            // Nothing cheaper would do: it waits for more if it may, or stops (B5, B8).
            Hold::Denied(denied) if denied.pause => return Ok(Verdict::OutOfBudget),
            Hold::Denied(denied) => return Ok(failed(FailureKind::Budget, denial(&denied))),
            Hold::Halt { pause: true, .. } => return Ok(Verdict::OutOfBudget),
            Hold::Halt { context, dimension, pause: false } => {
                return Ok(failed(
                    FailureKind::Budget,
                    format!("the {dimension} budget of `{context}` is used up"),
                ));
            }
            Hold::Refused(refusal) => {
                return Ok(failed(FailureKind::Refused, format!("{} ({})", refusal.message, refusal.rule)));
            }
        }
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms.into())).await;
        }
        run.meter.settle(&call_id, cost.into()).await;
        run.counters.step();
    }
    let spent = usd.nanos().checked_mul(calls.into()).map(Usd::from_nanos);
    let spent = spent.map_or_else(|| "more than can be shown".into(), |usd| usd.to_string());
    Ok(completed(Json::from(json!({"calls": calls, "spent_usd": spent.trim_start_matches('$')}))))
}

/// How many calls of this cost the books already show.
fn paid(own: Amount, cost: Amount) -> u32 {
    let times = match (cost.cost_usd.nanos(), cost.tokens.count()) {
        (0, 0) => 0,
        (0, tokens) => own.tokens.count() / tokens,
        (nanos, _) => own.cost_usd.nanos() / nanos,
    };
    u32::try_from(times).unwrap_or(u32::MAX)
}

fn failed(kind: FailureKind, message: String) -> Verdict {
    Verdict::Failed(Failure { kind, message, retryable: false })
}

pub(crate) fn denial(denied: &HoldDenied) -> String {
    let HoldDenied { context, asked, limit, spent, held, left_usd, left_tokens, .. } = denied;
    match denied.dimension {
        Dimension::Cost => format!(
            "a hold of {} was denied by the cost budget of `{context}`: limit {}, spent {}, held {}, left \
             {left_usd}",
            asked.cost_usd, limit.cost_usd, spent.cost_usd, held.cost_usd
        ),
        Dimension::Tokens => format!(
            "a hold of {} tokens was denied by the token budget of `{context}`: limit {}, spent {}, held {}, \
             left {left_tokens}",
            asked.tokens, limit.tokens, spent.tokens, held.tokens
        ),
    }
}
