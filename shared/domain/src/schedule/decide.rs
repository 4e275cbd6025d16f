//! Decides the ticks of a schedule. Each tick is run once, skipped or missed; the last decision is
//! stored with its reason.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    ScheduleName, Timestamp, TraceId, Usd,
    schedule::{ReadySchedule, Timetable},
    wire::{Overlap, TickOutcome, TickRecord},
    wording,
};

use super::{MAX_LIVE, PauseState, Run, State};

/// A tick that is decided later than this was missed.
const ON_TIME_MS: u64 = 60_000;
/// The least time for which submitting a run is tried, even if the next tick is due.
const TRIED_MS: u64 = 60_000;
/// The most ticks that one decision counts.
const MAX_COUNTED: u64 = 10_000;
/// The longest reason that is stored.
const MAX_REASON_BYTES: usize = 120;

/// The rules of a definition for its ticks, without its task.
#[derive(Debug, Clone)]
pub struct Rules {
    pub name: ScheduleName,
    pub revision: u64,
    /// The creation time of the definition. Earlier ticks are not part of it.
    pub since: Timestamp,
    pub timetable: Timetable,
    pub overlap: Overlap,
    pub catch_up: u32,
    pub catch_up_within_ms: u64,
    pub budget_per_day_usd: Option<Usd>,
    pub paused: Option<bool>,
    pub until: Option<Timestamp>,
    pub max_runs: Option<u64>,
    /// The ceiling of one run. Without one, a run gets the deployment's default.
    pub ceiling_usd: Option<Usd>,
}

/// The state of a run in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    Live {
        ceiling: Usd,
    },
    Ended {
        cost: Usd,
        at: Timestamp,
    },
    /// The store has no such run: it ended and was removed, or never began.
    Gone,
}

/// The result of submitting a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    Accepted,
    Refused(String),
    /// It can't be submitted any more. An earlier try may have been accepted.
    GivenUp(String),
}

/// The reason why a requested run is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotNow {
    /// Another run is being submitted.
    Busy,
    Overlap(TraceId),
    Budget(String),
}

impl Rules {
    /// Takes the rules from a definition.
    pub fn new(readable: &ReadySchedule, revision: u64, since: Timestamp) -> Self {
        let schedule = &readable.schedule;
        Rules {
            name: schedule.name.clone(),
            revision,
            since,
            timetable: readable.timetable.clone(),
            overlap: schedule.overlap,
            catch_up: schedule.catch_up,
            catch_up_within_ms: schedule.catch_up_within_ms,
            budget_per_day_usd: schedule.budget_per_day_usd,
            paused: schedule.paused,
            until: readable.until,
            max_runs: schedule.max_runs,
            ceiling_usd: readable.ceiling,
        }
    }

    /// Returns true if the schedule is paused, by a definition or by a command. The later of the
    /// two decides.
    pub fn is_paused(&self, state: &State) -> bool {
        let said = state.paused.filter(|said| said.revision >= self.revision || self.paused.is_none());
        said.map_or(self.paused.unwrap_or(false), |said| said.paused)
    }

    /// Returns the time up to which ticks are decided. A new revision never decides earlier ticks
    /// again.
    fn done(&self, state: &State) -> Timestamp {
        if state.revision < self.revision { state.done.max(self.since) } else { state.done }
    }

    fn next_behind(&self, after: Timestamp) -> Option<Timestamp> {
        self.timetable.next(after).filter(|tick| self.until.is_none_or(|until| *tick <= until))
    }

    /// Returns the next undecided tick; `None` if the schedule is paused or over.
    pub fn next(&self, state: &State) -> Option<Timestamp> {
        let over = self.max_runs.is_some_and(|most| state.runs >= most);
        if over || self.is_paused(state) { None } else { self.next_behind(self.done(state)) }
    }

    /// Returns the run that the next tick waits for, if that tick is due.
    pub fn waits_for(&self, state: &State, now: Timestamp) -> Option<TraceId> {
        let is_due = self.overlap == Overlap::Queue && self.next(state).is_some_and(|tick| tick <= now);
        state.live.first().filter(|_| is_due).map(|run| run.trace_id)
    }
}

/// Returns the earliest time with something to decide or submit; `None` if only a change of the
/// rules or the state can bring one.
pub fn looks_at(rules: &Rules, state: &State) -> Option<Timestamp> {
    if state.pending.is_some() { Some(Timestamp::default()) } else { rules.next(state) }
}

