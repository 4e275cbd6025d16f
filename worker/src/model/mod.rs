//! Models: one call to any provider. Only this module knows providers. It makes calls, reports how
//! they ended, and knows prices. The decision whether a call may be made is in `billing`.

mod call;
mod chunks;
mod failure;
mod frames;
mod outages;
mod price;
mod provider;
mod rates;
mod request;
mod scripted;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer;
mod tool_names;
mod translate;
mod usage;
mod written_name;

use std::{collections::BTreeMap, sync::Arc};

use domain::{Problems, Tokens, id::ModelName};
use outages::Outages;
use price::{PriceError, Prices};
use provider::Providers;

use crate::{
    settings::{ModelEntry, Settings, Tokenizer},
    simulated_provider::SimulatedProvider,
};

pub(crate) use price::Price;
pub(crate) use request::{Completion, Error, Message, Request, ScriptInput, ToolSpec};

/// Every model a worker can call.
#[derive(Debug)]
pub(crate) struct Models {
    prices: Prices,
    providers: Providers,
    /// The operator's settings of models.
    known: BTreeMap<ModelName, ModelEntry>,
    /// The provider of the scripted model; `None` if the script itself answers.
    simulated: Option<Arc<dyn SimulatedProvider>>,
    outages: Outages,
}

impl Models {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Problems> {
        let (prices, providers) = (Prices::new(&settings.prices), Providers::new(settings)?);
        let (known, outages) = (settings.models.clone(), Outages::default());
        Ok(Models { prices, providers, known, simulated: None, outages })
    }

    /// Sets the provider of the scripted model, if there is one.
    pub(crate) fn simulated_by(self, provider: Option<Arc<dyn SimulatedProvider>>) -> Self {
        Models { simulated: provider, ..self }
    }

    pub(crate) fn price(&self, model: &ModelName) -> Result<Price, PriceError> {
        let priced = self.prices.price(model, self.providers.priced_as(model));
        // Without a provider for the model its price is useless, so the missing provider is the
        // better error.
        priced.map_err(|unpriced| self.providers.missing(model).map_or(unpriced, PriceError::NoProvider))
    }

    /// The tokenizer of a model, if it is known exactly.
    pub(crate) fn tokenizer(&self, model: &ModelName) -> Option<Tokenizer> {
        let named = self.known.get(model).and_then(|entry| entry.tokenizer);
        named.or_else(|| match self.providers.priced_as(model)? {
            (table::OPENAI, name) => Tokenizer::of_openai(name),
            _ => None,
        })
    }

    /// A model's provider, and the name by which the provider knows it.
    pub(crate) fn names<'a>(&'a self, model: &'a ModelName) -> (&'a str, &'a str) {
        self.providers.names(model).unwrap_or(("trellis", model.as_str()))
    }

    /// The window of a model: from the operator's settings, else from the table.
    pub(crate) fn window(&self, model: &ModelName) -> Option<Tokens> {
        let named = self.known.get(model).and_then(|entry| entry.window_tokens);
        named.or_else(|| {
            let (provider, name) = self.providers.priced_as(model)?;
            table::window(provider, name)
        })
    }

    /// Makes one call. `on_text` gets each piece of the answer's text as it arrives.
    pub(crate) async fn complete(
        &self,
        request: &Request<'_>,
        on_text: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Completion, Error> {
        if scripted::is_scripted(request.model) {
            let answer = scripted::complete(request, self.simulated.as_deref(), on_text);
            let late = || Error::Unknown { message: format!("no answer within {:?}", request.timeout) };
            return tokio::time::timeout(request.timeout, answer).await.unwrap_or_else(|_| Err(late()));
        }
        let route = self.providers.route(request.model)?;
        let answer = call::make(&route, request, on_text).await;
        self.outages.heard(route.provider, &answer);
        answer
    }
}
