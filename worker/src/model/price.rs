//! What a model costs. A maintained table, and the operator's own prices before it. A price that is not
//! known is refused, never taken for nothing.

use std::collections::BTreeMap;

use shared::{Amount, Tokens, Usd, id::ModelName, wire::Usage};

use crate::settings::PriceEntry;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the price of `{0}` is not known")]
pub(crate) struct Unpriced(pub(crate) ModelName);

#[derive(Debug)]
pub(crate) struct Prices {
    own: BTreeMap<ModelName, PriceEntry>,
}

/// The price of one model: integer arithmetic, rounded up once a call.
#[derive(Debug, Clone)]
pub(crate) struct Price {
    entry: PriceEntry,
    /// The table it is from, and its version.
    pub(crate) version: String,
}

impl Prices {
    pub(crate) fn new(own: &BTreeMap<ModelName, PriceEntry>) -> Self {
        Prices { own: own.clone() }
    }

    pub(crate) fn of(&self, model: &ModelName) -> Result<Price, Unpriced> {
        if let Some(entry) = self.own.get(model) {
            return Ok(Price { entry: entry.clone(), version: "own".into() });
        }
        if super::scripted::is(model) {
            return Ok(Price { entry: super::scripted::price(), version: "scripted".into() });
        }
        Err(Unpriced(model.clone()))
    }
}

impl Price {
    /// The most a call can cost that sends this many tokens and may get so many back.
    pub(crate) fn worst(&self, input_tokens: u64, max_tokens: u32) -> Amount {
        self.cost(&Usage { input_tokens, output_tokens: max_tokens.into(), ..Usage::default() })
    }

    pub(crate) fn cost(&self, usage: &Usage) -> Amount {
        // Nano-dollars for a million tokens, times tokens, is 10^-15 dollars.
        let nanos = u128::from(self.entry.input.nanos()) * u128::from(usage.input_tokens)
            + u128::from(self.entry.output.nanos()) * u128::from(usage.output_tokens);
        let nanos = nanos.div_ceil(1_000_000);
        let usd = Usd::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Amount::new(usd, Tokens::new(usage.input_tokens.saturating_add(usage.output_tokens)))
    }

    /// The most tokens an answer may have so that the call costs no more than `left`.
    pub(crate) fn affordable(&self, input_tokens: u64, left: Amount, most: u32) -> Option<u32> {
        let fits = |max_tokens: u32| self.worst(input_tokens, max_tokens).exceeds(left).is_none();
        if !fits(1) {
            return None;
        }
        let (mut fit, mut too_much) = (1, most.saturating_add(1));
        while too_much - fit > 1 {
            let middle = fit + (too_much - fit) / 2;
            if fits(middle) { fit = middle } else { too_much = middle }
        }
        Some(fit)
    }
}