/// Decides the first tick that is due. Returns the state to store, or `None` if there is nothing to
/// decide. `found` has every live run of the state. `ceiling` is the ceiling of a run whose task
/// sets none.
pub fn decide(
    rules: &Rules,
    state: &State,
    now: Timestamp,
    found: &BTreeMap<TraceId, RunState>,
    ceiling: Usd,
) -> Option<State> {
    let due = rules.next(state).filter(|tick| *tick <= now)?;
    let mut next = state.clone();
    (next.done, next.revision) = (rules.done(state), rules.revision);
    if let Some(pending) = next.pending.take() {
        let decided = next.last.as_ref().filter(|last| last.trace_id == Some(pending.trace_id));
        if now.millis_since(decided.map_or(pending.at, |last| last.decided_at)) < TRIED_MS {
            return None;
        }
        // It was tried until now and may have been accepted, so it is treated as live.
        next.last = Some(record(&pending, now, TickOutcome::GivenUp, "the next tick has come".into()));
        next.live.push(Run { revision: 0, ..pending });
        return Some(next);
    }
    let waited_until = waited_until(rules, &next, found);
    settle(&mut next, found)?;
    if rules.overlap == Overlap::Queue && !next.live.is_empty() {
        return None;
    }
    let due = match missed(rules, next.done, due, now, waited_until) {
        MissedTicks::None(tick) => tick,
        MissedTicks::Some { from, until, ticks } => {
            next.done = until;
            next.missed += ticks;
            let reason = why_missed(rules, from, until, now, waited_until);
            next.last = Some(TickRecord {
                ticks: Some(ticks),
                until: Some(until),
                ..plain(from, now, TickOutcome::Missed, Some(reason))
            });
            return Some(next);
        }
    };
    next.done = due;
    begin_day(rules, &mut next, due);
    let run = Run {
        at: due,
        day: next.day.clone(),
        trace_id: ReadySchedule::trace_of(&rules.name, rules.revision, rules.since, due),
        ceiling_usd: rules.ceiling_usd.unwrap_or(ceiling),
        revision: rules.revision,
        asked: false,
    };
    if let Some(live) = in_the_way(rules, &next) {
        let reason = format!("{live} is live");
        next.skipped += 1;
        next.last = Some(plain(due, now, TickOutcome::SkippedOverlap, Some(reason)));
    } else if let Some(reason) = too_expensive(rules, &next, &run) {
        next.skipped += 1;
        next.last = Some(plain(due, now, TickOutcome::SkippedBudget, Some(reason)));
    } else {
        start(&mut next, run, now);
    }
    Some(next)
}

/// Decides a run that a user requests in addition to the timetable; a paused schedule allows it
/// too. The same id gives the same run, so the caller first checks whether that run exists.
pub fn ask(
    rules: &Rules,
    state: &State,
    now: Timestamp,
    found: &BTreeMap<TraceId, RunState>,
    ceiling: Usd,
    trace_id: TraceId,
) -> Result<State, NotNow> {
    let mut next = state.clone();
    (next.done, next.revision) = (rules.done(state), rules.revision);
    if next.pending.is_some() || settle(&mut next, found).is_none() {
        return Err(NotNow::Busy);
    }
    begin_day(rules, &mut next, now);
    let ceiling_usd = rules.ceiling_usd.unwrap_or(ceiling);
    let day = next.day.clone();
    let run = Run { at: now, day, trace_id, ceiling_usd, revision: rules.revision, asked: true };
    let in_the_way = match rules.overlap {
        Overlap::Queue => next.live.first().map(|run| run.trace_id),
        Overlap::Skip | Overlap::Allow | Overlap::CancelPrevious => in_the_way(rules, &next),
    };
    if let Some(live) = in_the_way {
        return Err(NotNow::Overlap(live));
    }
    if let Some(reason) = too_expensive(rules, &next, &run) {
        return Err(NotNow::Budget(reason));
    }
    start(&mut next, run, now);
    Ok(next)
}

/// Records the result of submitting the pending run. Returns `None` if that run is not pending.
pub fn submitted(state: &State, trace_id: TraceId, came: &SubmitOutcome, now: Timestamp) -> Option<State> {
    let mut next = state.clone();
    let run = next.pending.take_if(|pending| pending.trace_id == trace_id)?;
    let (outcome, reason) = match came {
        SubmitOutcome::Accepted => (TickOutcome::Submitted, None),
        SubmitOutcome::Refused(reason) => (TickOutcome::Refused, Some(reason.clone())),
        SubmitOutcome::GivenUp(reason) => (TickOutcome::GivenUp, Some(reason.clone())),
    };
    let mut record = record(&run, now, outcome, reason.unwrap_or_default());
    record.reason = record.reason.filter(|reason| !reason.is_empty());
    next.last = Some(record);
    match came {
        // A run that was given up may have been accepted after all.
        SubmitOutcome::Accepted | SubmitOutcome::GivenUp(_) => next.live.push(Run { revision: 0, ..run }),
        // It never began, so it is not one of the runs that `max_runs` allows.
        SubmitOutcome::Refused(_) => next.runs = next.runs.saturating_sub(1),
    }
    Some(next)
}

