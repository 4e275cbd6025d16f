//! The journal of a context as its attempt writes it: every finished step is appended behind the last,
//! or not at all. A worker that lost its context without noticing finds somebody else's entry in its
//! place and stops (t5); its successor reads what is there and goes on, so that a call that was paid for
//! and a child that was started are not paid for and started again.
//!
//! An append that is sent twice is stored once: it carries an id, and one that finds its own entry in
//! its place was stored the first time.

pub(crate) mod checkpoint;

use std::sync::{Mutex, MutexGuard, PoisonError};

use shared::{
    CallId, ChildId, Timestamp, TraceId,
    bus::{self, Bus, Outgoing, PublishError},
    decode,
    subject::{Filter, Subject},
    telemetry,
    wire::{CallCost, Failure, FailureKind, HistoryEntry, HistoryStep, Lease, OpenHold, SettledCall},
};

use crate::{agent::Run, attempt::coordinator::Backoff};

/// The largest entry: well below what a message may have, so that whatever is written can be read again.
const MAX_ENTRY_BYTES: usize = 4 << 20;

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

/// Why a journal that is there can't be used. To go on without it would be to pay twice, and to do twice
/// what was done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("the journal of `{0}` can't be read: {1}")]
    Unread(ChildId, bus::Error),
    /// Of a newer worker, perhaps: one of those can read it.
    #[error("entry {number} of the journal of `{child_id}` means nothing to this worker: {problems}")]
    Foreign { child_id: ChildId, number: usize, problems: String },
    #[error("entry {number} of the journal of `{child_id}` is damaged: {problems}")]
    Damaged { child_id: ChildId, number: usize, problems: String },
    #[error("the journal of `{0}` is not whole: {1}; journals are kept for a limited time")]
    Gone(ChildId, String),
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        let retryable = match unusable {
            Unusable::Unread(..) | Unusable::Foreign { .. } => true,
            Unusable::Damaged { .. } | Unusable::Gone(..) => false,
        };
        Failure { kind: FailureKind::Agent, message: unusable.to_string(), retryable }
    }
}

/// Everything a journal holds, oldest first, and where its last entry is. A bus that is away is waited
/// for, for a while.
pub(crate) async fn read(
    bus: &Bus,
    trace_id: TraceId,
    child_id: &ChildId,
) -> Result<(Vec<HistoryEntry>, u64), Unusable> {
    let filter = Filter::One(Subject::History(trace_id, child_id.clone()));
    let mut pause = Backoff::default();
    let stored = loop {
        match bus.read(&filter).await {
            Ok(stored) => break stored,
            Err(error) => {
                tracing::warn!(%error, "a journal can't be read yet");
                let lasts = matches!(error, bus::Error::TooLarge { .. });
                if lasts || pause.wait_a_while().await.is_err() {
                    return Err(Unusable::Unread(child_id.clone(), error));
                }
            }
        }
    };
    let sequence = stored.last().map_or(0, |message| message.sequence);
    let decoded = (1..).zip(&stored).map(|(number, message)| decoded(child_id, number, &message.payload));
    let entries = decoded.collect::<Result<Vec<_>, _>>()?;
    check_whole(child_id, &entries)?;
    Ok((entries, sequence))
}

fn decoded(child_id: &ChildId, number: usize, payload: &[u8]) -> Result<HistoryEntry, Unusable> {
    decode::json(payload).map_err(|problems| {
        let (child_id, problems) = (child_id.clone(), problems.to_string());
        match decode::parse(payload, decode::Format::Json) {
            Ok(_) => Unusable::Foreign { child_id, number, problems },
            Err(_) => Unusable::Damaged { child_id, number, problems },
        }
    })
}

