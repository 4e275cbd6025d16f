//! The price table of the crate `genai-prices`, converted to integers. The crate has prices as
//! floats and computes only the price of a whole call. So the rate is the price of a call divided
//! by its tokens. No other file uses floats.

use domain::Tokens;
use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};

use super::rates::{Rates, Tier};

/// The crate and its version, as in the workspace's manifest.
pub(super) const VERSION: &str = "genai-prices 0.2.1";

/// The provider whose tokenizers are known.
pub(super) const OPENAI: &str = "openai";

/// More tokens than any context window has.
const MAX_INPUT_TOKENS: u32 = 1 << 30;
/// More tiers than any model has: they have one or two.
const MAX_TIERS: usize = 16;
/// The float error, in nano-dollars, that must not be rounded up to a whole one.
const FLOAT_ERROR: f64 = 1e-3;

/// The rates of a model by the number of input tokens. `None` without a price, or with a price of
/// zero for output: such a model does not chat, and a free model must be in the operator's own
/// prices.
pub(super) fn tiers(provider: &str, model: &str) -> Option<Vec<Tier>> {
    let last = rates(provider, model, MAX_INPUT_TOKENS)?;
    let mut tiers = vec![Tier { from: 0, rates: rates(provider, model, 1)? }];
    while let Some(tier) = tiers.last().filter(|tier| tier.rates != last) {
        let (mut same, mut other) = (u32::try_from(tier.from).ok()?.max(1), MAX_INPUT_TOKENS);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if rates(provider, model, middle)? == tier.rates { same = middle } else { other = middle }
        }
        tiers.push(Tier { from: other.into(), rates: rates(provider, model, other)? });
        if tiers.len() > MAX_TIERS {
            return None;
        }
    }
    (tiers.iter().all(|tier| tier.rates.output > 0)).then_some(tiers)
}

/// The window of a model in tokens, if the table has it.
pub(super) fn window(provider: &str, model: &str) -> Option<Tokens> {
    let usage = Usage::from([(UsageKey::INPUT_TOKENS, 1.0)]);
    let request = PriceRequest::new(model, &usage).with_provider_id(provider);
    let priced = genai_prices::calculate(&request).ok()?;
    let provider = Calculator::bundled().find_provider(Some(provider), None).ok()??;
    let known = provider.models().find(|known| known.id() == priced.model_id)?;
    known.context_window().map(Tokens::new)
}

/// The rates of a call with this many input tokens.
fn rates(provider: &str, model: &str, tokens: u32) -> Option<Rates> {
    let count = f64::from(tokens);
    let priced = |more: &[UsageKey]| {
        let mut usage = Usage::from([(UsageKey::INPUT_TOKENS, count)]);
        for key in more {
            usage.insert(key.clone(), count);
        }
        let request = PriceRequest::new(model, &usage).with_provider_id(provider);
        // A price with warnings is incomplete and not used.
        genai_prices::calculate(&request).ok().filter(|price| price.warnings.is_empty())
    };
    let plain = priced(&[UsageKey::OUTPUT_TOKENS])?;
    Some(Rates {
        input: nanos_per_million(plain.input_price, count)?,
        cached: nanos_per_million(priced(&[UsageKey::CACHE_READ_TOKENS])?.input_price, count)?,
        cache_write: nanos_per_million(priced(&[UsageKey::CACHE_WRITE_TOKENS])?.input_price, count)?,
        output: nanos_per_million(plain.output_price, count)?,
        call: per_call(plain.total_price, plain.input_price, plain.output_price)?,
    })
}

/// The price of this many tokens in dollars, as nano-dollars per million tokens, rounded up.
#[expect(clippy::float_arithmetic, reason = "the prices in the table are floats, converted here")]
fn nanos_per_million(dollars: f64, tokens: f64) -> Option<u64> {
    round_up(dollars / tokens * 1e6 * 1e9)
}

/// The fee per call besides the tokens, in nano-dollars.
#[expect(clippy::float_arithmetic, reason = "the prices in the table are floats, converted here")]
fn per_call(total: f64, input: f64, output: f64) -> Option<u64> {
    // The sum has a larger float error than its parts.
    let fee = total - (input + output);
    if fee.abs() <= total * 1e-12 { Some(0) } else { round_up(fee * 1e9) }
}

#[expect(clippy::float_arithmetic, reason = "the prices in the table are floats, converted here")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
fn round_up(nanos: f64) -> Option<u64> {
    let nanos = (nanos - FLOAT_ERROR).ceil().max(0.0);
    (nanos.is_finite() && nanos < 1e18).then_some(nanos as u64)
}
