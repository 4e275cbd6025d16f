//! Looks after one schedule: due ticks are decided, stored and submitted, in this order (G16). Any
//! coordinator may do so, at any time: of two decisions one is stored, and two submissions are the
//! same run.
//!
//! Crash windows: a coordinator that dies between decision and submission leaves a pending run,
//! which the partition's owner submits. After a crash behind the submission the run is pending too,
//! and the second submission is the same run. Before it, the store and the event log are checked: a
//! run that has ended and was removed is not begun again.

use std::{collections::BTreeMap, time::Duration};

use bus::Outgoing;
use domain::{
    ScheduleName, TraceId, Usd,
    schedule::{self, ReadySchedule, Run, RunState, State, SubmitOutcome},
    span::Headers,
    subject::{Filter, Subject},
    wire::{Overlap, Refusal, SubmitAnswer},
};
use serde_json::json;
use trace::Trace;

use crate::{
    crash::Point,
    error_log,
    loops::Handles,
    registry::{self, Appended, Known},
    schedules::{Brief, ScheduleRecord},
    store,
};

/// Time limit of a submission.
const SUBMITTED_WITHIN: Duration = Duration::from_secs(5);
/// The most decisions about one schedule in one call: all ticks that may be caught up.
const MAX_DECIDED: usize = 256;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Schedules(#[from] registry::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("a run of the schedule can't be read")]
    Corrupt,
}

/// Decides and submits all due ticks. Returns true if something has to wait: for the store, for a
/// run that has not ended, or for a submission that is not possible now.
pub(crate) async fn look_after(handles: &Handles, name: &ScheduleName) -> Result<bool, Error> {
    for _ in 0..MAX_DECIDED {
        let Some(known) = handles.schedules.copy(name) else { return Ok(false) };
        let Some(brief) = known.brief().cloned() else { return Ok(false) };
        let now = handles.clock.now();
        if known.looks_at.is_none_or(|at| at > now) {
            return Ok(false);
        }
        if let Some(pending) = known.state.pending.clone() {
            if submit(handles, name, &brief, &known, &pending, false).await? {
                continue;
            }
            // The pending run waits until the next tick is due.
            if brief.rules.next(&known.state).is_none_or(|tick| tick > now) {
                return Ok(true);
            }
        }
        let found = found(handles, &known.state).await?;
        let ceiling = default_ceiling(handles);
        let Some(next) = schedule::decide(&brief.rules, &known.state, now, &found, ceiling) else {
            return Ok(true);
        };
        if let Some(StoredDecision { known, pending }) = decided(handles, name, &known, next).await?
            && let Some(pending) = pending
            && !submit(handles, name, &brief, &known, &pending, true).await?
        {
            return Ok(true);
        }
    }
    Ok(true)
}

/// The ceiling of a run that asks for none.
pub(crate) fn default_ceiling(handles: &Handles) -> Usd {
    handles.config.settings.root_budget.cost_usd
}

/// A decision that is stored.
pub(crate) struct StoredDecision {
    known: std::sync::Arc<Known<ScheduleRecord>>,
    pending: Option<Run>,
}

/// An earlier decision whose run may not be submitted yet.
pub(crate) fn pending(known: std::sync::Arc<Known<ScheduleRecord>>) -> StoredDecision {
    let pending = known.state.pending.clone();
    StoredDecision { known, pending }
}

/// Stores a decision; none if another coordinator was first.
pub(crate) async fn decided(
    handles: &Handles,
    name: &ScheduleName,
    known: &Known<ScheduleRecord>,
    next: State,
) -> Result<Option<StoredDecision>, Error> {
    match handles.schedules.decide(name, known, &next).await? {
        Appended::Done(known) => {
            if next.pending.is_some() {
                handles.config.crash.pass(Point::TickDecided);
            }
            let pending = next.pending.filter(|pending| known.state.pending.as_ref() == Some(pending));
            Ok(Some(StoredDecision { known, pending }))
        }
        Appended::Behind => {
            handles.schedules.one(name).await?;
            Ok(None)
        }
    }
}

/// Submits a run that a client asked for, after its decision. Returns the refusal, if it is
/// refused.
pub(crate) async fn run_now(
    handles: &Handles,
    name: &ScheduleName,
    brief: &Brief,
    decided: StoredDecision,
) -> Result<Option<Refusal>, Error> {
    let StoredDecision { known, pending: Some(pending) } = decided else { return Ok(None) };
    match attempt(handles, name, brief, &known, &pending, false).await? {
        Attempt::Came(came) => {
            let refusal = match &came {
                SubmitOutcome::Accepted => None,
                SubmitOutcome::Refused(reason) | SubmitOutcome::GivenUp(reason) => {
                    Some(Refusal::new("refused", "G16", format!("the run was refused: {reason}")))
                }
            };
            note(handles, name, &known, &pending, &came).await?;
            Ok(refusal)
        }
        Attempt::Later(refusal) => Ok(Some(refusal)),
    }
}

/// The result of one attempt to submit a run.
enum Attempt {
    Came(SubmitOutcome),
    /// It may be possible later.
    Later(Refusal),
}

/// Submits a pending run and stores the result; false if that is not possible now.
async fn submit(
    handles: &Handles,
    name: &ScheduleName,
    brief: &Brief,
    known: &Known<ScheduleRecord>,
    pending: &Run,
    is_first: bool,
) -> Result<bool, Error> {
    match attempt(handles, name, brief, known, pending, is_first).await? {
        Attempt::Came(came) => note(handles, name, known, pending, &came).await.map(|()| true),
        Attempt::Later(refusal) => {
            tracing::warn!(%name, trace_id = %pending.trace_id, code = refusal.code, "a tick can't be submitted now; trying again");
            Ok(false)
        }
    }
}

