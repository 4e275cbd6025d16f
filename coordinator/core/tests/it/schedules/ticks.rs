//! The outcome of each tick (run, skipped or missed) by the pure rules, on the test's clock.

use std::collections::BTreeMap;

use domain::{
    Timestamp, TraceId, Usd,
    schedule::{
        MAX_LIVE, NotNow, Rules, RunState, State, SubmitOutcome, ask, decide, looks_at, pause, read,
        submitted,
    },
    wire::TickOutcome,
};
use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};

const DEFAULT: Usd = Usd::from_cents(100);

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// A schedule whose runs end on the test's command.
struct Clockwork {
    rules: Rules,
    state: State,
    now: Timestamp,
    found: BTreeMap<TraceId, RunState>,
    /// The ticks that were run.
    ran: Vec<Timestamp>,
    /// The size of each stored state.
    written: Vec<usize>,
}

impl Clockwork {
    fn new(since: &str, definition: Value) -> Self {
        let mut clockwork = Clockwork {
            rules: rules(1, at(since), &definition),
            state: State::default(),
            now: at(since),
            found: BTreeMap::new(),
            ran: Vec::new(),
            written: Vec::new(),
        };
        clockwork.written.clear();
        clockwork
    }

    fn store(&mut self, state: State) {
        self.written.push(serde_json::to_vec(&state).unwrap().len());
        // The state that is read back equals the stored one.
        self.state = serde_json::from_value(serde_json::to_value(&state).unwrap()).unwrap();
        assert_eq!(self.state, state);
    }

    /// Decides all due ticks; each run is accepted.
    fn work(&mut self) -> Vec<(Timestamp, TickOutcome)> {
        let mut decided = Vec::new();
        while let Some(next) = decide(&self.rules, &self.state, self.now, &self.found, DEFAULT) {
            self.store(next);
            let last = self.state.last.clone().unwrap();
            decided.push((last.at, last.outcome));
            self.accept();
        }
        decided
    }

    fn accept(&mut self) {
        let Some(run) = self.state.pending.clone() else { return };
        self.ran.push(run.at);
        self.found.insert(run.trace_id, RunState::Live { ceiling: run.ceiling_usd });
        let next = submitted(&self.state, run.trace_id, &SubmitOutcome::Accepted, self.now).unwrap();
        self.store(next);
    }

    fn until(&mut self, text: &str) -> Vec<(Timestamp, TickOutcome)> {
        self.now = at(text);
        self.work()
    }

    /// Advances the clock in steps and decides at each, like a coordinator that never stops.
    fn pass(&mut self, until: &str, step_ms: u64) {
        while self.now < at(until) {
            self.now = self.now.plus_millis(step_ms).min(at(until));
            self.work();
        }
    }

    /// Ends all live runs at this cost.
    fn end(&mut self, cost: Usd) {
        for found in self.found.values_mut() {
            if matches!(found, RunState::Live { .. }) {
                *found = RunState::Ended { cost, at: self.now };
            }
        }
    }
}

fn rules(revision: u64, since: Timestamp, changes: &Value) -> Rules {
    let mut schedule =
        json!({"name": "nightly", "cron": "* * * * *", "task": {"goal": "g", "max_cost_usd": 0.4}});
    for (key, value) in changes.as_object().unwrap() {
        schedule[key] = value.clone();
    }
    Rules::new(&read(&schedule).unwrap(), revision, since)
}

