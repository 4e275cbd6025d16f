//! The output of the command line: text, tables, the tree of a run, questions and signals.

pub(crate) mod colour;
pub(crate) mod confirm;
pub(crate) mod display;
pub(crate) mod ending;
pub(crate) mod live;
pub(crate) mod missing_workers;
pub(crate) mod news;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod pager;
pub(crate) mod questions;
pub(crate) mod screen;
pub(crate) mod sheet;
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod yaml;
