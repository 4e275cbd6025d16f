//! The cost of a run under other prices (G12). Only calls with known tokens are priced again.
//! Everything else keeps its booked cost, and is reported as such: estimates, programs' own costs,
//! charges, and calls that are partly disputed.

use std::collections::BTreeMap;

use domain::{Amount, Usd, id::ModelName, wire::Usage};
use serde::Serialize;

use super::{journals::Journals, ledger::Ledger};
use crate::Trace;

/// The calls of one model, priced again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepricedModel {
    pub model: ModelName,
    pub calls: u64,
    /// The cost of these calls as booked.
    pub was: Usd,
    /// Their cost under the new prices; `None` if the table has no price for the model.
    pub would_be: Option<Usd>,
    /// The prices used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepricedRun {
    pub models: Vec<RepricedModel>,
    /// Costs that keep their amount.
    pub kept: Usd,
    pub was: Usd,
    /// The cost of the run under the new prices; `None` if a model has no price, because a part is
    /// then unknown.
    pub would_be: Option<Usd>,
    /// The part that is known: `kept`, and the models with a price.
    pub known: Usd,
}

impl RepricedRun {
    /// `price` returns the cost of a call and the prices that apply; `None` if the model has no
    /// price.
    pub fn of(
        trace: &Trace,
        ledger: &Ledger,
        journals: &Journals,
        price: impl Fn(&ModelName, &Usage) -> Option<(Usd, String)>,
    ) -> Self {
        let total = trace.root().map_or(Amount::ZERO, |root| root.budget.spent).cost_usd;
        let mut models: BTreeMap<&ModelName, RepricedModel> = BTreeMap::new();
        let mut seen = std::collections::HashSet::new();
        for (child_id, book) in journals.all() {
            let Some(sheet) = ledger.sheets.get(child_id) else { continue };
            for entry in book.paid.iter().filter(|entry| !entry.estimated) {
                let (Some(model), Some(usage)) = (&entry.model, &entry.usage) else { continue };
                let booked = sheet.calls.get(&entry.call_id).map(|call| call.booked);
                if booked != Some(entry.amount) || !seen.insert((child_id, &entry.call_id)) {
                    continue;
                }
                let fresh = || RepricedModel {
                    model: model.clone(),
                    calls: 0,
                    was: Usd::ZERO,
                    would_be: Some(Usd::ZERO),
                    prices: None,
                };
                let known = models.entry(model).or_insert_with(fresh);
                known.calls += 1;
                known.was = plus(known.was, entry.amount.cost_usd);
                let priced = price(model, usage);
                known.would_be = known.would_be.zip(priced.as_ref()).map(|(sum, (cost, _))| plus(sum, *cost));
                known.prices = priced.map(|(_, prices)| prices);
            }
        }
        let models: Vec<RepricedModel> = models.into_values().collect();
        let repriced = models.iter().fold(Usd::ZERO, |sum, model| plus(sum, model.was));
        let kept = Usd::from_nanos(total.nanos().saturating_sub(repriced.nanos()));
        let known = models.iter().filter_map(|model| model.would_be).fold(kept, plus);
        let is_whole = models.iter().all(|model| model.would_be.is_some());
        RepricedRun { models, kept, was: total, would_be: is_whole.then_some(known), known }
    }
}

/// Adds two amounts, up to the largest amount.
fn plus(a: Usd, b: Usd) -> Usd {
    Usd::from_nanos(a.nanos().saturating_add(b.nanos()).min(Usd::MAX_BOOKED.nanos()))
}
