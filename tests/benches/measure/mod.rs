//! Shared parts of the benchmarks: measuring, and options on the command line.

pub(crate) mod meter;
pub(crate) mod options;
