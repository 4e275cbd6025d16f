//! The event log of a run: replayed into its state, or read message by message for its books.

use bus::{
    StoredMessage,
    keys::{ForgedMessage, Keys},
};
use domain::{Timestamp, TraceId, subject::Filter};
use trace::{
    ContextNode, Event, LoggedEvents, Replay, Rest, Trace,
    account::{Journals, Ledger, LogMessage, ReadLog},
};

use crate::{
    Client, Error,
    off_thread::{off_thread, size_of},
};

/// Decodes a message of an event log.
pub fn logged(payload: &[u8]) -> Result<LoggedEvents, Error> {
    serde_json::from_slice(payload).map_err(Error::Event)
}

/// Decodes a message of an event log, with its sequence and time.
pub fn log_message(stored: StoredMessage) -> Result<LogMessage, Error> {
    let StoredMessage { sequence, id, at, payload, .. } = stored;
    Ok(LogMessage { sequence, id, stored_at: at, logged: logged(&payload)? })
}

/// The root of a run. It is missing if the beginning of the log has expired, or if no context has begun.
pub fn root(trace: &Trace) -> Result<&ContextNode, Error> {
    match (trace.root(), trace.version()) {
        (Some(root), _) => Ok(root),
        (None, 0) => Err(Error::Expired(trace.id())),
        (None, _) => Err(Error::NotBegun(trace.id())),
    }
}

impl Client {
    /// The run replayed from its log up to now; it has a root.
    pub async fn replay(&self, trace_id: TraceId) -> Result<Trace, Error> {
        let trace = self.find(trace_id).await?.ok_or(Error::NoRun(trace_id))?;
        root(&trace)?;
        Ok(trace)
    }

    /// The run as far as its log can be replayed: the beginning may have expired, or no context may
    /// have begun. None if the log is empty.
    pub async fn find(&self, trace_id: TraceId) -> Result<Option<Trace>, Error> {
        // The rest of the last commit may not be stored yet.
        Ok(self.find_with_rest(trace_id).await?.map(|(trace, _)| trace))
    }

    /// Like `find`, with the messages that the replay could not apply.
    pub async fn find_with_rest(&self, trace_id: TraceId) -> Result<Option<(Trace, Rest)>, Error> {
        let stored = self.bus().read(&Filter::EventsOf(trace_id)).await?;
        if stored.is_empty() {
            return Ok(None);
        }
        let replayed = off_thread(size_of(&stored), move || {
            let log = stored.iter().map(|message| logged(&message.payload)).collect::<Result<Vec<_>, _>>()?;
            Ok(Replay::all(Trace::new(trace_id), log))
        });
        replayed.await?.map(Some)
    }

    /// The time of the first claim of a run, if its log still has it.
    pub async fn first_claim(&self, trace_id: TraceId) -> Result<Option<Timestamp>, Error> {
        let stored = self.bus().read(&Filter::EventsOf(trace_id)).await?;
        let is_claim = |event: &Event| matches!(event, Event::Claimed { .. });
        let mut log = stored.iter().filter_map(|message| logged(&message.payload).ok());
        Ok(log.find(|logged| logged.events.iter().any(is_claim)).map(|logged| logged.at))
    }

    /// The log of a run in order. It has a root, or findings that explain the missing root.
    pub async fn log(&self, trace_id: TraceId) -> Result<ReadLog, Error> {
        let stored = self.bus().read(&Filter::EventsOf(trace_id)).await?;
        if stored.is_empty() {
            return Err(Error::NoRun(trace_id));
        }
        in_order(trace_id, stored).await
    }

    /// Like `log`, but only of messages that are signed with a key of the deployment; with a list
    /// of the others.
    pub async fn authentic_log(
        &self,
        trace_id: TraceId,
        keys: &Keys,
    ) -> Result<(ReadLog, Vec<ForgedMessage>), Error> {
        let filter = Filter::EventsOf(trace_id);
        if self.bus().last(&filter).await?.is_none() {
            return Err(Error::NoRun(trace_id));
        }
        let stored = self.bus().clone().with_keys(keys.clone()).read(&filter).await?;
        let refused = keys.take_untold();
        if stored.is_empty() {
            let why = refused.first().map_or_else(String::new, |refused| refused.why.to_string());
            return Err(Error::NotAuthentic { trace_id, why });
        }
        Ok((in_order(trace_id, stored).await?, refused))
    }

    /// The cost of a run: its log, its ledger, and its journals. The journals are read first. So
    /// the log may already have bookings of calls that the read journals lack; a cost in the
    /// journals that the log lacks was not booked yet.
    pub async fn account(&self, trace_id: TraceId) -> Result<(ReadLog, Ledger, Journals), Error> {
        let journals = self.journals(trace_id).await?;
        let log = self.log(trace_id).await?;
        let ledger = Ledger::of(&log);
        Ok((log, ledger, journals))
    }
}

async fn in_order(trace_id: TraceId, stored: Vec<StoredMessage>) -> Result<ReadLog, Error> {
    let read = off_thread(size_of(&stored), move || {
        let messages = stored.into_iter().map(log_message).collect::<Result<_, Error>>()?;
        Ok::<_, Error>(ReadLog::new(trace_id, messages))
    });
    let log = read.await??;
    if log.findings.is_empty() {
        root(log.trace())?;
    }
    Ok(log)
}
