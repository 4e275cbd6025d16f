//! The price table of the crate `genai-prices`, read into whole numbers. It has prices as floats and
//! answers for whole calls only, so that a price for a token is what a call of that many would cost,
//! divided. Nothing else here sees a float.

use genai_prices::{PriceRequest, Usage, UsageKey};

use super::rates::{Rates, Tier};

/// The table and its release, as it stands in the workspace's manifest.
pub(super) const VERSION: &str = "genai-prices 0.2.1";

/// More than any window.
const MOST_TOKENS: u32 = 1 << 30;
/// A model has one or two.
const MOST_TIERS: usize = 16;
/// What floats add to a whole number of nano-dollars and must not round up.
const NOISE: f64 = 1e-3;

/// What a model costs by the length of what it is sent. None if the table does not know, or says that
/// answers cost nothing: such a model does not chat, and what is free must be written down.
pub(super) fn tiers(provider: &str, model: &str) -> Option<Vec<Tier>> {
    let last = rates(provider, model, MOST_TOKENS)?;
    let mut tiers = vec![Tier { from: 0, rates: rates(provider, model, 1)? }];
    while let Some(tier) = tiers.last().filter(|tier| tier.rates != last) {
        let (mut same, mut other) = (u32::try_from(tier.from).ok()?.max(1), MOST_TOKENS);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if rates(provider, model, middle)? == tier.rates { same = middle } else { other = middle }
        }
        tiers.push(Tier { from: other.into(), rates: rates(provider, model, other)? });
        if tiers.len() > MOST_TIERS {
            return None;
        }
    }
    (tiers.iter().all(|tier| tier.rates.output > 0)).then_some(tiers)
}

/// What a token costs in a call that is sent so many.
fn rates(provider: &str, model: &str, tokens: u32) -> Option<Rates> {
    let many = f64::from(tokens);
    let priced = |more: &[UsageKey]| {
        let mut usage = Usage::from([(UsageKey::INPUT_TOKENS, many)]);
        for key in more {
            usage.insert(key.clone(), many);
        }
        let request = PriceRequest::new(model, &usage).with_provider_id(provider);
        // A price it can't work out whole is no price.
        genai_prices::calculate(&request).ok().filter(|price| price.warnings.is_empty())
    };
    let plain = priced(&[UsageKey::OUTPUT_TOKENS])?;
    Some(Rates {
        input: whole(plain.input_price, many)?,
        cached: whole(priced(&[UsageKey::CACHE_READ_TOKENS])?.input_price, many)?,
        cache_write: whole(priced(&[UsageKey::CACHE_WRITE_TOKENS])?.input_price, many)?,
        output: whole(plain.output_price, many)?,
        call: per_call(plain.total_price, plain.input_price, plain.output_price)?,
    })
}

/// Dollars for so many tokens as nano-dollars for a million, rounded up.
#[expect(clippy::float_arithmetic, reason = "the table has floats; this is where they end")]
fn whole(dollars: f64, tokens: f64) -> Option<u64> {
    up(dollars / tokens * 1e6 * 1e9)
}

/// What is asked for beside the tokens, in nano-dollars.
#[expect(clippy::float_arithmetic, reason = "the table has floats; this is where they end")]
fn per_call(total: f64, input: f64, output: f64) -> Option<u64> {
    // The sum of large numbers carries more noise than any of them.
    let fee = total - (input + output);
    if fee.abs() <= total * 1e-12 { Some(0) } else { up(fee * 1e9) }
}

#[expect(clippy::float_arithmetic, reason = "the table has floats; this is where they end")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
fn up(nanos: f64) -> Option<u64> {
    let nanos = (nanos - NOISE).ceil().max(0.0);
    (nanos.is_finite() && nanos < 1e18).then_some(nanos as u64)
}
