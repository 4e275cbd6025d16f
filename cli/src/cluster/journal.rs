//! Reads the journal of a context from the bus.

use bus::{Bus, of_first_writers};
use domain::{
    ChildId, TraceId, decode,
    subject::{Filter, Subject},
    wire::HistoryEntry,
};

use crate::cluster::connect::unreachable;

/// The journal of a context as it is now; an error if it has none.
pub(crate) async fn read(bus: &Bus, trace: TraceId, child: &ChildId) -> anyhow::Result<Vec<HistoryEntry>> {
    let entries = read_or_none(bus, trace, child).await?;
    if entries.is_empty() {
        let others = bus.subjects(&Filter::HistoriesOf(trace)).await.map_err(|error| unreachable(&error))?;
        let others: Vec<String> = others.into_iter().filter_map(owner).map(|id| format!("`{id}`")).collect();
        let hint = if others.is_empty() {
            "built-in agents and graphs keep no journal, and journals are kept for a limited time".to_owned()
        } else {
            format!("these contexts have one: {}", others.join(", "))
        };
        anyhow::bail!("`{child}` of run {trace} has no journal\n\nhint: {hint}");
    }
    Ok(entries)
}

/// The same; no entries if it has none. An entry that can't be read is an error all the same.
pub(crate) async fn read_or_none(
    bus: &Bus,
    trace: TraceId,
    child: &ChildId,
) -> anyhow::Result<Vec<HistoryEntry>> {
    let filter = Filter::JournalOf(trace, child.clone());
    let stored = bus.read(&filter).await.map_err(|error| unreachable(&error))?;
    of_first_writers(stored).iter().map(|message| entry(&message.payload)).collect()
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

#[cfg(test)]
mod tests {
    use bus::{Memory, Outgoing};
    use domain::{id::PoolName, span::Headers};

    use super::*;

    /// proves: only a journal that is not there has no entries; one that can't be read is told.
    #[tokio::test]
    async fn s3_a_damaged_journal_is_not_an_empty_one() {
        let bus = Bus::Memory(Memory::new(Default::default()));
        let trace: TraceId = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
        let child: ChildId = "root".parse().unwrap();
        assert!(read_or_none(&bus, trace, &child).await.unwrap().is_empty());
        let said = read(&bus, trace, &child).await.unwrap_err().to_string();
        assert!(said.contains("has no journal"), "{said}");
        let pool: PoolName = "default".parse().unwrap();
        let damaged = Outgoing {
            subject: Subject::History(pool, trace, child.clone()),
            id: None,
            headers: Headers::new(),
            payload: b"{\"number\":".as_slice().into(),
            expect_last: None,
        };
        bus.publish(damaged).await.unwrap();
        let said = read_or_none(&bus, trace, &child).await.unwrap_err().to_string();
        assert!(said.contains("has an entry that this version of trellis can't read"), "{said}");
    }
}