/// Entries go by age, the oldest first: what is left of such a journal begins late.
fn check_whole(child_id: &ChildId, entries: &[HistoryEntry]) -> Result<(), Unusable> {
    for (expected, entry) in (1..).zip(entries) {
        if entry.number != expected {
            let what = format!("there is an entry {} where entry {expected} should be", entry.number);
            return Err(Unusable::Gone(child_id.clone(), what));
        }
    }
    Ok(())
}

impl<'a> Journal<'a> {
    /// Reads what earlier attempts wrote, and shuts them out. Never a later one: a worker that was stopped
    /// before it came here may wake when its successor has written already.
    pub(crate) async fn open(run: &'a Run<'a>) -> Journal<'a> {
        let (trace_id, child_id) = (run.work.trace_id, &run.work.child_id);
        let journal =
            Journal { run, subject: Subject::History(trace_id, child_id.clone()), written: Mutex::default() };
        loop {
            run.keeper.live().await;
            let (entries, sequence) = match read(run.bus, trace_id, child_id).await {
                Ok(read) => read,
                Err(unusable) => run.give_up(unusable.into()).await,
            };
            if entries.iter().any(|entry| entry.attempt > run.attempt()) {
                run.keeper.stop("a later attempt has its journal").await;
            }
            if entries.len() < run.work.journaled as usize {
                let what = format!("{} of its {} entries are there", entries.len(), run.work.journaled);
                run.give_up(Unusable::Gone(child_id.clone(), what).into()).await;
            }
            *journal.written() = Written { entries, sequence };
            journal.count();
            if run.attempt() == 1 {
                return journal;
            }
            // An earlier attempt may still be at it: whoever writes next wins, and it must be this one.
            let began = HistoryStep::Began { worker_id: run.config.id.clone() };
            if journal.try_append(began).await.is_ok() {
                return journal;
            }
        }
    }

    /// Tells the coordinator how many entries there are, so that it is noticed if they are gone.
    fn count(&self) {
        let last = self.next_number() - 1;
        self.run.counters.change(|progress| progress.journaled = progress.journaled.max(last));
    }

    fn push(&self, entry: HistoryEntry, sequence: u64) {
        {
            let mut written = self.written();
            written.sequence = sequence;
            written.entries.push(entry);
        }
        self.count();
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
        let payload = serde_json::to_vec(&entry).expect("a message has string keys");
        if payload.len() > MAX_ENTRY_BYTES {
            let message = format!(
                "step {number} has {} bytes, more than the {MAX_ENTRY_BYTES} that one may have",
                payload.len()
            );
            let kind = FailureKind::LimitExceeded;
            run.give_up(Failure { kind, message, retryable: false }).await;
        }
        let message = Outgoing {
            subject: self.subject.clone(),
            id: Some(format!("{}.{child_id}.{number}.{attempt}.{token}.history", run.work.trace_id)),
            headers: telemetry::headers(run.work.trace_id, run.span),
            payload: payload.into(),
            expect_last: Some(sequence),
        };
        let mut pause = Backoff::default();
        loop {
            match run.bus.publish(message.clone()).await {
                Ok(published) => {
                    self.push(entry.clone(), published.sequence);
                    return Ok(entry);
                }
                Err(PublishError::WrongSequence) => match self.own_place(&entry, sequence).await {
                    Some(sequence) => {
                        self.push(entry.clone(), sequence);
                        return Ok(entry);
                    }
                    None => return Err(Moved),
                },
                Err(
                    error @ (PublishError::Full(_) | PublishError::Unacknowledged | PublishError::Other(_)),
                ) => {
                    tracing::warn!(%error, number, "a step could not be written down yet");
                    if pause.wait_a_while().await.is_err() {
                        let message = format!("step {number} could not be written down: {error}");
                        run.give_up(Failure { kind: FailureKind::Agent, message, retryable: true }).await;
                    }
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
                    if pause.wait_a_while().await.is_err() {
                        let unread = Unusable::Unread(self.run.work.child_id.clone(), error);
                        self.run.give_up(unread.into()).await;
                    }
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
