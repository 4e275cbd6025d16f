//! Reads the journal of a context from the bus.

use shared::{
    ChildId, TraceId,
    bus::{Bus, of_first_writers},
    decode,
    subject::{Filter, Subject},
    wire::HistoryEntry,
};

use crate::cluster::connect::unreachable;

/// The journal of a context as it is now; an error if it has none.
pub(crate) async fn read(bus: &Bus, trace: TraceId, child: &ChildId) -> anyhow::Result<Vec<HistoryEntry>> {
    let filter = Filter::JournalOf(trace, child.clone());
    let stored = bus.read(&filter).await.map_err(|error| unreachable(&error))?;
    let stored = of_first_writers(stored);
    if stored.is_empty() {
        let others = bus.subjects(&Filter::HistoriesOf(trace)).await.map_err(|error| unreachable(&error))?;
        let others: Vec<String> = others.into_iter().filter_map(owner).map(|id| format!("`{id}`")).collect();
        let hint = if others.is_empty() {
            "built-in agents and graphs keep no journal, and journals are kept for a limited time".to_owned()
        } else {
            format!("these contexts have one: {}", others.join(", "))
        };
        anyhow::bail!("`{child}` of run {trace} has no journal\n\nhint: {hint}");
    }
    stored.iter().map(|message| entry(&message.payload)).collect()
}

pub(crate) fn entry(payload: &[u8]) -> anyhow::Result<HistoryEntry> {
    decode::from_peer(payload).map_err(|problems| {
        anyhow::anyhow!("the journal has an entry that this version of trellis can't read\n\n{problems}")
    })
}

/// The context that a journal's subject names.
fn owner(subject: Subject) -> Option<ChildId> {
    if let Subject::History(_, _, child) = subject { Some(child) } else { None }
}
