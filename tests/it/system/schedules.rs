//! Schedules (G16) on whole clusters: in memory on virtual time, and on servers in real time.

use std::{collections::BTreeSet, time::Duration};

use bus::{Bus, Memory, Outgoing};
use coordinator::store::{self, Find, Store};
use domain::{
    Timestamp, TraceId,
    schedule::{ReadySchedule, read_timetable},
    span::Headers,
    subject::{Filter, Subject},
    wire::{ContextStatus, EndStatus, QueryAnswer, ScheduleShown, TickOutcome},
};
use host::clock::Clock;
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Client, Cluster, eventually, name, signed},
    subjects::query_of,
};

use super::ground::{Ground, config, query};

/// A night in which the clocks of Berlin are set forward.
const EVENING: &str = "2026-03-28T20:00:30Z";

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// A bus and a store on virtual time.
struct Night {
    bus: Bus,
    store: Store,
    clock: Clock,
}

impl Night {
    fn begin() -> Self {
        let clock = Clock::simulated(at(EVENING));
        let bus = Bus::Memory(Memory::starting_at(Default::default(), at(EVENING)));
        let store = Store::Memory(store::Memory::with_clock(config().topology.partitions, clock));
        Night { bus, store, clock }
    }

    /// Coordinators and a worker.
    fn start(&self, coordinators: usize) -> Cluster {
        let coordinator = |number: usize| coordinator::Config {
            id: name(&format!("c{number}")),
            clock: self.clock,
            // Idle rounds cost real time, and the test passes hours of virtual time.
            timer_interval: Duration::from_secs(5),
            // Each knows only the coordinators that started before it, so several own the same
            // partition all the time.
            heartbeat: Duration::from_secs(100 * 3_600),
            heartbeat_ttl: Duration::from_secs(200 * 3_600),
            ..config()
        };
        let worker = worker::Config { clock: self.clock, ..worker::Config::new(name("worker")) };
        let coordinators = (0..coordinators).map(coordinator).collect();
        Cluster::start(self.bus.clone(), self.store.clone(), coordinators, vec![worker])
    }

    async fn until(&self, text: &str) {
        let left = at(text).millis_since(self.clock.now());
        tokio::time::sleep(Duration::from_millis(left)).await;
    }
}

