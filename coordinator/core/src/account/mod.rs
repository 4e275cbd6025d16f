//! The cost of a run and its reasons, from its event log and its journals: the ledger of all
//! bookings, the waiting times of each context, the receipt (B19, G12) and the audit. This module
//! only reads: it neither changes a trace nor decides about one.
//!
//! The ledger adds up the events by itself, without `budget_walk`, because the audit compares the
//! two.

mod audit;
mod finding;
mod journals;
mod ledger;
mod log;
mod receipt;
mod reprice;
mod spans;
mod waits;
mod words;

pub use audit::{Audit, StoreState};
pub use finding::{Check, Finding};
pub use journals::{JournalBook, Journals, PaidEntry, ToolEntry};
pub use ledger::{BookingReason, Ledger, Posting};
pub use log::{LogMessage, Place, ReadLog};
pub use receipt::{ByModel, ContextAccount, Cost, Line, Receipt, UnmodelledCost};
pub use reprice::{RepricedModel, RepricedRun};
pub use spans::entry_of;
pub use waits::{Wait, Waits};
pub use words::{detail, kind};
