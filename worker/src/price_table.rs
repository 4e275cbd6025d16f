//! The prices of a settings file, for whoever asks what calls would have cost with them. No model is called, and no key is
//! needed.

use domain::{Amount, Problems, id::ModelName, wire::Usage};

use crate::{model::Models, settings::Settings};

/// The prices that a worker with these settings charges: its own first, then the price table of the release.
#[derive(Debug)]
pub struct PriceTable(Models);

/// What a call costs, and by which prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PricedCall {
    pub amount: Amount,
    /// The source of the price and its version, as the journal has it.
    pub prices: String,
}

impl PriceTable {
    pub fn new(settings: &Settings) -> Result<Self, Problems> {
        Models::new(settings).map(PriceTable)
    }

    /// What a call with this usage costs; none if the model has no price.
    pub fn cost(&self, model: &ModelName, usage: &Usage) -> Option<PricedCall> {
        let price = self.0.price(model).ok()?;
        Some(PricedCall { amount: price.cost(usage), prices: price.version.clone() })
    }
}
