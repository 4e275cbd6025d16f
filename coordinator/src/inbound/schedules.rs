//! Queries about schedules, and their changes (G16). A second delivery is harmless: an equal
//! schedule is not changed again, and a requested run has the id that its sender chose.

use std::collections::HashMap;

use bus::{Storage, Stream};
use domain::{
    ChildId, Json, Problems, ScheduleName, Timestamp, TraceId, Usd,
    graph::{self, Purpose, ResolveError},
    problem::nearest,
    schedule::{self, MAX_SCHEDULES, NotNow, ReadySchedule, State, ask, pause},
    wire::{QueryAnswer, Refusal, ScheduleShown, ScheduleSummary, TickShown},
};
use trace::Trace;

use super::names;
use crate::{
    error_log,
    loops::Handles,
    registry::Appended,
    schedule_runner::{self, Error},
    schedules::{Content, ScheduleRecord},
    storage_headroom::MARK_PERCENT,
};

/// The most tries of a change, because another client may be faster.
const TRIES: usize = 16;
/// The most schedules of one answer.
const MAX_LISTED: u32 = 500;
/// How many ticks are shown: the next, and the last ones.
const NEXT_SHOWN: usize = 5;
const LAST_SHOWN: usize = 20;
/// How many revisions are kept: a tick that is being submitted may need the one before the last.
const REVISIONS_KEPT: usize = 2;

/// The answer, or a refusal after an error.
fn told(answer: Result<QueryAnswer, Error>) -> QueryAnswer {
    answer.unwrap_or_else(|error| {
        error_log::tell(&error, None, "a query about schedules could not be answered");
        match error {
            Error::Schedules(error) if error.is_full() => QueryAnswer::Refused(full()),
            Error::Schedules(_) | Error::Store(_) | Error::Corrupt => {
                QueryAnswer::Refused(Refusal::unavailable())
            }
        }
    })
}

fn full() -> Refusal {
    let hint = "delete unused schedules with `trellis schedules delete NAME`, or make their tasks smaller";
    Refusal::storage_full(format!("there is no room for more schedules\n\nhint: {hint}"))
}

fn refused(problems: &Problems) -> QueryAnswer {
    QueryAnswer::Refused(Refusal::invalid(problems))
}

/// The answer if other clients changed the schedule at every try.
fn contended(name: &ScheduleName) -> QueryAnswer {
    let message = format!("other requests keep changing the schedule `{name}`: try again");
    QueryAnswer::Refused(Refusal { message, ..Refusal::unavailable() })
}

pub(super) async fn put(handles: &Handles, given: &Json, expected: Option<u64>) -> QueryAnswer {
    match schedule::read(given.value()) {
        Ok(readable) => match check_names(handles, &readable).await {
            Ok(()) => told(keep(handles, given, &readable, expected).await),
            Err(refusal) => QueryAnswer::Refused(refusal),
        },
        Err(problems) => refused(&problems),
    }
}

/// Checks that the graphs which its task uses by name exist now; they are looked up again at each
/// tick.
async fn check_names(handles: &Handles, readable: &ReadySchedule) -> Result<(), Refusal> {
    let task = &readable.schedule.task;
    if graph::names(task.value()).is_empty() {
        return Ok(());
    }
    let bytes = usize::try_from(task.size_bytes()).unwrap_or(usize::MAX);
    match names::read(handles, task.value().clone(), bytes, Purpose::Submission).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(ResolveError::Now { problems, .. } | ResolveError::Wrong(problems))) => {
            let mut found = Problems::default();
            for problem in problems.iter() {
                found.add(format!("task.{}", problem.path), &problem.message, problem.hint.clone());
            }
            Err(Refusal::invalid(&found))
        }
        Err(error) => {
            error_log::tell(&error, None, "the graphs that a schedule uses by name can't be read");
            Err(Refusal::unavailable())
        }
    }
}

