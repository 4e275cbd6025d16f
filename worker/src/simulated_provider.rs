//! A provider of the scripted model that a simulation brings, with a bill of its own. The script says what is answered;
//! the provider says how a call ends, after as long as it takes.

use std::fmt;

use domain::{id::ModelName, wire::Usage};
use futures_util::future::BoxFuture;

pub trait SimulatedProvider: fmt::Debug + Send + Sync {
    /// One call, for which it may charge this usage.
    fn call(&self, model: &ModelName, usage: Usage) -> BoxFuture<'static, CallEnd>;
}

/// How a call of a [`SimulatedProvider`] ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    Answered,
    /// Nothing was done, and nothing is charged.
    Refused,
    /// It may be charged or not.
    BrokenOff,
}
