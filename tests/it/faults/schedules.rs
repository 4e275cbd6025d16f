//! Coordinators that are killed around the ticks of a schedule (G16).

use std::{collections::BTreeSet, time::Duration};

use coordinator::store::Find;
use domain::{
    TraceId,
    schedule::{ReadySchedule, read_timetable},
    span::Headers,
    wire::{QueryAnswer, ScheduleShown},
};
use serde_json::json;
use tokio::time::Instant;
use trellis_tests::{processes::Processes, subjects::query_of};

const EVERY: &str = "@every 2s";

async fn asked(cluster: &Processes, query: serde_json::Value) -> Option<QueryAnswer> {
    let payload = serde_json::to_vec(&query).unwrap();
    let wait = Duration::from_secs(5);
    let answer = cluster.client.bus.request(&query_of(&payload), &Headers::new(), payload.into(), wait).await;
    serde_json::from_slice(&answer.ok()?).ok()
}

async fn shown(cluster: &Processes) -> ScheduleShown {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(QueryAnswer::Schedule(shown)) =
            asked(cluster, json!({"schedule": {"name": "often"}})).await
        {
            return *shown;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no coordinator answers with the schedule");
}

/// Each coordinator aborts at its first passing of `point`, until none is left. Then they are
/// started again, and killed and started in turn.
async fn killed_at(point: &str) {
    let mut cluster = Processes::start(3, 1).await;
    for name in ["c1", "c2", "c3"] {
        cluster.stop(name).await;
        cluster.run_with(name, &["--crash-at", point]);
    }
    cluster.all_there().await;
    let schedule = json!({"name": "often", "cron": EVERY, "overlap": "allow", "catch_up": 100,
        "task": {"goal": "x", "max_cost_usd": 0.01}});
    // The request may reach a coordinator that is about to abort.
    while asked(&cluster, json!({"put_schedule": {"schedule": schedule}})).await.is_none() {}
    for name in ["c1", "c2", "c3"] {
        cluster.gone(name).await;
    }
    for name in ["c1", "c2", "c3"] {
        cluster.run(name);
    }
    for name in ["c1", "c2", "c3"] {
        tokio::time::sleep(Duration::from_secs(3)).await;
        cluster.kill(name);
        cluster.gone(name).await;
        cluster.run(name);
    }
    let enough = shown(&cluster).await.summary.runs + 3;
    let deadline = Instant::now() + Duration::from_secs(120);
    while shown(&cluster).await.summary.runs < enough {
        assert!(Instant::now() < deadline, "the schedule did not continue");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    while asked(&cluster, json!({"pause_schedule": {"name": "often"}})).await.is_none() {}
    // A decided run is submitted even while the schedule is paused.
    let quiet = async || {
        let state = cluster.client.bus.last(&domain::subject::Filter::AllTicks).await.unwrap().unwrap();
        let state: serde_json::Value = serde_json::from_slice(&state.payload).unwrap();
        state["pending"].is_null()
    };
    trellis_tests::cluster::eventually("all ticks are submitted", quiet).await;
    let shown = shown(&cluster).await;
    let find = Find { terms: vec![vec!["label:schedule=often".into()]], ..Find::newest(1_000) };
    let found: Vec<TraceId> =
        cluster.store.find(&find).await.unwrap().into_iter().map(|(trace, _)| trace).collect();
    let runs = usize::try_from(shown.summary.runs).unwrap();
    assert_eq!((shown.summary.skipped, shown.summary.missed), (0, 0), "{shown:#?}");
    // Every tick from the first one on, each once.
    let ticks = read_timetable(EVERY, "UTC").unwrap().upcoming(shown.changed_at, runs);
    let expected: BTreeSet<TraceId> = ticks
        .into_iter()
        .map(|tick| ReadySchedule::trace_of(&"often".parse().unwrap(), 1, shown.changed_at, tick))
        .collect();
    assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), expected);
    assert_eq!(found.len(), runs, "each tick ran once, and {runs} ticks ran");
    cluster.check(&found).await;
}

/// proves: a decided tick is stored before it is submitted, and the next owner of the partition
/// submits it.
#[tokio::test(flavor = "multi_thread")]
async fn g16_killed_between_the_decision_of_a_tick_and_its_submission() {
    killed_at("tick-decided").await;
}

/// proves: a tick that is submitted again is the same run.
#[tokio::test(flavor = "multi_thread")]
async fn g16_killed_between_the_submission_of_a_tick_and_its_note() {
    killed_at("tick-submitted").await;
}
