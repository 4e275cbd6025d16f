//! Paid calls: the bound of a call, its hold, the call itself, and what it cost. Models are
//! called nowhere else, and every hold and cost goes through its meter.

mod content;
pub(crate) mod meter;
pub(crate) mod model_call;
mod prompt;
pub(crate) mod token_bound;