async fn keep(
    handles: &Handles,
    given: &Json,
    readable: &ReadySchedule,
    expected: Option<u64>,
) -> Result<QueryAnswer, Error> {
    if let Err(problems) = check(handles, given, readable) {
        return Ok(refused(&problems));
    }
    let (all, name) = (&handles.schedules, &readable.schedule.name);
    all.caught_up().await?;
    for _ in 0..TRIES {
        let known = all.one(name).await?;
        let exists = !known.is_deleted();
        let found = if exists { known.revision } else { 0 };
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            let message = match found {
                0 => format!("there is no schedule `{name}`, and revision {expected} was expected"),
                _ => format!("`{name}` has revision {found}, and {expected} was expected"),
            };
            let hint = "read it with `trellis schedules show`, and apply it again";
            return Ok(refused(&Problems::one("revision", message, Some(hint.into()))));
        }
        if exists && is_same(all.given(name).await?.as_ref(), given, &known, readable) {
            return Ok(kept(name, &known, true));
        }
        if let Some(refusal) = no_room(handles, exists) {
            return Ok(QueryAnswer::Refused(refusal));
        }
        let at = handles.clock.now();
        if let Appended::Done(known) = all.revise(name, &known, at, Some(given.value())).await? {
            if let Err(error) = all.remove_revisions(name, REVISIONS_KEPT).await {
                tracing::debug!(%name, %error, "earlier revisions of a schedule could not be removed");
            }
            return Ok(kept(name, &known, false));
        }
    }
    Ok(contended(name))
}

/// Returns true if the definition, including its pause, is equal to the known one.
fn is_same(latest: Option<&Json>, given: &Json, known: &ScheduleRecord, readable: &ReadySchedule) -> bool {
    let Some(brief) = known.brief() else { return false };
    let paused = readable.schedule.paused.is_none_or(|paused| paused == brief.rules.is_paused(&known.state));
    latest == Some(given) && paused
}

/// Checks the conditions that depend on the deployment.
fn check(handles: &Handles, given: &Json, readable: &ReadySchedule) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let ceiling = readable.ceiling.unwrap_or(schedule_runner::default_ceiling(handles));
    if let Some(budget) = readable.schedule.budget_per_day_usd.filter(|budget| *budget < ceiling) {
        let message = format!("one run may cost {ceiling}, more than the {budget} of a day");
        let hint = "give the task a lower `max_cost_usd`, or raise the budget";
        problems.add("budget_per_day_usd", message, Some(hint.into()));
    }
    let now = handles.clock.now();
    let next = readable.timetable.next(now);
    if next.is_none_or(|next| readable.until.is_some_and(|until| next > until)) {
        let path = if readable.until.is_some() { "until" } else { "cron" };
        problems.add(path, "it would never be due again", None);
    }
    let bytes = given.size_bytes();
    if !handles.bus.fits(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        problems.add("", format!("it has {bytes} bytes, more than a message can carry"), None);
    }
    problems.or(())
}

fn no_room(handles: &Handles, exists: bool) -> Option<Refusal> {
    if !exists && handles.schedules.count() >= MAX_SCHEDULES {
        let hint = "delete unused schedules with `trellis schedules delete NAME`";
        let message = format!("there are {MAX_SCHEDULES} schedules already\n\nhint: {hint}");
        return Some(Refusal::new("too_many_schedules", "G16", message));
    }
    // Above the mark the log takes only decisions about ticks.
    let fills = handles.room.fills();
    let fill = fills.iter().find(|fill| fill.storage == Storage::Stream(Stream::Schedule))?;
    (fill.percent() >= MARK_PERCENT).then(full)
}

fn kept(name: &ScheduleName, known: &ScheduleRecord, unchanged: bool) -> QueryAnswer {
    let rules = known.brief().map(|brief| &brief.rules);
    QueryAnswer::ScheduleKept {
        name: name.clone(),
        revision: known.revision,
        unchanged,
        paused: rules.is_some_and(|rules| rules.is_paused(&known.state)),
        next: rules.and_then(|rules| rules.next(&known.state)),
    }
}

pub(super) async fn delete(handles: &Handles, name: &ScheduleName) -> QueryAnswer {
    told(remove(handles, name).await)
}

async fn remove(handles: &Handles, name: &ScheduleName) -> Result<QueryAnswer, Error> {
    let all = &handles.schedules;
    for _ in 0..TRIES {
        let known = all.one(name).await?;
        if known.is_deleted() {
            let deleted = QueryAnswer::ScheduleDeleted { name: name.clone(), at: known.at };
            return Ok(if known.revision > 0 { deleted } else { unknown(handles, name).await? });
        }
        let at = handles.clock.now();
        if let Appended::Done(_) = all.revise(name, &known, at, None).await? {
            // If this fails, the messages stay until the name is put and deleted again.
            all.remove_revisions(name, 1).await?;
            all.remove_states(name, &known).await?;
            return Ok(QueryAnswer::ScheduleDeleted { name: name.clone(), at });
        }
    }
    Ok(contended(name))
}

