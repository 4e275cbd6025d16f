//! The journals of contexts, read from the bus.

use bus::{FirstWriters, From, of_first_writers};
use domain::{
    ChildId, TraceId, decode,
    subject::{Filter, Subject},
    wire::HistoryEntry,
};
use trace::account::Journals;

use crate::{
    Client, Error, NoJournal,
    off_thread::{off_thread, size_of},
};

/// Decodes an entry of a journal.
pub fn entry(payload: &[u8]) -> Result<HistoryEntry, Error> {
    decode::from_peer(payload).map_err(Error::Entry)
}

/// The context that a journal's subject names.
fn owner(subject: Subject) -> Option<ChildId> {
    if let Subject::History(_, _, child) = subject { Some(child) } else { None }
}

impl Client {
    /// The current journal of a context; an error if it has none.
    pub async fn journal(&self, trace_id: TraceId, child: &ChildId) -> Result<Vec<HistoryEntry>, Error> {
        let entries = self.journal_or_empty(trace_id, child).await?;
        if entries.is_empty() {
            let subjects = self.bus().subjects(&Filter::HistoriesOf(trace_id)).await?;
            let others = subjects.into_iter().filter_map(owner).collect();
            return Err(NoJournal { trace_id, child_id: child.clone(), others }.into());
        }
        Ok(entries)
    }

    /// Like `journal`, with no entries for a missing journal. An unreadable entry is still an
    /// error.
    pub async fn journal_or_empty(
        &self,
        trace_id: TraceId,
        child: &ChildId,
    ) -> Result<Vec<HistoryEntry>, Error> {
        let filter = Filter::JournalOf(trace_id, child.clone());
        let stored = of_first_writers(self.bus().read(&filter).await?);
        let bytes = size_of(&stored);
        off_thread(bytes, move || stored.iter().map(|message| entry(&message.payload)).collect()).await?
    }

    /// The current journals of a run. They are read as a stream: only the paid calls and the tools
    /// stay in memory.
    pub async fn journals(&self, trace_id: TraceId) -> Result<Journals, Error> {
        let filter = Filter::HistoriesOf(trace_id);
        let mut journals = Journals::default();
        let Some(last) = self.bus().last(&filter).await? else { return Ok(journals) };
        let mut entries = self.bus().follow(&[filter], From::Start).await?;
        let mut writers = FirstWriters::default();
        loop {
            let stored = entries.next().await?;
            if writers.takes(&stored.subject) {
                journals.add(&entry(&stored.payload)?);
            }
            if stored.sequence >= last.sequence {
                return Ok(journals);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bus::{Bus, Memory, Outgoing};
    use domain::{id::PoolName, span::Headers};

    use super::*;

    /// proves: a missing journal has no entries; a journal that can't be read is an error.
    #[tokio::test]
    async fn s3_a_damaged_journal_is_not_an_empty_one() {
        let client = Client::new(Bus::Memory(Memory::new(Default::default())), "test");
        let trace: TraceId = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
        let child: ChildId = "root".parse().unwrap();
        assert!(client.journal_or_empty(trace, &child).await.unwrap().is_empty());
        let missing = client.journal(trace, &child).await.unwrap_err();
        assert!(missing.to_string().contains("has no journal"), "{missing}");
        let pool: PoolName = "default".parse().unwrap();
        let damaged = Outgoing {
            subject: Subject::History(pool, trace, child.clone()),
            id: None,
            headers: Headers::new(),
            payload: b"{\"number\":".as_slice().into(),
            expect_last: None,
        };
        client.bus().publish(damaged).await.unwrap();
        let damaged = client.journal_or_empty(trace, &child).await.unwrap_err().to_string();
        assert!(damaged.contains("has an entry that this version of trellis can't read"), "{damaged}");
    }
}
