//! The journal of a context as its attempt writes it. Every entry is appended after the last one
//! that this attempt knows, or not at all. A worker that lost its context without noticing finds
//! another attempt's entry in that place and stops (t5). Its successor reads the entries and
//! continues, so that no call is paid for twice and no child is started twice.
//!
//! A repeated append is stored once. It has an id, and an append that finds its own entry in the
//! journal has succeeded before.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bus::{Outgoing, PublishError};
use domain::{
    decode,
    subject::{Filter, Subject},
    wire::{Failure, FailureKind, HistoryEntry, HistoryStep, LostStep, OpenHold, SettledCall},
};
use text::set_limit::SetLimit;

use super::stored::{JournalError, is_of, known_cost, read, standing};
use crate::{attempt::Attempt, retry::Backoff};

/// The largest entry: well below the largest message, so that every entry that was written can be
/// read again.
const MAX_ENTRY_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Journal<'a> {
    attempt: &'a Attempt,
    subject: Subject,
    written: Mutex<WrittenEntries>,
}

#[derive(Debug, Default)]
struct WrittenEntries {
    entries: Vec<HistoryEntry>,
    /// The stream sequence of the last entry; 0 in an empty journal.
    sequence: u64,
}

impl<'a> Journal<'a> {
    /// Reads the entries of earlier attempts, and fences those attempts off: none of their appends
    /// succeeds from here on. A worker that was suspended before this call may find an entry of its
    /// successor; then it stops.
    pub(crate) async fn open(attempt: &'a Attempt) -> Journal<'a> {
        let (subject, child_id) = (attempt.history_subject(), attempt.child_id());
        let filter = Filter::One(subject.clone());
        let journal = Journal { attempt, subject, written: Mutex::default() };
        loop {
            attempt.lease.live().await;
            let (entries, sequence) = match read(&attempt.bus, &filter, child_id).await {
                Ok(read) => read,
                Err(unusable) => attempt.give_up(unusable.into()).await,
            };
            if entries.iter().any(|entry| entry.attempt > attempt.number()) {
                attempt.lease.stop("a later attempt has written to the journal").await;
            }
            let expected = attempt.work.journaled;
            if entries.len() < expected as usize {
                let what = format!("{} of {expected} entries are left", entries.len());
                attempt.give_up(JournalError::Incomplete(child_id.clone(), what).into()).await;
            }
            *journal.written() = WrittenEntries { entries, sequence };
            journal.count();
            if attempt.number() == 1 {
                return journal;
            }
            // An earlier attempt may still be running: only the first append succeeds, and it must
            // be this one.
            let began = HistoryStep::Began { worker_id: attempt.config.id.clone() };
            if journal.try_append(began).await.is_ok() {
                return journal;
            }
        }
    }

    /// Reports the number of entries to the coordinator, so that a later attempt notices missing
    /// ones.
    fn count(&self) {
        let last = self.next_number() - 1;
        self.attempt.progress.change(|progress| progress.journaled = progress.journaled.max(last));
    }

    fn push(&self, entry: HistoryEntry, sequence: u64) {
        {
            let mut written = self.written();
            written.sequence = sequence;
            written.entries.push(entry);
        }
        self.count();
    }

    /// The valid entries, without those that a restore revoked.
    pub(crate) fn entries(&self) -> Vec<HistoryEntry> {
        standing(&self.written().entries)
    }

    /// Reads every entry, including those that a restore revoked.
    pub(crate) fn with_all_entries<T>(&self, read: impl FnOnce(&[HistoryEntry]) -> T) -> T {
        read(&self.written().entries)
    }

    pub(crate) fn last(&self) -> Option<HistoryEntry> {
        self.written().entries.last().cloned()
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.written().entries.last().map_or(1, |entry| entry.number + 1)
    }

    /// The costs of calls with open holds, as far as the journal has them (B10).
    pub(crate) fn settled(&self, open: &[OpenHold]) -> Vec<SettledCall> {
        let written = self.written();
        let settled = |hold: &OpenHold| {
            let known = |entry| Some((entry, known_cost(entry, &hold.call_id)?));
            let (entry, cost) = written.entries.iter().find_map(known)?;
            let model = entry.step.as_model().map(|step| step.model.clone());
            Some(SettledCall { call_id: hold.call_id.clone(), amount: cost.amount, model })
        };
        open.iter().filter_map(settled).collect()
    }

    /// Records the calls of earlier attempts that are missing in the journal, since their ends are
    /// unknown (B10, B19). The call ids make this idempotent: after a crash behind this, the
    /// journal has the calls.
    pub(crate) async fn note_lost(&self, open: &[OpenHold]) {
        let is_shown = |hold: &&OpenHold| {
            self.with_all_entries(|written| written.iter().any(|entry| is_of(entry, &hold.call_id)))
        };
        let lost: Vec<&OpenHold> = open.iter().filter(|hold| !is_shown(hold)).collect();
        for hold in lost {
            let cause = format!("attempt {} ended before the call did", hold.attempt);
            let (call_id, amount) = (hold.call_id.clone(), hold.amount);
            self.append(HistoryStep::Lost(Box::new(LostStep { call_id, model: None, amount, cause }))).await;
        }
    }

    /// Appends a step. Returns only after it is stored. If another attempt has written to the
    /// journal, this attempt ends.
    pub(crate) async fn append(&self, step: HistoryStep) -> HistoryEntry {
        match self.try_append(step).await {
            Ok(entry) => entry,
            Err(AttemptFenced) => self.attempt.lease.stop("another attempt has written to the journal").await,
        }
    }

    async fn try_append(&self, step: HistoryStep) -> Result<HistoryEntry, AttemptFenced> {
        let (number, sequence) = (self.next_number(), self.written().sequence);
        let entry = HistoryEntry {
            trace_id: self.attempt.trace_id(),
            child_id: self.attempt.child_id().clone(),
            number,
            attempt: self.attempt.number(),
            at: self.attempt.now(),
            step,
        };
        let entry = self.without_secrets(entry);
        let message = self.message(&entry, sequence).await;
        let mut backoff = Backoff::default();
        loop {
            match self.attempt.bus.publish(message.clone()).await {
                Ok(published) => {
                    self.push(entry.clone(), published.sequence);
                    return Ok(entry);
                }
                Err(PublishError::WrongSequence) => match self.own_sequence(&entry, sequence).await {
                    Some(sequence) => {
                        self.push(entry.clone(), sequence);
                        return Ok(entry);
                    }
                    None => return Err(AttemptFenced),
                },
                Err(
                    error @ (PublishError::Full(_)
                    | PublishError::Unacknowledged
                    | PublishError::Denied(_)
                    | PublishError::Other(_)),
                ) => {
                    tracing::debug!(%error, number, "could not append a step to the journal yet");
                    if backoff.wait_bounded().await.is_err() {
                        let message = format!("step {number} could not be appended to the journal: {error}");
                        self.attempt.give_up(Failure::retryable(message)).await;
                    }
                }
            }
        }
    }

    /// S8: the entry as it is stored. Most parts are redacted earlier; this pass covers parts that
    /// were overlooked.
    fn without_secrets(&self, entry: HistoryEntry) -> HistoryEntry {
        let payload = serde_json::to_vec(&entry).expect("a message has string keys");
        let redacted = self.attempt.redactor.message(payload.clone());
        if redacted == payload {
            entry
        } else {
            serde_json::from_slice(&redacted).expect("only texts differ")
        }
    }

    /// The append as a message, which is stored only if `sequence` is still the last.
    async fn message(&self, entry: &HistoryEntry, sequence: u64) -> Outgoing {
        let number = entry.number;
        let payload = serde_json::to_vec(entry).expect("a message has string keys");
        if payload.len() > MAX_ENTRY_BYTES {
            let limit = SetLimit::built_in("the maximum bytes of a journal entry", MAX_ENTRY_BYTES);
            let message = format!("step {number} has {} bytes, which exceeds {limit}", payload.len());
            self.attempt.give_up(Failure::lasting(FailureKind::LimitExceeded, message)).await;
        }
        let id = self.attempt.message_id(&format!("{number}.{}.history", self.attempt.number()));
        Outgoing {
            subject: self.subject.clone(),
            id: Some(id),
            headers: self.attempt.headers(),
            payload: payload.into(),
            expect_last: Some(sequence),
        }
    }

    /// The sequence of this attempt's entry, if the append succeeded but its acknowledgement was
    /// lost.
    async fn own_sequence(&self, entry: &HistoryEntry, before: u64) -> Option<u64> {
        let mut backoff = Backoff::default();
        loop {
            match self.attempt.bus.last(&Filter::One(self.subject.clone())).await {
                Ok(Some(last)) => {
                    let same = decode::json::<HistoryEntry>(&last.payload).is_ok_and(|found| found == *entry);
                    return (same && last.sequence > before).then_some(last.sequence);
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::debug!(%error, "could not read the journal yet");
                    if backoff.wait_bounded().await.is_err() {
                        let unread = JournalError::Unread(self.attempt.child_id().clone(), error);
                        self.attempt.give_up(unread.into()).await;
                    }
                }
            }
        }
    }

    /// The guard is never held over an await.
    fn written(&self) -> MutexGuard<'_, WrittenEntries> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another attempt has appended first.
#[derive(Debug)]
struct AttemptFenced;