pub(super) async fn set_paused(handles: &Handles, name: &ScheduleName, paused: bool) -> QueryAnswer {
    told(change_pause(handles, name, paused).await)
}

async fn change_pause(handles: &Handles, name: &ScheduleName, paused: bool) -> Result<QueryAnswer, Error> {
    for _ in 0..TRIES {
        let known = handles.schedules.one(name).await?;
        let Some(brief) = known.brief() else { return unknown(handles, name).await };
        let Some(next) = pause(&brief.rules, &known.state, paused, handles.clock.now()) else {
            return Ok(kept(name, &known, true));
        };
        if let Appended::Done(known) = handles.schedules.decide(name, &known, &next).await? {
            return Ok(kept(name, &known, false));
        }
    }
    Ok(contended(name))
}

pub(super) async fn run(handles: &Handles, name: &ScheduleName, id: &ChildId) -> QueryAnswer {
    told(run_now(handles, name, ReadySchedule::trace_asked(name, id.as_str())).await)
}

async fn run_now(handles: &Handles, name: &ScheduleName, trace_id: TraceId) -> Result<QueryAnswer, Error> {
    let accepted = || QueryAnswer::ScheduleRun { name: name.clone(), trace_id };
    for _ in 0..TRIES {
        let known = handles.schedules.one(name).await?;
        let Some(brief) = known.brief().cloned() else { return unknown(handles, name).await };
        let is_it = |pending: &domain::schedule::Run| pending.trace_id == trace_id;
        let decided = if known.state.pending.as_ref().is_some_and(is_it) {
            Some(schedule_runner::pending(known))
        } else if schedule_runner::was_submitted(handles, trace_id).await? {
            return Ok(accepted());
        } else {
            let (found, ceiling) = (
                schedule_runner::found(handles, &known.state).await?,
                schedule_runner::default_ceiling(handles),
            );
            let now = handles.clock.now();
            match ask(&brief.rules, &known.state, now, &found, ceiling, trace_id) {
                Ok(next) => schedule_runner::decided(handles, name, &known, next).await?,
                Err(not_now) => return Ok(QueryAnswer::Refused(why(name, &not_now))),
            }
        };
        if let Some(decided) = decided {
            let refusal = schedule_runner::run_now(handles, name, &brief, decided).await?;
            return Ok(refusal.map_or_else(accepted, QueryAnswer::Refused));
        }
    }
    Ok(contended(name))
}

fn why(name: &ScheduleName, not_now: &NotNow) -> Refusal {
    match not_now {
        NotNow::Busy => Refusal {
            message: format!("a run of `{name}` is being submitted: try again"),
            ..Refusal::unavailable()
        },
        NotNow::Overlap(live) => {
            let hint = format!(
                "wait for it, or cancel it with `trellis runs cancel {live}`; `overlap: allow` lets runs overlap"
            );
            Refusal::new("overlap", "G16", format!("its run {live} is live\n\nhint: {hint}"))
        }
        NotNow::Budget(reason) => {
            let hint = "raise `budget_per_day_usd`, or wait until tomorrow";
            Refusal::new("budget_per_day", "G16", format!("{reason}\n\nhint: {hint}"))
        }
    }
}

async fn unknown(handles: &Handles, name: &ScheduleName) -> Result<QueryAnswer, Error> {
    handles.schedules.caught_up().await?;
    let all = handles.schedules.behind(None, MAX_LISTED as usize);
    let hint = match nearest(name.as_str(), all.iter().map(|(name, _)| name.as_str())) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`trellis schedules list` shows all of them".into(),
    };
    Ok(refused(&Problems::one("name", format!("there is no schedule `{name}`"), Some(hint))))
}

pub(super) async fn list(handles: &Handles, after: Option<&ScheduleName>, limit: u32) -> QueryAnswer {
    told(page(handles, after, limit.clamp(1, MAX_LISTED) as usize).await)
}

