//! Paid calls: the bound of a call, its hold, the call itself, and what it cost. Nothing outside this folder
//! calls a model or settles a cost.

pub(crate) mod meter;
pub(crate) mod model_call;
pub(crate) mod token_bound;
