//! Checks (B16). They come from an agent's profile and those of its ancestors, and run before and
//! after every paid call and every tool call. A check passes, changes, denies the call, or halts
//! the context. A check that fails, is late or gives an invalid answer denies. Checks run in the
//! order of the list: each sees the changes of earlier checks, and the first deny or halt ends the
//! list.
//!
//! Every decision is in the journal: in the entry of its call, or, before the call is made, in a
//! separate entry. A later attempt reads it there, and neither runs the check nor asks a human
//! again. Decisions other than a pass are also reported to the coordinator, with their number in
//! the journal. If an attempt ends between the entry and the report, the next attempt reports it.

mod answer;
mod approval;
mod call;
mod checker;
mod content;
mod gate;
mod messages;
mod outside;
mod rate;
mod recorded;
mod redaction;
mod rule;
mod tool;

pub(crate) use call::ModelCall;
pub(crate) use checker::Checker;
pub(crate) use gate::{Gate, GatePass, GateStop};
pub(crate) use outside::Outside;
pub(crate) use redaction::Redaction;