async fn put(client: &Client, schedule: Value) -> u64 {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
    loop {
        let payload = serde_json::to_vec(&json!({"put_schedule": {"schedule": schedule}})).unwrap();
        let wait = Duration::from_secs(30);
        let answer = client.bus.request(&query_of(&payload), &Default::default(), payload.into(), wait).await;
        match answer.ok().map(|answer| serde_json::from_slice(&answer).unwrap()) {
            Some(QueryAnswer::ScheduleKept { revision, .. }) => return revision,
            answer => assert!(tokio::time::Instant::now() < deadline, "{answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn show(client: &Client, name: &str) -> ScheduleShown {
    match query(client, json!({"schedule": {"name": name}})).await {
        QueryAnswer::Schedule(shown) => *shown,
        answer => panic!("{answer:?}"),
    }
}

/// The runs that the store lists under the label of a schedule, newest first.
async fn runs(store: &Store, name: &str) -> Vec<TraceId> {
    let find = Find { terms: vec![vec![format!("label:schedule={name}")]], ..Find::newest(10_000) };
    store.find(&find).await.unwrap().into_iter().map(|(trace, _)| trace).collect()
}

fn schedule(changes: Value) -> Value {
    let mut schedule = json!({"name": "nightly", "cron": "*/15 * * * *", "time_zone": "Europe/Berlin",
        "task": {"goal": "tidy up", "max_cost_usd": 0.1}});
    for (key, value) in changes.as_object().unwrap() {
        schedule[key] = value.clone();
    }
    schedule
}

/// proves: three coordinators run each tick once, over a clock change; after hours without
/// coordinators, as many ticks as may be caught up are run, once each; a daily time that the change
/// skips is run once.
#[tokio::test(start_paused = true)]
async fn g16_each_tick_is_run_once_by_three_coordinators_and_after_a_night_without() {
    let night = Night::begin();
    let cluster = night.start(3);
    put(&cluster.client, schedule(json!({"catch_up": 3, "overlap": "queue"}))).await;
    put(&cluster.client, schedule(json!({"name": "once", "cron": "30 2 * * *"}))).await;
    let since = show(&cluster.client, "nightly").await.changed_at;
    let since_once = show(&cluster.client, "once").await.changed_at;
    night.until("2026-03-28T22:00:30Z").await;
    cluster.stop().await;
    let ticks = |name: &str, since: Timestamp, some: &[&str]| -> BTreeSet<TraceId> {
        some.iter().map(|tick| ReadySchedule::trace_of(&name.parse().unwrap(), 1, since, at(tick))).collect()
    };
    let evening: BTreeSet<TraceId> = read_timetable("*/15 * * * *", "Europe/Berlin")
        .unwrap()
        .upcoming(at(EVENING), 8)
        .into_iter()
        .map(|tick| ReadySchedule::trace_of(&"nightly".parse().unwrap(), 1, since, tick))
        .collect();
    let found = runs(&night.store, "nightly").await;
    assert_eq!(found.len(), 8, "each tick ran once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), evening);

    // No coordinator runs when the clocks are set forward, until the morning.
    night.until("2026-03-29T05:07:00Z").await;
    let cluster = night.start(3);
    night.until("2026-03-29T05:14:00Z").await;
    let found = runs(&night.store, "nightly").await;
    assert_eq!(found.len(), 11, "three missed ticks ran");
    let caught_up = ["2026-03-29T04:30Z", "2026-03-29T04:45Z", "2026-03-29T05:00Z"];
    let expected: BTreeSet<TraceId> = evening.union(&ticks("nightly", since, &caught_up)).copied().collect();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    // 02:30 was skipped: it is due at 03:00, which is 01:00 in UTC, and is now run once, late.
    let found = runs(&night.store, "once").await;
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), ticks("once", since_once, &["2026-03-29T01:00Z"]));

    let shown = show(&cluster.client, "nightly").await;
    assert_eq!((shown.summary.runs, shown.summary.missed), (11, 25));
    let missed = shown.ticks.iter().find(|tick| tick.record.outcome == TickOutcome::Missed).unwrap();
    assert_eq!((missed.record.at, missed.record.ticks), (at("2026-03-28T22:15Z"), Some(25)));
    assert_eq!(shown.ticks[0].status, Some(ContextStatus::Ended(EndStatus::Completed)));
    assert_eq!(shown.next_ticks[0], at("2026-03-29T05:15Z"));
    cluster.stop().await;
}

/// proves: put, pause, resume, run, delete and list return the current state, also when repeated
/// and on any coordinator; and a deleted agent is the outcome of a tick, after which the schedule
/// continues.
async fn changes_are_answered(ground: Ground) {
    let both = ["one", "other"].map(|id| coordinator::Config { id: name(id), ..config() });
    let worker = worker::Config::new(name("worker"));
    let cluster = Cluster::start(ground.bus.clone(), ground.store.clone(), both.into(), vec![worker]);
    let client = &cluster.client;
    let given = schedule(json!({"cron": "@every 366d"}));
    assert_eq!(put(client, given.clone()).await, 1);
    for _ in 0..4 {
        assert_eq!(put(client, given.clone()).await, 1, "unchanged");
    }
    let changed = schedule(json!({"cron": "@every 365d"}));
    let expects = |revision: u64| json!({"put_schedule": {"schedule": changed, "revision": revision}});
    let answer = query(client, expects(7)).await;
    let QueryAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
    assert!(refusal.to_text().contains("has revision 1, and 7 was expected"), "{refusal:?}");
    let answer = query(client, expects(1)).await;
    assert!(matches!(answer, QueryAnswer::ScheduleKept { revision: 2, unchanged: false, .. }), "{answer:?}");

    for (asked, is_paused) in [("pause_schedule", true), ("resume_schedule", false)] {
        for again in [false, true] {
            let answer = query(client, json!({asked: {"name": "nightly"}})).await;
            let QueryAnswer::ScheduleKept { unchanged, paused, .. } = answer else { panic!("{answer:?}") };
            assert_eq!((unchanged, paused), (again, is_paused), "{asked}");
        }
    }

    // Two requests under one id make one run.
    let asked = json!({"run_schedule": {"name": "nightly", "id": "mine"}});
    let first = query(client, asked.clone()).await;
    let QueryAnswer::ScheduleRun { trace_id, .. } = first else { panic!("{first:?}") };
    let done = async || {
        let shown = show(client, "nightly").await;
        shown
            .ticks
            .first()
            .is_some_and(|tick| tick.status == Some(ContextStatus::Ended(EndStatus::Completed)))
    };
    eventually("the run ends", done).await;
    for _ in 0..3 {
        assert_eq!(query(client, asked.clone()).await, first);
    }
    assert_eq!(runs(&ground.store, "nightly").await, [trace_id]);

    // Its agent was deleted: this becomes the outcome of the tick.
    let writer = json!([{"agent_id": "writer", "kind": "builtin", "builtin": "echo"}]);
    query(client, json!({"apply_agents": {"agents": writer}})).await;
    put(
        client,
        schedule(json!({"name": "writes", "cron": "@every 1s", "task": {"goal": "x", "agent_id": "writer"}})),
    )
    .await;
    query(client, json!({"delete_agent": {"agent_id": "writer"}})).await;
    let refused = async || {
        let shown = show(client, "writes").await;
        let refused = shown.ticks.iter().filter(|tick| tick.record.outcome == TickOutcome::Refused);
        let said = |reason: &String| reason.contains("writer");
        refused.filter(|tick| tick.record.reason.as_ref().is_some_and(said)).count() >= 2
    };
    eventually("two ticks were refused, one after another", refused).await;

    let QueryAnswer::Schedules { schedules, next } = query(client, json!({"schedules": {"limit": 1}})).await
    else {
        panic!()
    };
    assert_eq!(
        (schedules[0].name.as_str(), next.as_ref().map(|next| next.as_str())),
        ("nightly", Some("nightly"))
    );
    let page = query(client, json!({"schedules": {"after": "nightly"}})).await;
    let QueryAnswer::Schedules { schedules, next: None } = page else { panic!("{page:?}") };
    assert_eq!(schedules[0].name.as_str(), "writes");

    let first = query(client, json!({"delete_schedule": {"name": "nightly"}})).await;
    assert!(matches!(first, QueryAnswer::ScheduleDeleted { .. }), "{first:?}");
    assert_eq!(query(client, json!({"delete_schedule": {"name": "nightly"}})).await, first);
    for asked in ["schedule", "pause_schedule", "resume_schedule"] {
        let answer = query(client, json!({asked: {"name": "nightly"}})).await;
        let QueryAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
        assert!(refusal.to_text().contains("there is no schedule `nightly`"), "{refusal:?}");
    }
    // A recreated schedule is a new one.
    assert_eq!(put(client, given).await, 4);
    assert_eq!(show(client, "nightly").await.summary.runs, 0);
    cluster.stop().await;
}

#[tokio::test]
async fn g16_changes_of_schedules_are_answered_in_memory() {
    changes_are_answered(Ground::in_memory()).await;
}

#[tokio::test]
async fn g16_changes_of_schedules_are_answered_on_servers() {
    changes_are_answered(Ground::on_servers().await).await;
}

/// proves: a live run is booked at its ceiling and an ended one at its cost, as stored: the runs of
/// a day cost no more than its budget; and `cancel_previous` cancels.
#[tokio::test]
async fn g16_the_budget_of_a_day_and_cancelled_runs_on_a_cluster() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let client = &cluster.client;
    let spends = json!({"goal": "pay", "agent_id": "spend", "max_cost_usd": 0.1, "inputs": {"usd": 0.03, "hold_usd": 0.05}});
    put(
        client,
        schedule(
            json!({"name": "spends", "cron": "@every 1s", "overlap": "queue", "budget_per_day_usd": 0.2,
        "task": spends}),
        ),
    )
    .await;
    let sleeps = json!({"goal": "z", "agent_id": "sleep", "inputs": {"ms": 600_000}, "max_cost_usd": 0.1});
    put(
        client,
        schedule(
            json!({"name": "sleeps", "cron": "@every 2s", "overlap": "cancel_previous", "task": sleeps}),
        ),
    )
    .await;
    let skipped = async || {
        let shown = show(client, "spends").await;
        shown.summary.last.is_some_and(|last| last.outcome == TickOutcome::SkippedBudget)
    };
    eventually("the day's budget is used", skipped).await;
    let shown = show(client, "spends").await;
    let cost: u64 = shown.ticks.iter().filter_map(|tick| tick.cost_usd).map(|cost| cost.nanos()).sum();
    // Four runs at 0.03 leave 0.08, which is too little for 0.10.
    assert_eq!((runs(&ground.store, "spends").await.len(), cost), (4, 120_000_000), "{shown:#?}");
    assert_eq!(shown.day_usd.nanos(), 120_000_000);
    let cancelled = async || {
        let shown = show(client, "sleeps").await;
        let ended = ContextStatus::Ended(EndStatus::Cancelled);
        let cancelled = shown.ticks.iter().filter(|tick| tick.status == Some(ended)).count();
        cancelled >= 2 && shown.ticks[0].status != Some(ended)
    };
    eventually("each run is cancelled by the next tick", cancelled).await;
    query(client, json!({"delete_schedule": {"name": "sleeps"}})).await;
    cluster.stop().await;
}

/// proves: of concurrent decisions on the same state only one succeeds: a run that fits once into a
/// day's budget is run once.
#[tokio::test(flavor = "multi_thread")]
async fn g16_of_many_concurrent_decisions_one_is_stored() {
    let ground = Ground::on_servers().await;
    let three = ["one", "two", "three"].map(|id| coordinator::Config { id: name(id), ..config() });
    let worker = worker::Config::new(name("worker"));
    let cluster = Cluster::start(ground.bus.clone(), ground.store.clone(), three.into(), vec![worker]);
    // A run that ended without a cost would leave the day's budget to the next one.
    let sleeps = json!({"goal": "z", "agent_id": "sleep", "inputs": {"ms": 600_000}, "max_cost_usd": 0.1});
    let bounds =
        json!({"cron": "@every 366d", "overlap": "allow", "budget_per_day_usd": 0.1, "task": sleeps});
    put(&cluster.client, schedule(bounds)).await;
    let ask = |number: usize| {
        let client = cluster.client.clone();
        let asked = json!({"run_schedule": {"name": "nightly", "id": format!("n{number}")}});
        async move { query(&client, asked).await }
    };
    let answers = futures_util::future::join_all((0..24).map(ask)).await;
    let accepted = answers.iter().filter(|answer| matches!(answer, QueryAnswer::ScheduleRun { .. }));
    let runs = runs(&ground.store, "nightly").await;
    assert_eq!((accepted.count(), runs.len()), (1, 1), "{answers:#?}");
    cluster.client.publish(Subject::Cancel, &json!({"trace_id": runs[0]})).await;
    cluster.stop().await;
}

/// proves: a schedule that is deleted and recreated under its name does not get the day's budget
/// twice.
#[tokio::test]
async fn g16_a_recreated_schedule_has_the_remaining_budget_of_the_day() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let client = &cluster.client;
    let sleeps = json!({"goal": "z", "agent_id": "sleep", "inputs": {"ms": 600_000}, "max_cost_usd": 0.1});
    let bounds =
        json!({"cron": "@every 366d", "overlap": "allow", "budget_per_day_usd": 0.15, "task": sleeps});
    put(client, schedule(bounds.clone())).await;
    let run = async |id: &str| query(client, json!({"run_schedule": {"name": "nightly", "id": id}})).await;
    let first = run("one").await;
    let QueryAnswer::ScheduleRun { trace_id, .. } = first else { panic!("{first:?}") };
    for id in ["two", "three"] {
        let deleted = query(client, json!({"delete_schedule": {"name": "nightly"}})).await;
        assert!(matches!(deleted, QueryAnswer::ScheduleDeleted { .. }), "{deleted:?}");
        put(client, schedule(bounds.clone())).await;
        let refused = run(id).await;
        assert!(
            matches!(&refused, QueryAnswer::Refused(refusal) if refusal.to_text().contains("day")),
            "{refused:?}"
        );
    }
    let kept = ground.bus.read(&Filter::AllTicks).await.unwrap();
    assert_eq!(kept.len(), 1, "other messages about the ticks remain");
    client.publish(Subject::Cancel, &json!({"trace_id": trace_id})).await;
    cluster.stop().await;
}

