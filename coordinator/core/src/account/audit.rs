//! The audit of a trace (B19, G12). It checks four things:
//!
//! - The log is complete.
//! - The state in the store equals the state replayed from the log.
//! - An event books every cent that a context has spent, and the sums agree at every level.
//! - Every paid entry of a journal is booked at its amount, and no booking is missing from a
//!   journal that must contain it.
//!
//! Each finding is a fault. Unusual facts with an explanation are notes.

use std::collections::{HashMap, HashSet};

use domain::{Amount, ChildId};

use super::{
    finding::{Check, Finding},
    journals::{JournalBook, Journals},
    ledger::{CallSheet, Ledger, Sheet},
    log::ReadLog,
};
use crate::{ContextNode, Trace};

/// The state of a trace in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreState {
    pub version: u64,
    pub digest: String,
    /// The amount that its root has spent.
    pub spent: Amount,
}

/// The findings of an audit. They describe one moment: a live trace may get more events.
#[derive(Debug)]
pub struct Audit {
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
    /// The number of paid journal entries that are booked at their amount.
    pub agreed: usize,
    /// The number of bookings that need no entry in a journal: estimates, charges, programs' own
    /// costs, and answers that arrived too late.
    pub unjournaled: usize,
    /// The number of contexts that have costs and no journal.
    pub without_journal: usize,
}

impl Audit {
    /// Compares a log with itself, with the store and with the journals. `store` is `None` if the
    /// store no longer has the trace.
    pub fn of(log: &ReadLog, ledger: &Ledger, journals: &Journals, store: Option<&StoreState>) -> Self {
        let mut audit = Audit {
            findings: log.findings.clone(),
            notes: log.notes.clone(),
            agreed: 0,
            unjournaled: 0,
            without_journal: 0,
        };
        if log.first() > 1 {
            audit.notes.push(format!(
                "the log begins with a copy of the whole state, before event {}: earlier spending is read from that copy",
                log.first()
            ));
        }
        audit.books(log.trace(), ledger);
        audit.store(log.trace(), store);
        audit.journals(log.trace(), ledger, journals);
        audit.findings.sort_by_key(|finding| finding.check);
        audit
    }

    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings of one check.
    pub fn of_check(&self, check: Check) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.check == check)
    }

    /// Compares the sums of the bookings with the budgets in the state replayed from the log.
    fn books(&mut self, trace: &Trace, ledger: &Ledger) {
        for (place, what) in &ledger.wrong {
            let what = format!("event {}: {what}", place.event);
            self.findings
                .push(Finding { sequence: Some(place.sequence), ..Finding::new(Check::Books, what) });
        }
        let mut total = Some(Amount::ZERO);
        for node in trace.contexts() {
            let own = ledger.own(&node.id);
            total = total.and_then(|total| total.checked_add(own));
            if own != node.budget.own {
                let what = format!("its events add up to {own}, but its own cost is {}", node.budget.own);
                self.findings.push(Finding::of(Check::Books, &node.id, what));
            }
            let (spent, held) = beneath(trace, node, ledger.sheets.get(&node.id));
            if spent != Some(node.budget.spent) {
                let (of, sum) = (node.budget.spent, spent.map_or("too much".into(), |sum| sum.to_string()));
                let what = format!("its own cost and its children's add up to {sum}, but it has spent {of}");
                self.findings.push(Finding::of(Check::Books, &node.id, what));
            }
            if held != Some(node.budget.held) {
                let (of, sum) = (node.budget.held, held.map_or("too much".into(), |sum| sum.to_string()));
                let what = format!(
                    "its open calls, its children and the undos of its steps hold {sum}, but {of} is held"
                );
                self.findings.push(Finding::of(Check::Books, &node.id, what));
            }
        }
        if let Some(root) = trace.root().filter(|root| total != Some(root.budget.spent)) {
            let sum = total.map_or("too much".into(), |sum| sum.to_string());
            let what = format!("all events add up to {sum}, but the root has spent {}", root.budget.spent);
            self.findings.push(Finding::of(Check::Books, &root.id, what));
        }
    }

    fn store(&mut self, trace: &Trace, store: Option<&StoreState>) {
        let Some(store) = store else { return };
        let (version, spent) = (trace.version(), trace.root().map_or(Amount::ZERO, |root| root.budget.spent));
        let what = if store.version > version {
            format!("the store has events up to {}, and the log only up to {version}", store.version)
        } else if store.version < version {
            format!("the log has events up to {version}, and the store only up to {}", store.version)
        } else if store.spent != spent {
            format!(
                "the root has spent {} according to the store, and {spent} according to the log",
                store.spent
            )
        } else if store.digest != trace.digest() {
            "the state in the store differs from the state replayed from the log".into()
        } else {
            return;
        };
        self.findings.push(Finding::new(Check::Store, what));
    }

    fn journals(&mut self, trace: &Trace, ledger: &Ledger, journals: &Journals) {
        let known: HashMap<&ChildId, &ContextNode> =
            trace.contexts().iter().map(|node| (&node.id, node)).collect();
        for (child_id, book) in journals.all() {
            match known.get(child_id) {
                Some(node) => self.journal(node, ledger.sheets.get(child_id), book),
                None => {
                    let what = "it has a journal, but the log has no such context".into();
                    self.findings.push(Finding::of(Check::Journal, child_id, what));
                }
            }
        }
        for node in trace.contexts().iter().filter(|node| journals.of(&node.id).is_none()) {
            let calls = ledger.sheets.get(&node.id).map_or(0, |sheet| booked(sheet).count());
            self.without_journal += usize::from(calls > 0);
        }
    }

    /// Compares one journal with the bookings of its context.
    fn journal(&mut self, node: &ContextNode, sheet: Option<&Sheet>, book: &JournalBook) {
        let fault = |what: String| Finding::of(Check::Journal, &node.id, what);
        for (from, to) in &book.missing {
            self.findings.push(fault(format!("entries {from} to {to} of its journal are missing")));
        }
        for number in &book.twice {
            self.findings.push(fault(format!("entry {number} is in its journal twice")));
        }
        let none = Sheet::default();
        let sheet = sheet.unwrap_or(&none);
        // The outcome of an ended context waits for its open holds. After the outcome, no more
        // costs are expected (B20).
        let is_final = !node.is_live() && !node.lifecycle.outcome_due;
        let mut seen = HashSet::new();
        for entry in &book.paid {
            if !seen.insert(&entry.call_id) {
                continue;
            }
            let call = sheet.calls.get(&entry.call_id).copied();
            match call.map(|call| agreement(&call, entry.amount, is_final)) {
                None if sheet.is_carried => {}
                None if !is_final => self.notes.push(format!(
                    "entry {} of `{}` ({}) is not booked yet",
                    entry.number, node.id, entry.amount
                )),
                None => self.findings.push(fault(format!(
                    "entry {} paid {} for call {}, but no event books it",
                    entry.number, entry.amount, entry.call_id
                ))),
                Some(Agreement::Same) => self.agreed += 1,
                Some(Agreement::Explained(why)) => {
                    self.notes.push(format!("entry {} of `{}`: {why}", entry.number, node.id));
                }
                Some(Agreement::Differs(booked)) => self.findings.push(fault(format!(
                    "entry {} says that call {} cost {}, but {booked} is booked",
                    entry.number, entry.call_id, entry.amount
                ))),
            }
        }
        let mut unseen: Vec<_> = booked(sheet).filter(|(id, _)| !seen.contains(id)).collect();
        unseen.sort_by_key(|(id, _)| *id);
        for (call_id, call) in unseen {
            // Costs that a program reports itself are in no journal.
            let is_external = call_id.as_str().starts_with("external-");
            let of_worker = call.attempt > 0 && !call.is_estimated && !call.is_corrected && !is_external;
            // An attempt that wrote its end into the journal has written all its answers before.
            if of_worker && book.ended_by == Some(call.attempt) {
                let what =
                    format!("call {call_id} is booked at {}, but is missing from its journal", call.booked);
                self.findings.push(fault(what));
            } else {
                self.unjournaled += 1;
            }
        }
    }
}

