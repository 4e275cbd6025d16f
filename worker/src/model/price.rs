//! What a model costs: the operator's own prices, then the table. A price that is not known is refused,
//! never taken for nothing. Whole numbers throughout, rounded up once a call.

use std::collections::BTreeMap;

use shared::{Amount, Tokens, Usd, digest::sha256, id::ModelName, wire::Usage};

use super::{
    rates::{Rates, Tier},
    scripted, table,
};
use crate::settings::PriceEntry;

/// Prices are for a million tokens.
const MILLION: u128 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the price of `{0}` is not known\n\nhint: write it into the worker's settings, in dollars for a million tokens \
     ([prices.\"{0}\"] with `input` and `output`; 0 for a model that costs nothing), or name in `priced_as` of its \
     provider whose prices it has"
)]
pub(crate) struct Unpriced(pub(crate) ModelName);

#[derive(Debug)]
pub(crate) struct Prices {
    own: BTreeMap<ModelName, PriceEntry>,
    /// Names what is in `own`, so that a cost can be traced to the prices of its day.
    own_version: String,
}

/// The price of one model: integer arithmetic, rounded up once a call.
#[derive(Debug, Clone)]
pub(crate) struct Price {
    /// By the length of what is sent, from nothing upwards; never empty.
    pub(super) tiers: Vec<Tier>,
    /// The table it is from, and its version.
    pub(crate) version: String,
}

impl Prices {
    pub(crate) fn new(own: &BTreeMap<ModelName, PriceEntry>) -> Self {
        let text = serde_json::to_string(own).expect("names and amounts are JSON");
        let hash = sha256(text);
        Prices { own: own.clone(), own_version: format!("own sha256:{}", &hash[..12]) }
    }

    /// `priced_as` is the provider of the table and the model there, if its prices apply.
    pub(crate) fn of(&self, model: &ModelName, priced_as: Option<(&str, &str)>) -> Result<Price, Unpriced> {
        let bare = model.as_str().split_once('/').map(|(_, bare)| bare);
        if let Some(entry) = self.own.get(model).or_else(|| self.own.get(bare?)) {
            return Ok(Price::flat(entry, self.own_version.clone()));
        }
        if scripted::is(model) {
            return Ok(Price::flat(&scripted::price(), scripted::NAME.into()));
        }
        let tiers = priced_as.and_then(|(provider, model)| table::tiers(provider, model));
        let tiers = tiers.ok_or_else(|| Unpriced(model.clone()))?;
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

    /// The most a call can cost that is sent at most so many tokens and gives at most so many back,
    /// whatever comes from a cache or goes into one.
    pub(crate) fn worst(&self, input_tokens: u64, max_tokens: u32) -> Amount {
        // Fewer tokens may be dearer, if a table ever says so: every tier within reach is looked at.
        let within_reach = self.tiers.iter().filter(|tier| tier.from <= input_tokens);
        let nanos = within_reach.map(|tier| tier.rates.worst(input_tokens, max_tokens.into())).max();
        amount(nanos.unwrap_or(u128::MAX), input_tokens, max_tokens.into())
    }

    pub(crate) fn cost(&self, usage: &Usage) -> Amount {
        let tier = self.tiers.iter().rev().find(|tier| tier.from <= usage.input_tokens);
        let nanos = tier.map_or(u128::MAX, |tier| tier.rates.cost(usage));
        amount(nanos, usage.input_tokens, usage.output_tokens)
    }

    /// The most tokens an answer may have so that the call costs no more than `left`.
    pub(crate) fn affordable(&self, input_tokens: u64, left: Amount, most: u32) -> Option<u32> {
        let fits = |max_tokens: u32| self.worst(input_tokens, max_tokens).exceeds(left).is_none();
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
    /// Of all this many can be: fresh, cached or written.
    fn worst(&self, input: u64, output: u64) -> u128 {
        let dearest = self.input.max(self.cached).max(self.cache_write);
        self.nanos(&[(dearest, input), (self.output, output)])
    }

    fn cost(&self, usage: &Usage) -> u128 {
        // Parts can't be more than the whole, whatever a provider says.
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let fresh = usage.input_tokens - cached - written;
        self.nanos(&[
            (self.input, fresh),
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