/// proves: a pending run that was already submitted is not begun again, even if it was removed
/// since.
#[tokio::test]
async fn g16_a_run_that_was_removed_is_not_begun_again() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    put(&cluster.client, schedule(json!({"cron": "@every 366d"}))).await;
    let ran = query(&cluster.client, json!({"run_schedule": {"name": "nightly", "id": "mine"}})).await;
    let QueryAnswer::ScheduleRun { trace_id, .. } = ran else { panic!("{ran:?}") };
    cluster.client.outcome(trace_id, &"root".parse().unwrap()).await;
    cluster.stop().await;
    // As if the coordinator had died before it recorded the submission, and the run was removed
    // before another coordinator came.
    let subject = Subject::Ticks("nightly".parse().unwrap());
    let last = ground.bus.last(&Filter::One(subject.clone())).await.unwrap().unwrap();
    let mut state: Value = serde_json::from_slice(&last.payload).unwrap();
    let mut run = state["live"].as_array_mut().unwrap().pop().unwrap();
    run["revision"] = json!(1);
    state["pending"] = run;
    let payload = serde_json::to_vec(&state).unwrap().into();
    let (headers, expect_last) = (Headers::new(), Some(last.sequence));
    let message = Outgoing { subject: subject.clone(), id: None, headers, payload, expect_last };
    signed(&ground.bus).publish(message).await.unwrap();
    let removed = async || {
        let version = ground.store.versions(&[trace_id]).await.unwrap()[0];
        ground.store.remove(trace_id, version).await.unwrap()
    };
    eventually("the schedule is removed", removed).await;

    let cluster = ground.start(config());
    let noted = async || {
        let last = ground.bus.last(&Filter::One(subject.clone())).await.unwrap().unwrap();
        serde_json::from_slice::<Value>(&last.payload).unwrap()["pending"].is_null()
    };
    eventually("the tick is recorded", noted).await;
    assert_eq!(show(&cluster.client, "nightly").await.ticks[0].record.outcome, TickOutcome::Submitted);
    assert!(!ground.has(trace_id).await, "the run was submitted again");
    cluster.stop().await;
}

/// proves: a tick writes equally little to the log for any size of its task, and the stored data of
/// a schedule is bounded.
#[tokio::test]
async fn g16_a_tick_writes_less_than_a_kilobyte_to_the_log() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let task = json!({"goal": "x", "inputs": {"text": "x".repeat(200_000)}});
    put(&cluster.client, schedule(json!({"cron": "@every 1s", "task": task}))).await;
    let log = Filter::One(Subject::Ticks("nightly".parse().unwrap()));
    let written = async || cluster.client.bus.read(&log).await.unwrap();
    eventually("three ticks were run", async || written().await.len() >= 6).await;
    let sizes: Vec<usize> = written().await.iter().map(|stored| stored.payload.len()).collect();
    println!("bytes of each message about a tick: {sizes:?}");
    assert!(sizes.iter().all(|size| *size < 512), "{sizes:?}");
    let definitions = Filter::One(Subject::Schedule("nightly".parse().unwrap()));
    for round in 0..5 {
        put(&cluster.client, schedule(json!({"cron": "@every 1s", "max_runs": 1_000 + round}))).await;
    }
    assert_eq!(
        cluster.client.bus.read(&definitions).await.unwrap().len(),
        2,
        "the last two revisions remain"
    );
    cluster.stop().await;
}