/// proves: over a year with both clock changes, each tick is run once, regardless of the times of
/// the looks.
#[test]
fn g16_each_tick_is_run_once_over_the_changes_of_the_clocks() {
    let definition = json!({"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "overlap": "allow"});
    let mut clockwork = Clockwork::new("2026-03-27T12:00Z", definition);
    while clockwork.now < at("2026-11-01") {
        // Not a divisor of a day, so each look is at another time of day.
        clockwork.now = clockwork.now.plus_millis(41_000);
        clockwork.work();
        clockwork.end(Usd::ZERO);
    }
    let expected = clockwork.rules.timetable.upcoming(at("2026-03-27T12:00Z"), 218);
    assert!(clockwork.ran == expected, "{} and {}", clockwork.ran.len(), expected.len());
    let told: Vec<String> = clockwork.ran.iter().map(|tick| clockwork.rules.timetable.day(*tick)).collect();
    let mut days = told.clone();
    days.dedup();
    assert_eq!(told, days, "one a day");
    assert_eq!((clockwork.state.runs, clockwork.state.skipped, clockwork.state.missed), (218, 0, 0));
}

/// proves: after a night without coordinators a bounded number of ticks is run, the latest ones,
/// and the rest is reported.
#[test]
fn g16_a_night_without_coordinators_is_caught_up_within_its_bound() {
    let night = |catch_up: u32, within_hours: u64| {
        let definition = json!({"cron": "*/10 * * * *", "overlap": "allow", "catch_up": catch_up,
            "catch_up_within_ms": within_hours * 3_600_000});
        let mut clockwork = Clockwork::new("2026-11-16T21:55Z", definition);
        clockwork.until("2026-11-16T22:00:01Z");
        clockwork.end(Usd::ZERO);
        clockwork.ran.clear();
        // Back at 05:55:00, five minutes after a tick.
        let decided = clockwork.until("2026-11-17T05:55Z");
        (clockwork.ran.len(), clockwork.ran.first().copied(), clockwork.state.missed, decided[0])
    };
    let first = at("2026-11-16T22:10Z");
    assert_eq!(night(1, 24), (1, Some(at("2026-11-17T05:50Z")), 46, (first, TickOutcome::Missed)));
    assert_eq!(night(0, 24), (0, None, 47, (first, TickOutcome::Missed)));
    assert_eq!(night(3, 24).1, Some(at("2026-11-17T05:30Z")));
    assert_eq!(night(3, 24).0, 3);
    // Only ticks of the last hour.
    assert_eq!(night(7, 1), (6, Some(at("2026-11-17T05:00Z")), 41, (first, TickOutcome::Missed)));
}

/// proves: a tick that is on time is run, even if no tick may be caught up.
#[test]
fn g16_a_tick_on_time_is_no_missed_one() {
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", json!({"cron": "*/10 * * * *", "catch_up": 0}));
    let decided = clockwork.until("2026-11-16T10:20:59Z");
    let (ten, twenty) = (at("2026-11-16T10:10Z"), at("2026-11-16T10:20Z"));
    assert_eq!(decided, [(ten, TickOutcome::Missed), (twenty, TickOutcome::Decided)]);
}

/// proves: with ticks every ten seconds, all ticks of the last minute are on time after an outage,
/// regardless of `catch_up`; earlier ones are missed.
#[test]
fn g16_after_an_outage_all_ticks_of_the_last_minute_are_on_time() {
    let outage = |catch_up: u32| {
        let definition = json!({"cron": "@every 10s", "overlap": "allow", "catch_up": catch_up});
        let mut clockwork = Clockwork::new("2026-11-16T10:00Z", definition);
        let decided = clockwork.until("2026-11-16T10:05:05Z");
        assert_eq!(decided[0], (at("2026-11-16T10:00:10Z"), TickOutcome::Missed));
        (clockwork.ran.first().copied(), clockwork.ran.len(), clockwork.state.missed)
    };
    let recent = at("2026-11-16T10:04:10Z");
    assert_eq!(outage(0), (Some(recent), 6, 24));
    assert_eq!(outage(1), (Some(recent), 6, 24));
    // Two late ticks are caught up in addition.
    assert_eq!(outage(8), (Some(at("2026-11-16T10:03:50Z")), 8, 22));
}

/// proves: the reason for missed ticks names an earlier live run, a missing coordinator, or their
/// age. Of the ticks that waited, at most `catch_up` are run, however recent they are.
#[test]
fn g16_missed_ticks_have_a_reason() {
    let queue = |changes: Value| {
        let mut definition = json!({"cron": "@every 10s", "overlap": "queue"});
        definition.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let mut queue = Clockwork::new("2026-11-16T10:00Z", definition);
        queue.until("2026-11-16T10:00:10Z");
        assert_eq!(queue.rules.waits_for(&queue.state, queue.now), None, "nothing is due");
        queue.until("2026-11-16T10:00:55Z");
        let live = queue.state.live[0].trace_id;
        assert_eq!(queue.rules.waits_for(&queue.state, queue.now), Some(live));
        queue.end(Usd::ZERO);
        queue
    };
    let why = |state: &State| {
        let last = state.last.clone().unwrap();
        assert_eq!(last.outcome, TickOutcome::Missed);
        (last.ticks.unwrap(), last.reason.unwrap())
    };
    let missed = |queue: &Clockwork| {
        why(&decide(&queue.rules, &queue.state, queue.now, &queue.found, DEFAULT).unwrap())
    };
    let mut waited = queue(json!({}));
    let told = "an earlier run was live until 2026-11-16T10:00:55Z";
    assert_eq!(missed(&waited), (3, format!("{told}, and catch_up is 1")));
    waited.work();
    assert_eq!(waited.ran.last(), Some(&at("2026-11-16T10:00:50Z")));

    let mut both = queue(json!({"catch_up": 2}));
    both.now = at("2026-11-16T10:10:00Z");
    // Seven ticks are on time. Two earlier ones would be caught up if these were fewer.
    assert_eq!(missed(&both), (52, format!("{told}, then no coordinator could run it, and catch_up is 2")));

    let mut old = queue(json!({"catch_up": 100, "catch_up_within_ms": 120_000}));
    old.now = at("2026-11-16T10:10:00Z");
    assert_eq!(
        missed(&old),
        (46, format!("{told}, then no coordinator could run it, and catch_up_within_ms is over"))
    );

    let mut gone = Clockwork::new("2026-11-16T10:00Z", json!({"overlap": "skip"}));
    gone.now = at("2026-11-16T10:10:30Z");
    assert_eq!(missed(&gone), (9, "no coordinator could run it, and catch_up is 1".to_owned()));
}

/// proves: a year without coordinators costs bounded time, and its ticks are reported up to the
/// bound of the count.
#[test]
fn g16_a_long_absence_is_counted_up_to_a_bound() {
    let definition = json!({"catch_up": 2, "overlap": "allow"});
    let mut clockwork = Clockwork::new("2026-01-01", definition);
    let decided = clockwork.until("2027-01-01T00:00:30Z");
    assert_eq!(clockwork.ran, [at("2026-12-31T23:59Z"), at("2027-01-01")]);
    assert_eq!(decided[0], (at("2026-01-01T00:01Z"), TickOutcome::Missed));
    assert_eq!(clockwork.state.missed, 9_998);
}

/// proves: the effect of each overlap policy while an earlier run is live and once it has ended.
#[test]
fn g16_a_tick_while_an_earlier_run_is_live() {
    use TickOutcome::{Decided, SkippedOverlap};
    let live = |overlap: &str| {
        let mut clockwork = Clockwork::new("2026-11-16T10:00Z", json!({"overlap": overlap, "catch_up": 2}));
        clockwork.until("2026-11-16T10:01Z");
        clockwork
    };
    let [two, three, four, five] =
        ["10:02", "10:03", "10:04", "10:05"].map(|t| at(&format!("2026-11-16T{t}Z")));
    let mut skip = live("skip");
    assert_eq!(skip.until("2026-11-16T10:02Z"), [(two, SkippedOverlap)]);
    assert!(skip.state.last.as_ref().unwrap().reason.as_ref().unwrap().contains("is live"));
    skip.end(Usd::ZERO);
    assert_eq!(skip.until("2026-11-16T10:03Z"), [(three, Decided)]);

    let mut queue = live("queue");
    let written = queue.written.len();
    assert_eq!(queue.until("2026-11-16T10:02Z"), []);
    assert_eq!(queue.until("2026-11-16T10:04Z"), []);
    assert_eq!(queue.written.len(), written, "a waiting tick writes nothing");
    assert!(looks_at(&queue.rules, &queue.state).unwrap() <= queue.now, "the queued tick is checked again");
    queue.end(Usd::ZERO);
    // Two may be caught up: the second waits for the first.
    assert_eq!(queue.work(), [(two, TickOutcome::Missed), (three, Decided)]);
    queue.end(Usd::ZERO);
    assert_eq!(queue.work(), [(four, Decided)]);

    let mut allow = live("allow");
    for minute in 2..=8 {
        allow.until(&format!("2026-11-16T10:0{minute}Z"));
    }
    assert_eq!((allow.ran.len(), allow.state.live.len()), (8, MAX_LIVE));
    assert_eq!(allow.until("2026-11-16T10:09Z")[0].1, SkippedOverlap, "at most eight runs are live");

    let mut cancel = live("cancel_previous");
    assert_eq!(
        cancel.until("2026-11-16T10:05Z"),
        [(two, TickOutcome::Missed), (four, Decided), (five, Decided)]
    );
}

/// proves: a day's runs cost no more than its budget: a live run is booked at its ceiling, an ended
/// one at its cost, and a tick that may cost more is skipped.
#[test]
fn g16_a_tick_that_may_cost_more_than_is_left_is_skipped() {
    use TickOutcome::{Decided, SkippedBudget};
    let definition = json!({"cron": "0 * * * *", "budget_per_day_usd": 1, "overlap": "allow", "time_zone": "Europe/Berlin"});
    let mut day = Clockwork::new("2026-11-16T10:30Z", definition);
    assert_eq!(day.until("2026-11-16T11:00Z")[0].1, Decided);
    assert_eq!(day.until("2026-11-16T12:00Z")[0].1, Decided, "0.80 of 1.00 may be used");
    assert_eq!(day.until("2026-11-16T13:00Z")[0].1, SkippedBudget);
    let told = day.state.last.clone().unwrap().reason.unwrap();
    assert_eq!(told, "it may cost $0.40, and $0.20 of the day's $1.00 is left");
    day.end(Usd::from_cents(25));
    assert_eq!(day.until("2026-11-16T14:00Z")[0].1, Decided, "0.50 was used");
    day.end(Usd::from_cents(11));
    assert_eq!(day.until("2026-11-16T15:00Z")[0].1, SkippedBudget, "0.61 was used");
    // Midnight in Berlin is 23:00.
    assert_eq!(day.until("2026-11-16T22:00Z").last().unwrap().1, SkippedBudget);
    assert_eq!(day.until("2026-11-16T23:00Z").last().unwrap().1, Decided, "a new day");
    // A run without a trace may have cost its whole ceiling.
    day.found.values_mut().for_each(|found| *found = RunState::Gone);
    assert_eq!(day.until("2026-11-17T00:00Z")[0].1, Decided);
    assert_eq!(day.state.used_nanos(), 800_000_000);
    assert_eq!(day.until("2026-11-17T01:00Z")[0].1, SkippedBudget);
}

/// proves: a run is booked on its day, even if a later day had begun when its tick was decided:
/// because of another time zone, or of a manual run.
#[test]
fn g16_a_run_is_booked_on_one_day_of_the_schedule() {
    let bounds = |zone| {
        json!({"cron": "0 * * * *", "budget_per_day_usd": 1, "overlap": "allow", "time_zone": zone,
            "catch_up": 10, "catch_up_within_ms": 86_400_000})
    };
    let mut day = Clockwork::new("2026-11-16T10:30Z", bounds("Pacific/Kiritimati"));
    day.pass("2026-11-16T12:10Z", 600_000);
    assert_eq!(day.ran.len(), 2, "0.80 of 1.00 may be used");
    day.rules = rules(2, day.now, &bounds("UTC"));
    day.pass("2026-11-16T23:30Z", 600_000);
    assert_eq!((day.ran.len(), day.state.used_nanos()), (2, 800_000_000));
    let mut night = Clockwork::new("2026-11-16T20:30Z", bounds("UTC"));
    night.now = at("2026-11-17T00:10Z");
    let asked = TraceId::from_u128(7).unwrap();
    let next = ask(&night.rules, &night.state, night.now, &night.found, DEFAULT, asked).unwrap();
    night.store(next);
    night.accept();
    night.work();
    assert_eq!((night.ran.len(), night.state.used_nanos()), (2, 800_000_000), "one missed tick runs");
    night.end(Usd::from_cents(30));
    night.until("2026-11-17T01:00Z");
    assert_eq!(night.state.used_nanos(), 1_000_000_000, "two have cost 0.60, and one may cost 0.40");
}

/// The cost and the duration in minutes of each run of a random day.
fn runs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0u64..=40, 1u64..200), 200)
}

