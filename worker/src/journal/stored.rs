//! Reads a stored journal as a whole, or returns the reason why it can't be used.

use bus::{Bus, of_first_writers};
use domain::{
    CallId, ChildId, decode,
    subject::Filter,
    wire::{CallCost, Failure, FailureKind, HistoryEntry, HistoryStep},
};

use crate::retry::Backoff;

/// The reasons why a stored journal can't be used. An attempt without it would pay for the same
/// calls again, and repeat finished steps.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("the journal of `{0}` can't be read: {1}")]
    Unread(ChildId, bus::Error),
    /// The entry may be from a newer worker, and such a worker can read it.
    #[error("this worker can't interpret entry {number} of the journal of `{child_id}`: {problems}")]
    Foreign { child_id: ChildId, number: usize, problems: String },
    #[error("entry {number} of the journal of `{child_id}` is damaged: {problems}")]
    Damaged { child_id: ChildId, number: usize, problems: String },
    #[error("the journal of `{0}` is incomplete: {1}; journals are kept for a limited time")]
    Incomplete(ChildId, String),
}

impl From<JournalError> for Failure {
    fn from(unusable: JournalError) -> Self {
        match unusable {
            JournalError::Unread(..) | JournalError::Foreign { .. } => {
                Failure::retryable(unusable.to_string())
            }
            JournalError::Damaged { .. } | JournalError::Incomplete(..) => {
                Failure::lasting(FailureKind::Agent, unusable.to_string())
            }
        }
    }
}

/// All entries of a journal, oldest first, and the sequence of the last one. Reads from an
/// unreachable bus are retried up to the limit.
pub(super) async fn read(
    bus: &Bus,
    filter: &Filter,
    child_id: &ChildId,
) -> Result<(Vec<HistoryEntry>, u64), JournalError> {
    let mut backoff = Backoff::default();
    let stored = loop {
        match bus.read(filter).await {
            Ok(stored) => break of_first_writers(stored),
            Err(error) => {
                tracing::debug!(%error, "could not read a journal yet");
                let permanent = matches!(error, bus::Error::TooLarge { .. } | bus::Error::Denied(_));
                if permanent || backoff.wait_bounded().await.is_err() {
                    return Err(JournalError::Unread(child_id.clone(), error));
                }
            }
        }
    };
    let sequence = stored.last().map_or(0, |message| message.sequence);
    let decoded = (1..).zip(&stored).map(|(number, message)| decode(child_id, number, &message.payload));
    let entries = decoded.collect::<Result<Vec<_>, _>>()?;
    check_whole(child_id, &entries)?;
    Ok((entries, sequence))
}

fn decode(child_id: &ChildId, number: usize, payload: &[u8]) -> Result<HistoryEntry, JournalError> {
    decode::from_peer(payload).map_err(|problems| {
        let (child_id, problems) = (child_id.clone(), problems.to_string());
        match decode::parse(payload, decode::Format::Json) {
            Ok(_) => JournalError::Foreign { child_id, number, problems },
            Err(_) => JournalError::Damaged { child_id, number, problems },
        }
    })
}

/// Rejects a journal with gaps. Old entries expire first, so a journal that lost some begins with a
/// later number.
fn check_whole(child_id: &ChildId, entries: &[HistoryEntry]) -> Result<(), JournalError> {
    for (expected, entry) in (1..).zip(entries) {
        if entry.number != expected {
            let what = format!("entry {expected} is missing, the next is {}", entry.number);
            return Err(JournalError::Incomplete(child_id.clone(), what));
        }
    }
    Ok(())
}

/// The valid entries: a restore revokes everything after the entry it names.
pub(super) fn standing(entries: &[HistoryEntry]) -> Vec<HistoryEntry> {
    let mut standing: Vec<HistoryEntry> = Vec::new();
    for entry in entries {
        if let HistoryStep::Restored { to, .. } = entry.step {
            standing.retain(|earlier| earlier.number <= to);
        }
        standing.push(entry.clone());
    }
    standing
}

/// The cost of a call, if this entry has it and it is not an estimate.
pub(super) fn known_cost<'e>(entry: &'e HistoryEntry, call_id: &CallId) -> Option<&'e CallCost> {
    let step = entry.step.as_model()?;
    (step.call_id == *call_id && !step.cost.estimated).then_some(&step.cost)
}

/// Returns true if this entry records the call.
pub(super) fn is_of(entry: &HistoryEntry, call_id: &CallId) -> bool {
    entry.step.paid_call().is_some_and(|(paid, _)| paid == call_id)
}
