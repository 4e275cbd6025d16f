//! Checks (B16): what an agent's profile, and those of its ancestors, have run before and after every paid call and every
//! tool call. A check passes, changes, denies the call, or halts the context; one that fails, is late or can't be
//! understood denies. They run in the order of the list; a change is seen by the next, and the first deny or halt ends it.
//!
//! Every decision is in the journal: with the entry of its call, or, before the call is made, in an entry of its own.
//! A later attempt reads it there and neither runs the check nor asks a human again. Decisions other than a pass are also told
//! to the coordinator, numbered as the journal has them; if an attempt ends between the entry and the telling, the next one
//! tells it.

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
