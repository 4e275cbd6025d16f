//! A worker cuts its model call off at the deadline, by its own clock. It decides nothing then, and
//! waits for the coordinator.

use domain::{
    decode,
    subject::Filter,
    wire::{Answer, Ask, Execute, HistoryEntry, HistoryStep, OpenHold, Refusal, TimeLeft},
};
use serde_json::json;
use trellis_tests::script::{Bench, Script, agreeable, work};
use world::{cents, id};

/// An agent whose model takes a minute for each answer.
fn slow_agent() -> Execute {
    let mut work = work("root", "echo", json!({}));
    let profile = json!({"agent_id": "slow", "kind": "llm", "model": "scripted", "tools": [],
        "script": [{"say": "at last", "ms": 60_000, "repeat": true}]});
    work.agent = decode::value(&profile).unwrap();
    work.model = Some("scripted".parse().unwrap());
    work
}

/// Two seconds are left at the claim, and until a tick's answer changes that. After `then_ms`,
/// `then` answers the ticks.
fn two_seconds_then(then_ms: u64, then: impl Fn(TimeLeft) -> Answer + Send + 'static) -> Script {
    let mut began = None;
    Box::new(move |ask, answer| {
        Some(match (ask, answer) {
            (Ask::Claim(_), Answer::Claimed(mut claimed)) => {
                began = Some(claimed.left.now);
                claimed.left.deadline_ms = Some(2_000);
                Answer::Claimed(claimed)
            }
            (Ask::Tick(_), Answer::GoOn { until, left }) => {
                let passed = left.now.millis_since(began.unwrap());
                let deadline_ms = Some(2_000_u64.saturating_sub(passed));
                if passed >= then_ms {
                    then(left)
                } else {
                    Answer::GoOn { until, left: TimeLeft { deadline_ms, ..left } }
                }
            }
            (_, answer) => answer,
        })
    })
}

fn holds_and_forfeits(bench: &Bench) -> (usize, usize) {
    let asks = bench.asks();
    let count = |is: fn(&Ask) -> bool| asks.iter().filter(|(_, ask)| is(ask)).count();
    (count(|ask| matches!(ask, Ask::Hold(_))), count(|ask| matches!(ask, Ask::Forfeit { .. })))
}

#[tokio::test(start_paused = true)]
async fn l_a_worker_reports_no_failure_for_want_of_time_and_books_the_call_once_it_is_stopped() {
    let script = two_seconds_then(20_000, |_| Answer::Stop { reason: "timed out".into() });
    let bench = Bench::run(slow_agent(), script).await;
    bench
        .until("the deadline has passed", async |bench| {
            bench.asks().last().is_some_and(|(at, _)| *at > 9_000)
        })
        .await;
    assert_eq!(holds_and_forfeits(&bench), (1, 0), "{:#?}", bench.asks());
    assert_eq!(lost(&bench).await, [("1-1".to_owned(), true)], "the journal has the call at once (B19)");
    bench.until_done().await;
    assert_eq!(holds_and_forfeits(&bench), (1, 1), "the call is booked when the attempt is stopped");
    assert!(bench.reports().await.is_empty(), "only the coordinator ended the context");
}

#[tokio::test(start_paused = true)]
async fn l_a_worker_goes_on_when_the_deadline_is_moved() {
    let script = two_seconds_then(5_000, |left| {
        let until = left.now.plus_millis(left.lease_ms);
        Answer::GoOn { until, left: TimeLeft { deadline_ms: Some(500_000), ..left } }
    });
    let bench = Bench::run(slow_agent(), script).await;
    bench.until_done().await;
    assert_eq!(holds_and_forfeits(&bench), (2, 1), "one interrupted call, and one answered call");
    let reports = bench.reports().await;
    assert_eq!((reports.len(), reports[0].progress.retries), (1, 1));
}

async fn lost(bench: &Bench) -> Vec<(String, bool)> {
    let stored = bench.bus.read(&Filter::HistoriesOf(slow_agent().trace_id)).await.unwrap();
    let entries = stored.iter().map(|stored| decode::json::<HistoryEntry>(&stored.payload).unwrap());
    let lost =
        entries.filter_map(|entry| if let HistoryStep::Lost(lost) = entry.step { Some(lost) } else { None });
    lost.map(|lost| (lost.call_id.to_string(), lost.model.is_some())).collect()
}

/// Calls of earlier attempts that are missing from the journal are written into it once, before
/// they are booked.
#[tokio::test(start_paused = true)]
async fn b19_a_successor_writes_down_the_calls_that_its_predecessor_lost() {
    let script: Script = Box::new(|ask, answer| {
        Some(match (ask, answer) {
            (Ask::Claim(_), Answer::Claimed(mut claimed)) => {
                claimed.lease.attempt += 1;
                let (call_id, amount) = ("1-1".parse().unwrap(), cents(3));
                claimed.open_holds = vec![OpenHold { call_id, attempt: 1, amount }];
                Answer::Claimed(claimed)
            }
            (Ask::Resume(_), _) => Answer::Refused(Refusal::new("no_hold", "B3", "for the test")),
            (_, answer) => answer,
        })
    });
    let bench = Bench::run(slow_agent(), script).await;
    bench
        .until("the second attempt has resumed", async |bench| {
            bench.asks().iter().any(|(_, ask)| matches!(ask, Ask::Resume(_)))
        })
        .await;
    assert_eq!(lost(&bench).await, [("1-1".to_owned(), false)]);
    bench.until_done().await;
    bench.dispatch(&slow_agent()).await;
    bench.until_done().await;
    assert_eq!(lost(&bench).await.len(), 1, "the next attempt finds the call in the journal");
}

/// A call without a deadline is never cut off.
#[tokio::test(start_paused = true)]
async fn l_a_call_without_a_deadline_is_not_cut_off() {
    let bench = Bench::run(slow_agent(), agreeable()).await;
    bench.until_done().await;
    assert_eq!(holds_and_forfeits(&bench), (1, 0));
    assert_eq!(bench.reports().await[0].lease.child_id, id("root"));
}
