//! Reads the event log and the journals of a run for its receipt and its audit. Journals are read as a stream: of an entry
//! only what it paid for is kept.

use bus::{
    Bus, FirstWriters, From, Stored,
    keys::{Keys, Refused},
};
use domain::{TraceId, subject::Filter};
use trace::account::{Journals, Ledger, LogMessage, ReadLog};

use crate::cluster::{client::logged, connect::unreachable, journal};

/// The log of a run, put into order; an error if there is none, or nothing that can be replayed.
pub(crate) async fn log(bus: &Bus, trace_id: TraceId) -> anyhow::Result<ReadLog> {
    let stored = read_log(bus, trace_id).await?;
    in_order(trace_id, stored)
}

/// The same of what was signed with a key of the deployment, and what was not.
pub(crate) async fn authentic_log(
    bus: &Bus,
    trace_id: TraceId,
    keys: &Keys,
) -> anyhow::Result<(ReadLog, Vec<Refused>)> {
    read_log(bus, trace_id).await?;
    let stored = bus.clone().with_keys(keys.clone()).read(&Filter::EventsOf(trace_id)).await;
    let stored = stored.map_err(|error| unreachable(&error))?;
    let refused = keys.take_untold();
    anyhow::ensure!(
        !stored.is_empty(),
        "no message in the log of run {trace_id} is authentic: {}\n\nhint: is it the key of this deployment?",
        refused.first().map_or_else(String::new, |refused| refused.why.to_string())
    );
    Ok((in_order(trace_id, stored)?, refused))
}

async fn read_log(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Vec<Stored>> {
    let stored = bus.read(&Filter::EventsOf(trace_id)).await.map_err(|error| unreachable(&error))?;
    anyhow::ensure!(
        !stored.is_empty(),
        "there is no run {trace_id}\n\nhint: `trellis runs list` shows the newest; logs are kept for a limited time"
    );
    Ok(stored)
}

fn in_order(trace_id: TraceId, stored: Vec<Stored>) -> anyhow::Result<ReadLog> {
    let messages = stored.into_iter().map(message).collect::<anyhow::Result<Vec<_>>>()?;
    let log = ReadLog::new(trace_id, messages);
    if log.trace().root().is_none() && log.findings.is_empty() {
        let why = match log.trace().version() {
            0 => "the beginning of its event log has expired",
            _ => "it was cancelled before any context began",
        };
        anyhow::bail!("run {trace_id} can't be shown: {why}");
    }
    Ok(log)
}

pub(crate) fn message(stored: Stored) -> anyhow::Result<LogMessage> {
    let Stored { sequence, id, at, payload, .. } = stored;
    Ok(LogMessage { sequence, id, stored_at: at, logged: logged(&payload)? })
}

/// The journals of a run as they are now.
pub(crate) async fn journals(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Journals> {
    let told = |error| unreachable(&error);
    let filter = Filter::HistoriesOf(trace_id);
    let mut journals = Journals::default();
    let Some(last) = bus.last(&filter).await.map_err(told)? else { return Ok(journals) };
    let mut entries = bus.follow(&[filter], From::Start).await.map_err(told)?;
    let mut writers = FirstWriters::default();
    loop {
        let stored = entries.next().await.map_err(told)?;
        if writers.takes(&stored.subject) {
            journals.add(&journal::entry(&stored.payload)?);
        }
        if stored.sequence >= last.sequence {
            return Ok(journals);
        }
    }
}

/// What a run cost: its log, the ledger of it, and its journals. The journals are read first, so that a cost of which one
/// tells may be missing in the books, and never the other way round.
pub(crate) async fn read(bus: &Bus, trace_id: TraceId) -> anyhow::Result<(ReadLog, Ledger, Journals)> {
    let journals = journals(bus, trace_id).await?;
    let log = log(bus, trace_id).await?;
    let ledger = Ledger::of(&log);
    Ok((log, ledger, journals))
}