proptest! {
    #![proptest_config(Config { cases: 64, failure_persistence: None, ..Config::default() })]

    /// proves: for any costs and durations, no day's runs cost more than its budget.
    #[test]
    fn g16_random_costs_never_exceed_the_budget_of_a_day(runs in runs(), cents in 40u64..400, overlap in 0usize..4) {
        let overlap = ["skip", "queue", "allow", "cancel_previous"][overlap];
        let definition = json!({"cron": "*/20 * * * *", "budget_per_day_usd": format!("{}.{:02}", cents / 100, cents % 100),
            "overlap": overlap, "time_zone": "America/New_York", "catch_up": 5});
        let mut clockwork = Clockwork::new("2026-10-31T12:00Z", definition);
        let mut ends: Vec<(Timestamp, TraceId, Usd)> = Vec::new();
        let mut costs: BTreeMap<String, u64> = BTreeMap::new();
        let mut runs = runs.into_iter().cycle();
        while clockwork.now < at("2026-11-03") {
            clockwork.now = clockwork.now.plus_millis(9 * 60_000);
            for (_, trace_id, cost) in ends.extract_if(.., |(end, ..)| *end <= clockwork.now) {
                clockwork.found.insert(trace_id, RunState::Ended { cost, at: clockwork.now });
            }
            let before = clockwork.ran.len();
            clockwork.work();
            for tick in clockwork.ran[before..].iter().copied() {
                let (cost, minutes) = runs.next().unwrap();
                let run = clockwork.state.live.iter().find(|run| run.at == tick);
                let Some(run) = run else { continue };
                *costs.entry(clockwork.rules.timetable.day(tick)).or_default() += cost;
                ends.push((clockwork.now.plus_millis(minutes * 60_000), run.trace_id, Usd::from_cents(cost)));
            }
        }
        prop_assert!(!costs.is_empty());
        for (day, cost) in costs {
            prop_assert!(cost <= cents, "{day}: {cost} of {cents} cents");
        }
    }
}