/// Pauses or resumes. Returns `None` if nothing would change. Ticks during the pause are not run.
pub fn pause(rules: &Rules, state: &State, paused: bool, now: Timestamp) -> Option<State> {
    if rules.is_paused(state) == paused {
        return None;
    }
    let mut next = state.clone();
    next.done = if paused { rules.done(state) } else { rules.done(state).max(now) };
    next.revision = rules.revision;
    next.paused = Some(PauseState { revision: rules.revision, paused });
    let outcome = if paused { TickOutcome::Paused } else { TickOutcome::Resumed };
    next.last = Some(plain(now, now, outcome, None));
    Some(next)
}

fn start(next: &mut State, run: Run, now: Timestamp) {
    next.runs += 1;
    next.last = Some(TickRecord { reason: None, ..record(&run, now, TickOutcome::Decided, String::new()) });
    next.pending = Some(run);
}

/// Removes the runs that have ended, and books their cost on their day. Returns `None` if `found`
/// lacks a run.
fn settle(next: &mut State, found: &BTreeMap<TraceId, RunState>) -> Option<()> {
    let mut live = Vec::new();
    for run in std::mem::take(&mut next.live) {
        let cost = match found.get(&run.trace_id)? {
            RunState::Live { ceiling } => {
                live.push(Run { ceiling_usd: *ceiling, ..run });
                continue;
            }
            RunState::Ended { cost, .. } => *cost,
            // The cost is unknown, and the ceiling is its upper bound.
            RunState::Gone => run.ceiling_usd,
        };
        if run.day == next.day {
            next.spent_nanos = next.spent_nanos.saturating_add(cost.nanos());
        }
    }
    next.live = live;
    Some(())
}

/// A day begins with its first tick. An earlier tick never ends it.
fn begin_day(rules: &Rules, next: &mut State, tick: Timestamp) {
    let day = rules.timetable.day(tick);
    if day > next.day {
        (next.day, next.spent_nanos) = (day, 0);
    }
}

/// Returns the live run because of which a tick is skipped.
fn in_the_way(rules: &Rules, next: &State) -> Option<TraceId> {
    let most = match rules.overlap {
        Overlap::Skip => 1,
        // Ticks do not wait here: with `Queue`, a tick is only decided once no run is live.
        Overlap::Queue | Overlap::Allow | Overlap::CancelPrevious => MAX_LIVE,
    };
    next.live.get(most - 1).map(|run| run.trace_id)
}

/// Returns the reason why a run does not fit into the rest of the day's budget. Ended runs use
/// their cost of the budget, live runs their ceiling.
fn too_expensive(rules: &Rules, next: &State, run: &Run) -> Option<String> {
    let budget = rules.budget_per_day_usd?;
    let used = next.used_nanos();
    let wants = run.ceiling_usd;
    (used.saturating_add(wants.nanos()) > budget.nanos()).then(|| {
        let left = Usd::from_nanos(budget.nanos().saturating_sub(used));
        format!("it may cost {wants}, and {left} of the day's {budget} is left")
    })
}

impl State {
    /// Returns the state to keep when the schedule is deleted. It has the money that the day's
    /// budget paid or may still pay, so that a schedule with the same name on the same day can't
    /// spend it again.
    pub fn after_deletion(&self) -> State {
        match self.used_nanos() {
            0 => State::default(),
            spent_nanos => State { day: self.day.clone(), spent_nanos, ..State::default() },
        }
    }

    /// Sums the cost of the day's ended runs and the ceilings of its live and pending ones.
    pub fn used_nanos(&self) -> u64 {
        let of_day = |run: &&Run| run.day == self.day;
        let may_cost =
            self.live.iter().chain(&self.pending).filter(of_day).map(|run| run.ceiling_usd.nanos());
        may_cost.fold(self.spent_nanos, u64::saturating_add)
    }
}

