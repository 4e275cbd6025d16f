//! Paid calls: the bound of a call, its hold, the call itself, and its cost. Models are called only
//! here, and every hold and cost goes through the meter.

mod content;
pub(crate) mod meter;
pub(crate) mod model_call;
mod prompt;
pub(crate) mod token_bound;