/// proves: a paused schedule has no ticks, and ticks during the pause are not run later; a
/// definition may pause it too.
#[test]
fn g16_a_paused_schedule_runs_nothing_and_catches_up_nothing() {
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", json!({"overlap": "allow", "catch_up": 10}));
    clockwork.until("2026-11-16T10:01Z");
    let paused = pause(&clockwork.rules, &clockwork.state, true, clockwork.now).unwrap();
    clockwork.store(paused);
    assert!(
        pause(&clockwork.rules, &clockwork.state, true, clockwork.now).is_none(),
        "a second pause changes nothing"
    );
    assert_eq!(clockwork.until("2026-11-16T10:05:30Z"), []);
    assert_eq!(looks_at(&clockwork.rules, &clockwork.state), None);
    let resumed = pause(&clockwork.rules, &clockwork.state, false, clockwork.now).unwrap();
    clockwork.store(resumed);
    assert_eq!(clockwork.work(), []);
    assert_eq!(clockwork.until("2026-11-16T10:06Z"), [(at("2026-11-16T10:06Z"), TickOutcome::Decided)]);
    // A later definition applies if it sets `paused`; otherwise the command's state remains.
    let paused = pause(&clockwork.rules, &clockwork.state, true, clockwork.now).unwrap();
    clockwork.store(paused);
    for (revision, said, is_paused) in
        [(2, json!({}), true), (3, json!({"paused": false}), false), (4, json!({"paused": true}), true)]
    {
        let rules = rules(revision, clockwork.now, &said);
        assert_eq!(rules.is_paused(&clockwork.state), is_paused, "{said}");
    }
}

