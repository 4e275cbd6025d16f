//! A provider of the scripted model for simulations, with its own bill. The script contains the
//! answers. The provider decides how a call ends, and takes its time for it.

use std::fmt;

use domain::{id::ModelName, wire::Usage};
use futures_util::future::BoxFuture;

pub trait SimulatedProvider: fmt::Debug + Send + Sync {
    /// Makes one call. The provider may charge this usage for it.
    fn call(&self, model: &ModelName, usage: Usage) -> BoxFuture<'static, CallEnd>;
}

/// The end of a call of a [`SimulatedProvider`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    Answered,
    /// The provider did no work, and charges nothing.
    Refused,
    /// The provider may have charged the call or not.
    BrokenOff,
}
