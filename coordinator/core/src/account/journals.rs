//! The paid calls and the tools in the journals of a trace. Paid calls have their model and tokens.
//! An entry is read and then dropped: only these parts of it are kept.

use std::collections::HashMap;

use domain::{
    Amount, CallId, ChildId, Timestamp,
    id::{ModelName, ToolName},
    wire::{Copies, HistoryEntry, HistoryStep, Usage},
};
use serde::Serialize;

/// The entry of a paid call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaidEntry {
    /// Its place in the journal.
    pub number: u32,
    pub call_id: CallId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    pub amount: Amount,
    /// The price table it was priced with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// The call is at its hold, because its end is unknown or the provider reported no usage.
    pub estimated: bool,
}

/// The entry of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolEntry {
    /// Its place in the journal.
    pub number: u32,
    pub attempt: u32,
    pub tool: ToolName,
    /// The time of the previous entry: the tool was called then or later.
    pub since: Timestamp,
    pub at: Timestamp,
    pub is_error: bool,
}

/// The paid calls and the tools of one journal.
#[derive(Debug, Clone, Default)]
pub struct JournalBook {
    pub paid: Vec<PaidEntry>,
    pub tools: Vec<ToolEntry>,
    /// The number of its last entry.
    pub last: u32,
    /// Entries that are missing: the first and the last of each hole.
    pub missing: Vec<(u32, u32)>,
    /// Numbers that occur twice.
    pub twice: Vec<u32>,
    /// The attempt that wrote its own end into the journal.
    pub ended_by: Option<u32>,
    written_at: Option<Timestamp>,
    copies: Copies,
}

#[derive(Debug, Default)]
pub struct Journals {
    books: HashMap<ChildId, JournalBook>,
}

impl Journals {
    /// Adds the next entry of a journal, in the order of the journal.
    pub fn add(&mut self, entry: &HistoryEntry) {
        let book = self.books.entry(entry.child_id.clone()).or_default();
        if entry.number > book.last + 1 {
            book.missing.push((book.last + 1, entry.number - 1));
        } else if entry.number <= book.last {
            book.twice.push(entry.number);
        }
        book.last = book.last.max(entry.number);
        if entry.step.as_result().is_some() {
            book.ended_by = Some(entry.attempt);
        }
        let since = book.written_at.replace(entry.at).unwrap_or(entry.at);
        let is_copy = book.copies.is_copy(&entry.step);
        if let HistoryStep::Tool(step) = &entry.step
            && !is_copy
        {
            let (number, attempt, at) = (entry.number, entry.attempt, entry.at);
            let (tool, is_error) = (step.tool.clone(), step.is_error);
            book.tools.push(ToolEntry { number, attempt, tool, since, at, is_error });
        }
        let Some((call_id, amount)) = entry.step.paid_call().filter(|_| !is_copy) else { return };
        let (model, usage, prices, estimated) = if let Some(step) = entry.step.as_model() {
            let prices = Some(step.cost.prices.clone());
            (Some(step.model.clone()), step.usage, prices, step.cost.estimated || step.usage.is_none())
        } else if let HistoryStep::Lost(lost) = &entry.step {
            (lost.model.clone(), None, None, true)
        } else {
            (None, None, None, true)
        };
        let (number, call_id) = (entry.number, call_id.clone());
        book.paid.push(PaidEntry { number, call_id, model, usage, amount, prices, estimated });
    }

    pub fn of(&self, child_id: &ChildId) -> Option<&JournalBook> {
        self.books.get(child_id)
    }

    pub fn len(&self) -> usize {
        self.books.len()
    }

    pub fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&ChildId, &JournalBook)> {
        self.books.iter()
    }
}