/// proves: a replaced definition does not run ticks again, nor ticks from before the replacement.
#[test]
fn g16_a_replaced_definition_does_not_go_back() {
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", json!({"overlap": "allow", "catch_up": 100}));
    clockwork.until("2026-11-16T10:03Z");
    clockwork.now = at("2026-11-16T10:07:30Z");
    clockwork.rules =
        rules(2, clockwork.now, &json!({"cron": "*/2 * * * *", "overlap": "allow", "catch_up": 100}));
    assert_eq!(clockwork.work(), []);
    clockwork.until("2026-11-16T10:10Z");
    assert_eq!(clockwork.ran[3..], [at("2026-11-16T10:08Z"), at("2026-11-16T10:10Z")]);
}

/// proves: an end time and a number of runs are respected.
#[test]
fn g16_a_schedule_ends_at_its_time_or_after_its_runs() {
    for end in [json!({"until": "2026-11-16T10:03Z"}), json!({"max_runs": 3})] {
        let mut definition = end.clone();
        definition["overlap"] = json!("allow");
        let mut clockwork = Clockwork::new("2026-11-16T10:00Z", definition);
        clockwork.pass("2026-11-16T10:10Z", 20_000);
        assert_eq!(clockwork.ran.len(), 3, "{end}");
        assert_eq!(clockwork.rules.next(&clockwork.state), None, "{end}");
    }
}