async fn page(handles: &Handles, after: Option<&ScheduleName>, limit: usize) -> Result<QueryAnswer, Error> {
    handles.schedules.caught_up().await?;
    // One more than requested: there is a next page only if it has an entry.
    let mut found = handles.schedules.behind(after, limit + 1);
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|(name, _)| name.clone());
    let now = handles.clock.now();
    let schedules = found.iter().map(|(name, known)| summary(name, known, now)).collect();
    Ok(QueryAnswer::Schedules { schedules, next })
}

fn summary(name: &ScheduleName, known: &ScheduleRecord, now: Timestamp) -> ScheduleSummary {
    let brief = known.brief();
    let (rules, state) = (brief.map(|brief| &brief.rules), &known.state);
    ScheduleSummary {
        name: name.clone(),
        revision: known.revision,
        cron: brief.map_or_else(String::new, |brief| brief.cron.clone()),
        time_zone: brief.map_or_else(String::new, |brief| brief.time_zone.clone()),
        paused: rules.is_some_and(|rules| rules.is_paused(state)),
        next: rules.and_then(|rules| rules.next(state)),
        waits_for: rules.and_then(|rules| rules.waits_for(state, now)),
        last: state.last.clone(),
        runs: state.runs,
        skipped: state.skipped,
        missed: state.missed,
        unreadable: match &known.content {
            Content::Unreadable(why) => Some(why.to_string()),
            Content::Rules(_) | Content::Deleted => None,
        },
    }
}

pub(super) async fn show(handles: &Handles, name: &ScheduleName) -> QueryAnswer {
    told(shown(handles, name).await)
}

async fn shown(handles: &Handles, name: &ScheduleName) -> Result<QueryAnswer, Error> {
    let known = handles.schedules.one(name).await?;
    if known.is_deleted() {
        return unknown(handles, name).await;
    }
    let Some(schedule) = handles.schedules.given(name).await? else { return unknown(handles, name).await };
    let now = handles.clock.now();
    let summary = summary(name, &known, now);
    let rules = known.brief().map(|brief| &brief.rules);
    let next_ticks = match (rules, summary.next) {
        (Some(rules), Some(next)) => {
            // Only some of the waiting ticks may be caught up, and which is not known yet; so later
            // ticks are shown.
            let after = summary.waits_for.map_or(next.minus_millis(1), |_| now);
            let ticks = rules.timetable.upcoming(after, NEXT_SHOWN);
            ticks.into_iter().filter(|tick| rules.until.is_none_or(|until| *tick <= until)).collect()
        }
        (_, _) => Vec::new(),
    };
    let used = known.state.used_nanos();
    Ok(QueryAnswer::Schedule(Box::new(ScheduleShown {
        summary,
        schedule,
        changed_at: known.at,
        next_ticks,
        ticks: last_ticks(handles, &handles.schedules.history(name).await?).await?,
        day: Some(known.state.day.clone()).filter(|day| !day.is_empty()),
        day_usd: Usd::from_nanos(used),
    })))
}

/// The last ticks, the newest first, each with the last decision about it.
async fn last_ticks(handles: &Handles, history: &[State]) -> Result<Vec<TickShown>, Error> {
    let mut ticks: Vec<TickShown> = Vec::new();
    let mut places: HashMap<(Timestamp, Option<TraceId>), usize> = HashMap::new();
    for record in history.iter().filter_map(|state| state.last.clone()) {
        let key = (record.at, record.trace_id);
        let shown = TickShown { record, status: None, cost_usd: None };
        match places.get(&key).and_then(|place| ticks.get_mut(*place)) {
            Some(tick) => *tick = shown,
            None => {
                places.insert(key, ticks.len());
                ticks.push(shown);
            }
        }
    }
    ticks.reverse();
    ticks.truncate(LAST_SHOWN);
    let ids: Vec<TraceId> = ticks.iter().filter_map(|tick| tick.record.trace_id).collect();
    let fields = handles.store.fields(&ids, &Trace::SUMMARY_FIELDS).await?;
    let runs: HashMap<TraceId, _> = ids
        .iter()
        .zip(fields)
        .filter_map(|(id, fields)| Some((*id, Trace::summary(*id, &fields).ok()??)))
        .collect();
    for tick in &mut ticks {
        if let Some(run) = tick.record.trace_id.and_then(|id| runs.get(&id)) {
            (tick.status, tick.cost_usd) = (Some(run.status), Some(run.budget.spent.cost_usd));
        }
    }
    Ok(ticks)
}
