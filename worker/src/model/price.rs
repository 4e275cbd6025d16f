//! The cost of a model: by the operator's own prices first, then by the price table. A missing
//! price is an error and never zero. All amounts are integers, rounded up once per call.

use std::collections::BTreeMap;

use domain::{Amount, Tokens, Usd, digest::sha256, id::ModelName, wire::Usage};

use super::{
    rates::{Rates, Tier},
    scripted, table,
};
use crate::settings::PriceEntry;

/// Prices are per million tokens.
const MILLION: u128 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PriceError {
    #[error(
        "the price of `{0}` is not known\n\nhint: set it in the worker's settings, in dollars per million tokens \
         ([prices.\"{0}\"] with `input` and `output`; 0 for a free model), or set `priced_as` of its provider to the \
         provider whose prices it charges"
    )]
    Unknown(ModelName),
    #[error("{0}")]
    NoProvider(NoProvider),
}

/// No provider serves a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no provider for `{model}`\n\nhint: write `<provider>/<model>`; the providers of this worker are {known}, and its settings can \
     name others ([providers.NAME])"
)]
pub(crate) struct NoProvider {
    pub(super) model: ModelName,
    /// The names of the configured providers.
    pub(super) known: String,
}

#[derive(Debug)]
pub(crate) struct Prices {
    own: BTreeMap<ModelName, PriceEntry>,
    /// A hash of `own`, recorded with every cost to show which prices applied.
    own_version: String,
}

/// The price of one model: integer arithmetic, rounded up once per call.
#[derive(Debug, Clone)]
pub(crate) struct Price {
    /// The tiers by their number of input tokens, in ascending order; never empty.
    pub(super) tiers: Vec<Tier>,
    /// The source of the price, and its version.
    pub(crate) version: String,
}

impl Prices {
    pub(crate) fn new(own: &BTreeMap<ModelName, PriceEntry>) -> Self {
        let text = serde_json::to_string(own).expect("names and amounts are JSON");
        let hash = sha256(text);
        Prices { own: own.clone(), own_version: format!("own sha256:{}", &hash[..12]) }
    }

    /// `priced_as` is the provider and the model in the price table, if its prices apply.
    pub(crate) fn price(
        &self,
        model: &ModelName,
        priced_as: Option<(&str, &str)>,
    ) -> Result<Price, PriceError> {
        let without_provider = model.as_str().split_once('/').map(|(_, name)| name);
        if let Some(entry) = self.own.get(model).or_else(|| self.own.get(without_provider?)) {
            return Ok(Price::flat(entry, self.own_version.clone()));
        }
        if scripted::is_scripted(model) {
            return Ok(Price::flat(&scripted::price(), scripted::NAME.into()));
        }
        let tiers = priced_as.and_then(|(provider, model)| table::tiers(provider, model));
        let tiers = tiers.ok_or_else(|| PriceError::Unknown(model.clone()))?;
        Ok(Price { tiers, version: table::VERSION.into() })
    }
}

impl Price {
    fn flat(entry: &PriceEntry, version: String) -> Self {
        let rates = Rates {
            input: entry.input.nanos(),
            cached: entry.cached_input.unwrap_or(entry.input).nanos(),
            cache_write: entry.cache_write.unwrap_or(entry.input).nanos(),
            output: entry.output.nanos(),
            call: 0,
        };
        Price { tiers: vec![Tier { from: 0, rates }], version }
    }

    /// The most a call can cost with at most these input and output tokens, for any share of tokens
    /// that is read from or written to a cache.
    pub(crate) fn worst_case(&self, input_tokens: u64, max_tokens: u32) -> Amount {
        // A tier for fewer tokens could be more expensive, so every reachable tier is compared.
        let reachable = self.tiers.iter().filter(|tier| tier.from <= input_tokens);
        let nanos = reachable.map(|tier| tier.rates.worst_case(input_tokens, max_tokens.into())).max();
        amount(nanos.unwrap_or(u128::MAX), input_tokens, max_tokens.into())
    }

    /// The cost of a call with this usage.
    pub(crate) fn cost(&self, usage: &Usage) -> Amount {
        let tier = self.tiers.iter().rev().find(|tier| tier.from <= usage.input_tokens);
        let nanos = tier.map_or(u128::MAX, |tier| tier.rates.cost(usage));
        amount(nanos, usage.input_tokens, usage.output_tokens)
    }

    /// The largest `max_tokens`, at most `most`, for which the worst case does not exceed `left`.
    pub(crate) fn affordable(&self, input_tokens: u64, left: Amount, most: u32) -> Option<u32> {
        let fits = |max_tokens: u32| self.worst_case(input_tokens, max_tokens).exceeds(left).is_none();
        if most == 0 || !fits(1) {
            return None;
        }
        let (mut fit, mut too_much) = (1, u64::from(most) + 1);
        while too_much - u64::from(fit) > 1 {
            let middle = u64::from(fit) + (too_much - u64::from(fit)) / 2;
            match u32::try_from(middle) {
                Ok(middle) if fits(middle) => fit = middle,
                Ok(_) | Err(_) => too_much = middle,
            }
        }
        Some(fit)
    }
}

impl Rates {
    /// Every input token at the highest rate: plain, cached or written to a cache.
    fn worst_case(&self, input: u64, output: u64) -> u128 {
        let highest = self.input.max(self.cached).max(self.cache_write);
        self.nanos(&[(highest, input), (self.output, output)])
    }

    fn cost(&self, usage: &Usage) -> u128 {
        // A provider may report parts that exceed the whole, so they are bounded here.
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let plain = usage.input_tokens - cached - written;
        self.nanos(&[
            (self.input, plain),
            (self.cached, cached),
            (self.cache_write, written),
            (self.output, usage.output_tokens),
        ])
    }

    fn nanos(&self, parts: &[(u64, u64)]) -> u128 {
        let tokens: u128 = parts
            .iter()
            .map(|(rate, tokens)| u128::from(*rate) * u128::from(*tokens))
            .fold(0, u128::saturating_add);
        tokens.div_ceil(MILLION).saturating_add(self.call.into())
    }
}

fn amount(nanos: u128, input_tokens: u64, output_tokens: u64) -> Amount {
    let usd = Usd::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    Amount::new(usd, Tokens::new(input_tokens.saturating_add(output_tokens)))
}
