//! The journal of a context as its attempt writes it: every finished step is appended behind the last,
//! or not at all. A worker that lost its context without noticing finds somebody else's entry in its
//! place and stops (t5); its successor reads what is there and goes on, so that a call that was paid for
//! and a child that was started are not paid for and started again.
//!
//! An append that is sent twice is stored once: it carries an id, and one that finds its own entry in
//! its place was stored the first time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use shared::{
    CallId, ChildId, Timestamp, TraceId,
    bus::{Bus, Error, Outgoing, PublishError},
    decode,
    subject::{Filter, Subject},
    telemetry,
    wire::{CallCost, HistoryEntry, HistoryStep, Lease, OpenHold, SettledCall},
};

use crate::{agent::Run, coordinator::Backoff};

#[derive(Debug)]
pub(crate) struct Journal<'a> {
    run: &'a Run<'a>,
    subject: Subject,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    entries: Vec<HistoryEntry>,
    /// Where the last one is in its stream; 0 if there is none.
    sequence: u64,
}

/// Everything a journal holds, oldest first. What can't be read is an error: to go on without it would
/// be to pay twice.
pub(crate) async fn read(
    bus: &Bus,
    trace_id: TraceId,
    child_id: &ChildId,
) -> Result<(Vec<HistoryEntry>, u64), Error> {
    let stored = bus.read(&Filter::One(Subject::History(trace_id, child_id.clone()))).await?;
    let sequence = stored.last().map_or(0, |message| message.sequence);
    let entries: Result<Vec<_>, _> = stored.iter().map(|message| decode::json(&message.payload)).collect();
    let entries = entries.map_err(|problems| Error::Failed {
        doing: format!("reading the journal of `{child_id}`"),
        reason: problems.to_string(),
    })?;
    Ok((entries, sequence))
}

impl<'a> Journal<'a> {
    /// Reads what earlier attempts wrote, and shuts them out.
    pub(crate) async fn open(run: &'a Run<'a>) -> Journal<'a> {
        let (trace_id, child_id) = (run.work.trace_id, &run.work.child_id);
        let journal =
            Journal { run, subject: Subject::History(trace_id, child_id.clone()), written: Mutex::default() };
        let mut pause = Backoff::default();
        loop {
            match read(run.bus, trace_id, child_id).await {
                Ok((entries, sequence)) => *journal.written() = Written { entries, sequence },
                Err(error) => {
                    tracing::warn!(%error, "the journal can't be read yet");
                    pause.wait().await;
                    continue;
                }
            }
            if run.attempt() == 1 {
                return journal;
            }
            // An earlier attempt may still be at it: whoever writes next wins, and it must be this one.
            let began = HistoryStep::Began { worker_id: run.config.id.clone() };
            if journal.try_append(began).await.is_ok() {
                return journal;
            }
            run.keeper.live().await;
        }
    }

    /// The entries so far, as they count: what was restored away is not among them.
    pub(crate) fn entries(&self) -> Vec<HistoryEntry> {
        standing(&self.written().entries)
    }

    /// A look at everything that was ever written, what was restored away included.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&[HistoryEntry]) -> T) -> T {
        look(&self.written().entries)
    }

    /// The one written last.
    pub(crate) fn last(&self) -> Option<HistoryEntry> {
        self.written().entries.last().cloned()
    }

    /// The number of the next entry.
    pub(crate) fn next_number(&self) -> u32 {
        self.written().entries.last().map_or(1, |entry| entry.number + 1)
    }

    /// How the calls that are still held ended, as far as it is written here (B10).
    pub(crate) fn settled(&self, open: &[OpenHold]) -> Vec<SettledCall> {
        let written = self.written();
        let of = |id: &CallId| written.entries.iter().find_map(|entry| known_cost(entry, id));
        let known = open.iter().filter_map(|hold| {
            Some(SettledCall { call_id: hold.call_id.clone(), amount: of(&hold.call_id)?.amount })
        });
        known.collect()
    }

    /// Appends a step. Comes back only if it stands; if the journal is somebody else's by now, the
    /// attempt ends around it.
    pub(crate) async fn append(&self, step: HistoryStep) -> HistoryEntry {
        match self.try_append(step).await {
            Ok(entry) => entry,
            Err(Moved) => self.run.keeper.stop("its journal has been taken over").await,
        }
    }

    async fn try_append(&self, step: HistoryStep) -> Result<HistoryEntry, Moved> {
        let run = self.run;
        let Lease { child_id, attempt, token } = &run.keeper.lease;
        let (number, sequence) = (self.next_number(), self.written().sequence);
        let entry = HistoryEntry {
            trace_id: run.work.trace_id,
            child_id: child_id.clone(),
            number,
            attempt: *attempt,
            at: self.now(),
            step,
        };
        let message = Outgoing {
            subject: self.subject.clone(),
            id: Some(format!("{}.{child_id}.{number}.{attempt}.{token}.history", run.work.trace_id)),
            headers: telemetry::headers(run.work.trace_id, run.span),
            payload: serde_json::to_vec(&entry).expect("a message has string keys").into(),
            expect_last: Some(sequence),
        };
        let mut pause = Backoff::default();
        loop {
            match run.bus.publish(message.clone()).await {
                Ok(published) => {
                    let mut written = self.written();
                    written.sequence = published.sequence;
                    written.entries.push(entry.clone());
                    return Ok(entry);
                }
                Err(PublishError::WrongSequence) => match self.own_place(&entry, sequence).await {
                    Some(sequence) => {
                        let mut written = self.written();
                        written.sequence = sequence;
                        written.entries.push(entry.clone());
                        return Ok(entry);
                    }
                    None => return Err(Moved),
                },
                Err(
                    error @ (PublishError::Full(_) | PublishError::Unacknowledged | PublishError::Other(_)),
                ) => {
                    tracing::warn!(%error, number, "a step could not be written down yet");
                    pause.wait().await;
                }
            }
        }
    }

    /// Where an entry is that was stored though nobody could tell us so.
    async fn own_place(&self, entry: &HistoryEntry, before: u64) -> Option<u64> {
        let mut pause = Backoff::default();
        loop {
            match self.run.bus.last(&Filter::One(self.subject.clone())).await {
                Ok(Some(last)) => {
                    let same = decode::json::<HistoryEntry>(&last.payload).is_ok_and(|found| found == *entry);
                    return (same && last.sequence > before).then_some(last.sequence);
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::warn!(%error, "the journal can't be read yet");
                    pause.wait().await;
                }
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.run.config.clock.now()
    }

    /// Held for no longer than a look.
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody else wrote first.
#[derive(Debug)]
struct Moved;

/// What of a journal counts: a restore takes back everything after the step it names.
pub(crate) fn standing(entries: &[HistoryEntry]) -> Vec<HistoryEntry> {
    let mut standing: Vec<HistoryEntry> = Vec::new();
    for entry in entries {
        if let HistoryStep::Restored { to, .. } = entry.step {
            standing.retain(|earlier| earlier.number <= to);
        }
        standing.push(entry.clone());
    }
    standing
}

/// What a call cost, if an entry tells for certain.
fn known_cost<'e>(entry: &'e HistoryEntry, call_id: &CallId) -> Option<&'e CallCost> {
    match &entry.step {
        HistoryStep::Model(step) if step.call_id == *call_id && !step.cost.estimated => Some(&step.cost),
        HistoryStep::Model(_)
        | HistoryStep::Began { .. }
        | HistoryStep::Tool(_)
        | HistoryStep::Restored { .. }
        | HistoryStep::Branched { .. }
        | HistoryStep::Result(_) => None,
    }
}
