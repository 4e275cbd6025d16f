//! The provider of the simulated models. Its bill is the only account of money that does not come
//! from Trellis. In trouble it is slow, refuses calls, and breaks them off, with and without
//! charging.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{id::ModelName, wire::Usage};
use futures_util::{FutureExt, future::BoxFuture};
use worker::{CallEnd, SimulatedProvider};

use super::chance::Chance;

/// The prices of the scripted model, in nano-dollars per token.
const INPUT_NANOS: u64 = 3_000;
const OUTPUT_NANOS: u64 = 15_000;

#[derive(Debug, Clone)]
pub(super) struct Provider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    chance: Chance,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_trouble: bool,
    bill: BTreeMap<ModelName, u64>,
}

impl Provider {
    pub(super) fn new(chance: Chance) -> Self {
        Provider(Arc::new(Inner { chance, state: Mutex::default() }))
    }

    pub(super) fn set_trouble(&self, in_trouble: bool) {
        self.with(|state| state.in_trouble = in_trouble);
    }

    /// The cost of all calls of a model so far, in nano-dollars.
    pub(super) fn billed(&self, model: &str) -> u64 {
        self.with(|state| {
            state.bill.iter().find(|(name, _)| name.as_str() == model).map_or(0, |(_, nanos)| *nanos)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn charge(&self, model: &ModelName, usage: Usage) {
        let nanos = usage.input_tokens * INPUT_NANOS + usage.output_tokens * OUTPUT_NANOS;
        self.with(|state| *state.bill.entry(model.clone()).or_default() += nanos);
    }
}

impl SimulatedProvider for Provider {
    /// All choices are made when the call begins, so that they don't depend on the order in which
    /// calls end.
    fn call(&self, model: &ModelName, usage: Usage) -> BoxFuture<'static, CallEnd> {
        let (provider, model, chance) = (self.clone(), model.clone(), &self.0.chance);
        let in_trouble = self.with(|state| state.in_trouble);
        let end = match chance.between(1, 10) {
            1 if in_trouble => CallEnd::Refused,
            2 if in_trouble => CallEnd::BrokenOff,
            _ => CallEnd::Answered,
        };
        let slow = in_trouble && chance.percent(15);
        let takes = if slow { chance.millis(5_000, 30_000) } else { chance.millis(1, 2_000) };
        let charges = match end {
            CallEnd::Answered => true,
            CallEnd::Refused => false,
            CallEnd::BrokenOff => chance.percent(50),
        };
        // A call that is cut off while it runs may already be on the bill.
        let at_once = chance.percent(50);
        async move {
            if charges && at_once {
                provider.charge(&model, usage);
            }
            tokio::time::sleep(takes).await;
            if charges && !at_once {
                provider.charge(&model, usage);
            }
            end
        }
        .boxed()
    }
}
