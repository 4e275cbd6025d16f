//! The prices of a settings file, to compute the cost that past calls would have had with them. It
//! calls no model and needs no key.

use domain::{Amount, Problems, id::ModelName, wire::Usage};

use crate::{model::Models, settings::Settings};

/// The prices that a worker with these settings charges: its own first, then the price table of the release.
#[derive(Debug)]
pub struct PriceTable(Models);

/// The cost of a call, and the version of its prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PricedCall {
    pub amount: Amount,
    /// The source of the price and its version, as in the journal.
    pub prices: String,
}

impl PriceTable {
    pub fn new(settings: &Settings) -> Result<Self, Problems> {
        Models::new(settings).map(PriceTable)
    }

    /// The cost of a call with this usage; `None` if the model has no price.
    pub fn cost(&self, model: &ModelName, usage: &Usage) -> Option<PricedCall> {
        let price = self.0.price(model).ok()?;
        Some(PricedCall { amount: price.cost(usage), prices: price.version.clone() })
    }
}
