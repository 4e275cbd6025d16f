//! Paid calls: their bound, their hold, the call itself and what it cost.

pub(crate) mod meter;
pub(crate) mod model_call;
mod token_bound;