async fn note(
    handles: &Handles,
    name: &ScheduleName,
    known: &Known<ScheduleRecord>,
    pending: &Run,
    came: &SubmitOutcome,
) -> Result<(), Error> {
    let now = handles.clock.now();
    let Some(next) = schedule::submitted(&known.state, pending.trace_id, came, now) else { return Ok(()) };
    match handles.schedules.decide(name, known, &next).await? {
        Appended::Done(_) => {}
        Appended::Behind => drop(handles.schedules.one(name).await?),
    }
    Ok(())
}

async fn attempt(
    handles: &Handles,
    name: &ScheduleName,
    brief: &Brief,
    known: &Known<ScheduleRecord>,
    pending: &Run,
    is_first: bool,
) -> Result<Attempt, Error> {
    // A run that existed is not begun again, even if it was removed since.
    if !is_first && was_submitted(handles, pending.trace_id).await? {
        return Ok(Attempt::Came(SubmitOutcome::Accepted));
    }
    let Some(definition) = handles.schedules.definition(name, pending.revision).await? else {
        let reason = "its revision of the schedule is no longer stored".to_owned();
        return Ok(Attempt::Came(SubmitOutcome::GivenUp(reason)));
    };
    if brief.rules.overlap == Overlap::CancelPrevious {
        cancel(handles, &known.state.live, pending).await;
    }
    let came = request(handles, &definition, pending).await;
    handles.config.crash.pass(Point::TickSubmitted);
    Ok(came)
}

pub(crate) async fn was_submitted(handles: &Handles, trace_id: TraceId) -> Result<bool, Error> {
    let stored = handles.store.versions(&[trace_id]).await?.first().is_some_and(|version| *version > 0);
    let logged = handles.bus.last(&Filter::EventsOf(trace_id)).await;
    let logged = logged.map_err(registry::Error::read::<ScheduleRecord>)?;
    Ok(stored || logged.is_some())
}

/// Sends the submission as a client does; any coordinator may take it.
async fn request(handles: &Handles, definition: &ReadySchedule, pending: &Run) -> Attempt {
    let submission = definition.submission(pending.trace_id, pending.ceiling_usd);
    let payload = serde_json::to_vec(&submission).expect("JSON has string keys only");
    let headers = Headers::new();
    let asked = handles.bus.request(&Subject::Submit, &headers, payload.into(), SUBMITTED_WITHIN).await;
    let answer = match asked {
        Ok(answer) => serde_json::from_slice::<SubmitAnswer>(&answer),
        Err(error) => {
            tracing::debug!(%error, "a tick could not be submitted");
            return Attempt::Later(Refusal::unavailable());
        }
    };
    match answer {
        Ok(SubmitAnswer::Accepted(_)) => Attempt::Came(SubmitOutcome::Accepted),
        Ok(SubmitAnswer::Refused(refusal)) if is_transient(&refusal) => Attempt::Later(refusal),
        Ok(SubmitAnswer::Refused(refusal)) => {
            Attempt::Came(SubmitOutcome::Refused(format!("{}: {}", refusal.code, refusal.to_text())))
        }
        Err(_) => Attempt::Later(Refusal::unexpected("submission")),
    }
}

fn is_transient(refusal: &Refusal) -> bool {
    let again = [Refusal::unavailable().code, Refusal::storage_full("").code];
    again.contains(&refusal.code)
}

/// Cancels the earlier runs. A second message is harmless: a run that has ended is not cancelled.
/// If the message is lost, the earlier run continues beside the new one, within the same budgets.
async fn cancel(handles: &Handles, live: &[Run], pending: &Run) {
    for run in live {
        let reason = "the next tick of its schedule has come";
        let message = json!({"trace_id": run.trace_id, "reason": reason});
        let payload = serde_json::to_vec(&message).expect("JSON has string keys only").into();
        let id = Some(format!("schedule-{}-{}", pending.trace_id, run.trace_id));
        let message =
            Outgoing { subject: Subject::Cancel, id, headers: Headers::new(), payload, expect_last: None };
        if let Err(error) = handles.bus.publish(message).await {
            error_log::tell(
                &error,
                Some(run.trace_id),
                "the earlier run of a schedule could not be cancelled",
            );
        }
    }
}

/// The states of the live runs in the store.
pub(crate) async fn found(handles: &Handles, state: &State) -> Result<BTreeMap<TraceId, RunState>, Error> {
    let ids: Vec<TraceId> = state.live.iter().map(|run| run.trace_id).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let fields = handles.store.fields(&ids, &Trace::SUMMARY_FIELDS).await?;
    let mut found = BTreeMap::new();
    for (id, fields) in ids.iter().zip(fields) {
        let summary = Trace::summary(*id, &fields).map_err(|error| {
            tracing::error!(trace_id = %id, %error, "a run of a schedule can't be read; its next tick waits");
            Error::Corrupt
        })?;
        let what = match summary {
            None => RunState::Gone,
            Some(run) => {
                // Money that is still held at the end may be spent.
                let spent = run.budget.spent.cost_usd.nanos() + run.budget.held.cost_usd.nanos();
                let spent = Usd::from_nanos(spent);
                match run.ended_at {
                    Some(at) => RunState::Ended { cost: spent, at },
                    None => RunState::Live { ceiling: run.budget.limit.cost_usd.max(spent) },
                }
            }
        };
        found.insert(*id, what);
    }
    Ok(found)
}