/// The calls of a context that have a booking.
fn booked(sheet: &Sheet) -> impl Iterator<Item = (&domain::CallId, &CallSheet)> {
    sheet.calls.iter().filter(|(_, call)| !call.booked.is_zero())
}

enum Agreement {
    Same,
    /// The amounts differ, and the log contains the reason.
    Explained(String),
    Differs(Amount),
}

/// Compares the booking of a call with its entry in the journal.
fn agreement(call: &CallSheet, journaled: Amount, is_final: bool) -> Agreement {
    if call.booked == journaled {
        Agreement::Same
    } else if call.is_open && !is_final {
        Agreement::Explained(format!("its cost of {journaled} has not arrived yet"))
    } else if call.booked.checked_add(call.disputed) == Some(journaled) {
        Agreement::Explained(format!("{} of {journaled} is disputed", call.disputed))
    } else if call.is_corrected || call.is_estimated {
        Agreement::Explained(format!(
            "it says {journaled}; the booking was estimated or corrected to {}",
            call.booked
        ))
    } else {
        Agreement::Differs(call.booked)
    }
}

/// The amounts that a context has spent and holds, from its own calls and the budgets of its
/// children.
fn beneath(trace: &Trace, node: &ContextNode, sheet: Option<&Sheet>) -> (Option<Amount>, Option<Amount>) {
    let children = || node.children.iter().map(|child| trace.node(*child));
    let open = sheet.into_iter().flat_map(|sheet| sheet.calls.values()).filter(|call| call.is_open);
    let of_children = children().map(|child| child.budget.parent_hold(child.is_live()));
    let mut held = open.map(|call| call.held).chain(of_children).chain([node.budget.reserved]);
    let mut spent = children().map(|child| child.budget.spent);
    (spent.try_fold(node.budget.own, Amount::checked_add), held.try_fold(Amount::ZERO, Amount::checked_add))
}
