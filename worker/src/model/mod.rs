//! Models: one call, whatever provider it goes to. Only this module knows providers. It makes calls and
//! tells what became of them; whether a call may be made and what it costs is decided elsewhere.

mod call;
mod chunks;
mod failure;
mod price;
mod provider;
mod rates;
mod request;
mod scripted;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod tool_names;
mod translate;
mod usage;

use shared::{Problems, id::ModelName};

use crate::settings::Settings;
use price::{Prices, Unpriced};
use provider::Providers;

pub(crate) use price::Price;
pub(crate) use request::{Completion, Cue, Error, Message, Request, ToolSpec};

/// Every model a worker can call.
#[derive(Debug)]
pub(crate) struct Models {
    prices: Prices,
    providers: Providers,
}

impl Models {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Problems> {
        Ok(Models { prices: Prices::new(&settings.prices), providers: Providers::new(settings)? })
    }

    pub(crate) fn price(&self, model: &ModelName) -> Result<Price, Unpriced> {
        self.prices.of(model, self.providers.priced_as(model))
    }

    /// Makes one call. Pieces of text are handed on as they come.
    pub(crate) async fn complete(
        &self,
        request: &Request<'_>,
        said: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Completion, Error> {
        if scripted::is(request.model) {
            return scripted::complete(request, said).await;
        }
        call::make(&self.providers.route(request.model)?, request, said).await
    }
}