/// proves: a refused run is reported and not booked; a run that could not be submitted in time is
/// booked at its ceiling, because it may have been accepted.
#[test]
fn g16_refused_and_abandoned_ticks() {
    let definition = json!({"budget_per_day_usd": 0.8, "overlap": "allow"});
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", definition);
    let decided = |clockwork: &mut Clockwork, time: &str| {
        clockwork.now = at(time);
        let next = decide(&clockwork.rules, &clockwork.state, clockwork.now, &clockwork.found, DEFAULT);
        clockwork.store(next.unwrap());
        clockwork.state.last.clone().unwrap()
    };
    let run = decided(&mut clockwork, "2026-11-16T10:01Z").trace_id.unwrap();
    let refused = SubmitOutcome::Refused("malformed: there is no agent `writer`".into());
    let next = submitted(&clockwork.state, run, &refused, clockwork.now).unwrap();
    clockwork.store(next);
    assert!(
        submitted(&clockwork.state, run, &refused, clockwork.now).is_none(),
        "a second report changes nothing"
    );
    let last = clockwork.state.last.clone().unwrap();
    assert_eq!(
        (last.outcome, last.reason.as_deref()),
        (TickOutcome::Refused, Some("malformed: there is no agent `writer`"))
    );
    assert_eq!(clockwork.state.used_nanos(), 0);
    // This run could not be submitted before the next tick.
    let run = decided(&mut clockwork, "2026-11-16T10:02Z").trace_id.unwrap();
    let given_up = decided(&mut clockwork, "2026-11-16T10:03Z");
    assert_eq!((given_up.outcome, given_up.trace_id), (TickOutcome::GivenUp, Some(run)));
    clockwork.found.insert(run, RunState::Gone);
    assert_eq!(decided(&mut clockwork, "2026-11-16T10:03Z").outcome, TickOutcome::Decided);
    assert_eq!(clockwork.state.used_nanos(), 800_000_000);
}

/// proves: a refused run does not use up `max_runs`; another tick takes its place.
#[test]
fn g16_a_refused_run_is_not_counted_as_a_live_run() {
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", json!({"max_runs": 1, "overlap": "allow"}));
    for (time, came, runs) in [
        ("2026-11-16T10:01Z", SubmitOutcome::Refused("there is no agent".into()), 0),
        ("2026-11-16T10:02Z", SubmitOutcome::Accepted, 1),
    ] {
        clockwork.now = at(time);
        let next =
            decide(&clockwork.rules, &clockwork.state, clockwork.now, &clockwork.found, DEFAULT).unwrap();
        let run = next.pending.as_ref().unwrap().trace_id;
        clockwork.store(submitted(&next, run, &came, clockwork.now).unwrap());
        assert_eq!(clockwork.state.runs, runs);
        assert_eq!(clockwork.rules.next(&clockwork.state).is_none(), runs == 1);
    }
}