/// The ticks up to now that are too late to run.
enum MissedTicks {
    /// No tick was missed; this one is next.
    None(Timestamp),
    Some {
        from: Timestamp,
        until: Timestamp,
        ticks: u64,
    },
}

/// Returns the time until which ticks waited for an earlier run, if the schedule queues them.
fn waited_until(rules: &Rules, state: &State, found: &BTreeMap<TraceId, RunState>) -> Option<Timestamp> {
    let ends = state.live.iter().filter_map(|run| match found.get(&run.trace_id)? {
        RunState::Ended { at, .. } => Some(*at),
        RunState::Live { .. } | RunState::Gone => None,
    });
    ends.max().filter(|_| rules.overlap == Overlap::Queue)
}

/// Returns the reason why ticks were missed: the cause of the delay, and why they are not caught
/// up.
fn why_missed(
    rules: &Rules,
    from: Timestamp,
    until: Timestamp,
    now: Timestamp,
    waited_until: Option<Timestamp>,
) -> String {
    let kept_from = match waited_until {
        Some(end) if until <= end => format!("an earlier run was live until {end}"),
        Some(end) if from <= end => {
            format!("an earlier run was live until {end}, then no coordinator could run it")
        }
        Some(_) | None => "no coordinator could run it".to_owned(),
    };
    let is_too_old = rules.catch_up > 0 && now.millis_since(until) > rules.catch_up_within_ms;
    if is_too_old {
        format!("{kept_from}, and catch_up_within_ms is over")
    } else {
        format!("{kept_from}, and catch_up is {}", rules.catch_up)
    }
}

/// Separates the missed ticks from those that still run: the latest ones, as many as `catch_up`
/// allows, and all that are on time. Of the ticks that waited for an earlier run, only the newest
/// can be on time. Otherwise the queue would grow.
fn missed(
    rules: &Rules,
    done: Timestamp,
    first: Timestamp,
    now: Timestamp,
    waited_until: Option<Timestamp>,
) -> MissedTicks {
    let most = rules.catch_up.max(1) as usize;
    let has_waited = |tick: Timestamp| waited_until.is_some_and(|end| tick <= end);
    let is_recent = |tick: Timestamp| now.millis_since(tick) <= ON_TIME_MS;
    let mut latest: VecDeque<Timestamp> = VecDeque::new();
    let (mut ticks, mut at, mut last_dropped) = (0, done, None);
    while let Some(tick) = rules.next_behind(at).filter(|tick| *tick <= now) {
        at = tick;
        ticks += 1;
        latest.push_back(tick);
        let is_on_time = |tick: &Timestamp| is_recent(*tick) && !has_waited(*tick);
        if latest.len() > most && !latest.front().is_some_and(is_on_time) {
            last_dropped = latest.pop_front();
        }
        if ticks == MAX_COUNTED {
            // The ticks before this time are not counted, and are too old to run.
            at = at.max(now.minus_millis(rules.catch_up_within_ms.max(ON_TIME_MS)));
        }
        if ticks > MAX_COUNTED {
            ticks = MAX_COUNTED + 1;
        }
    }
    let newest = latest.back().copied();
    let is_on_time = |tick: Timestamp| is_recent(tick) && (!has_waited(tick) || Some(tick) == newest);
    while let Some(tick) = latest.front().copied() {
        let late = now.millis_since(tick);
        let may = (rules.catch_up > 0 && late <= rules.catch_up_within_ms) || is_on_time(tick);
        if may {
            break;
        }
        latest.pop_front();
        last_dropped = Some(tick);
    }
    match (last_dropped, latest.front()) {
        (None, Some(tick)) => MissedTicks::None(*tick),
        (Some(until), _) => {
            let ticks = ticks.min(MAX_COUNTED).saturating_sub(latest.len() as u64).max(1);
            MissedTicks::Some { from: first, until, ticks }
        }
        // `first` is due, so the loop has found at least one tick.
        (None, None) => MissedTicks::None(first),
    }
}

fn plain(at: Timestamp, decided_at: Timestamp, outcome: TickOutcome, reason: Option<String>) -> TickRecord {
    let reason = reason.map(|reason| wording::cut(reason, MAX_REASON_BYTES));
    TickRecord { at, decided_at, outcome, trace_id: None, reason, ticks: None, until: None, asked: false }
}

fn record(run: &Run, now: Timestamp, outcome: TickOutcome, reason: String) -> TickRecord {
    let trace_id = Some(run.trace_id);
    TickRecord { trace_id, asked: run.asked, ..plain(run.at, now, outcome, Some(reason)) }
}