/// proves: a deleted schedule keeps only the current day and its cost, or nothing without a cost.
#[test]
fn g16_a_deleted_schedule_leaves_what_its_day_has_cost() {
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", json!({"overlap": "allow"}));
    assert_eq!(clockwork.state.after_deletion(), State::default());
    clockwork.pass("2026-11-16T10:03Z", 20_000);
    let left = clockwork.state.after_deletion();
    assert_eq!((left.used_nanos(), &left.day), (clockwork.state.used_nanos(), &clockwork.state.day));
    assert!(left.used_nanos() > 0);
    assert_eq!((left.runs, left.live.len(), left.pending), (0, 0, None));
}

/// proves: a manual run is within the same bounds, and works while the schedule is paused.
#[test]
fn g16_a_run_that_is_asked_for_is_within_the_same_bounds() {
    let definition = json!({"budget_per_day_usd": 0.8, "paused": true});
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", definition);
    let id = |n: u128| TraceId::from_u128(n).unwrap();
    let asks = |clockwork: &Clockwork, n| {
        ask(&clockwork.rules, &clockwork.state, clockwork.now, &clockwork.found, DEFAULT, id(n))
    };
    let next = asks(&clockwork, 1).unwrap();
    clockwork.store(next);
    assert!(clockwork.state.last.as_ref().unwrap().asked);
    assert_eq!(asks(&clockwork, 2), Err(NotNow::Busy));
    clockwork.accept();
    assert_eq!(asks(&clockwork, 2), Err(NotNow::Overlap(id(1))));
    clockwork.end(Usd::from_cents(41));
    assert!(matches!(asks(&clockwork, 2), Err(NotNow::Budget(_))), "0.41 and 0.40 are more than 0.80");
}

/// proves: a tick writes the same number of bytes after any number of ticks: less than a kilobyte
/// for any size of the task.
#[test]
fn g16_a_tick_writes_as_much_after_ten_thousand_as_at_first() {
    let definition = json!({"overlap": "allow", "budget_per_day_usd": 100_000,
        "task": {"goal": "g", "max_cost_usd": 0.123456789, "inputs": {"text": "x".repeat(200_000)}}});
    let mut clockwork = Clockwork::new("2026-11-16T10:00Z", definition);
    let mut written = Vec::new();
    for n in 1..=10_000u64 {
        clockwork.now = at("2026-11-16T10:00Z").plus_millis(n * 60_000);
        let before = clockwork.written.len();
        clockwork.work();
        // Eight runs are live at any time, the maximum.
        if n > 7 {
            let oldest = clockwork.state.live[0].trace_id;
            clockwork.found.insert(oldest, RunState::Ended { cost: Usd::from_cents(3), at: clockwork.now });
            clockwork.found.retain(|id, _| clockwork.state.live.iter().any(|run| run.trace_id == *id));
        }
        assert_eq!(clockwork.written.len(), before + 2, "a decision and its result");
        written.push(clockwork.written[before..].to_vec());
    }
    assert_eq!(clockwork.ran.len(), 10_000);
    let largest = written.iter().flatten().max().unwrap();
    println!(
        "bytes of the 1st, 100th and 10,000th tick: {:?} {:?} {:?}; the most: {largest}",
        written[0], written[99], written[9_999]
    );
    assert!(written[0].iter().sum::<usize>() < 1_024, "{:?}", written[0]);
    assert!(*largest < 1_200, "{largest}");
    let more = written[9_999][1].abs_diff(written[99][1]);
    assert!(more <= 16, "{:?} and {:?}", written[99], written[9_999]);
}
