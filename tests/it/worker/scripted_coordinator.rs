//! The worker, on the memory bus and a paused clock, against a coordinator that follows a script.

use std::time::Duration;

use bus::{Bus, Memory, Topology};
use domain::{
    Amount, Dimension, Timestamp, Tokens, Usd,
    span::Headers,
    subject::{Filter, Namespace, Partition, Subject},
    wire::{
        Answer, Ask, FailureKind, HoldDenied, ObjectReference, OpenHold, Payload, Refusal, Stop, Verdict,
        WorkerState,
    },
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::SOON,
    script::{Bench, Script, agreeable, given, inline, work},
    servers::free_port,
};
use world::{cents, id};

fn refusal(code: &str) -> Answer {
    Answer::Refused(Refusal {
        code: code.into(),
        rule: "X".into(),
        message: "refused by the script".into(),
        problems: Vec::new(),
    })
}

fn denied(pause: bool) -> Answer {
    Answer::Denied(HoldDenied {
        context: id("root"),
        dimension: Dimension::Cost,
        asked: cents(20),
        limit: cents(30),
        spent: Amount::ZERO,
        held: cents(20),
        left_usd: Usd::from_cents(10),
        left_tokens: Tokens::new(1),
        pause,
    })
}

/// Answers no tick from number `first` on, counted from 1.
fn silent_from_tick(first: u32) -> Script {
    let mut ticks = 0;
    Box::new(move |ask, answer| {
        ticks += u32::from(matches!(ask, Ask::Tick(_)));
        (ticks < first || !matches!(ask, Ask::Tick(_))).then_some(answer)
    })
}

#[tokio::test(start_paused = true)]
async fn claim_before_run_and_the_result_carries_the_lease() {
    let bench = Bench::run(work("root", "echo", json!({})), agreeable()).await;
    bench.until_done().await;
    let reports = bench.reports().await;
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].verdict, inline("the root's goal"));
    let (_, claim) = &bench.claims()[0];
    assert_eq!((reports[0].lease.attempt, &reports[0].lease.token), (1, &claim.token));
    assert_eq!(claim.worker_id, bench.worker_id);
}

/// An attacker who can predict the id of a report would store another message under it first, and
/// the report would look stored already. The ids are stored and others can read them: they reveal
/// no token, nor the token hash that events contain (S2).
#[tokio::test(start_paused = true)]
async fn s6_ids_of_reports_can_not_be_guessed_and_contain_no_token() {
    let mut paying = work("root", "echo", json!({}));
    paying.agent.kind = domain::agent::AgentKind::Llm;
    paying.model = Some("scripted".parse().unwrap());
    let works = [work("one", "echo", json!({})), work("two", "spend", json!({})), paying];
    let bench = Bench::start(works.to_vec(), agreeable()).await;
    for work in &works {
        let of = |what: &str| format!("{}.{}.{what}", work.trace_id, work.child_id);
        let partition = Partition::of(work.trace_id, Topology::default().partitions);
        let thief: domain::PoolName = "thief".parse().unwrap();
        for guess in ["1.result", "1.cost", "call-1.cost", "1-1.cost"] {
            let subject = Subject::Result(thief.clone(), partition, work.trace_id, work.child_id.clone());
            let (headers, payload) = (Headers::new(), "{}".into());
            let message = bus::Outgoing { subject, id: Some(of(guess)), headers, payload, expect_last: None };
            bench.bus.publish(message).await.unwrap();
        }
        bench.dispatch(work).await;
    }
    bench.until_done().await;
    for filter in [Filter::Results, Filter::Costs, Filter::Histories] {
        let mut of_ours = 0;
        for stored in bench.bus.read(&filter).await.unwrap() {
            let id = stored.id.unwrap();
            for (_, claim) in bench.claims() {
                let token = claim.token.as_str();
                assert!(!id.contains(token), "{id}");
                assert!(!id.contains(&domain::digest::sha256(token)[..16]), "{id}");
            }
            let is_ours = &stored.payload[..] != b"{}";
            let of = id.split('.').skip(2).collect::<Vec<_>>();
            let of = of[..of.len() - 1].join(".");
            let of_token = |token: &str| domain::digest::short_sha256(format!("id of {of} of {token}"));
            let holders =
                bench.claims().into_iter().filter(|(_, claim)| id.contains(&of_token(claim.token.as_str())));
            assert_eq!(
                holders.count(),
                usize::from(is_ours),
                "only the holder of the lease can compute {id}"
            );
            of_ours += usize::from(is_ours);
        }
        assert!(of_ours >= if filter == Filter::Results { works.len() } else { 1 }, "{filter}: {of_ours}");
    }
}

/// If the ack came before the result, a crash in between would lose the work.
#[tokio::test(start_paused = true)]
async fn work_is_acknowledged_only_after_its_result_is_stored() {
    let bench = Bench::run(work("root", "sleep", json!({"ms": 100})), agreeable()).await;
    bench.until("the attempt runs", async |bench| !bench.claims().is_empty()).await;
    let full = Topology { max_queue_bytes: 1, ..Topology::default() };
    bench.bus.set_up(&full).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((bench.queued().await, bench.claims().len()), (1, 1), "the ticks renew the delivery");
    bench.bus.set_up(&Topology::default()).await.unwrap();
    bench.until_done().await;
    assert_eq!(bench.verdicts().await, [inline("the root's goal")]);
}

#[tokio::test(start_paused = true)]
async fn never_more_deliveries_than_free_slots() {
    let works: Vec<_> = (0..5).map(|n| work(&format!("c{n}"), "sleep", json!({"ms": 1000}))).collect();
    let bench = Bench::start(works.clone(), agreeable()).await;
    for work in &works {
        bench.dispatch(work).await;
    }
    for (millis, claims) in [(500, 2), (1000, 4), (1000, 5)] {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        assert_eq!(bench.claims().len(), claims);
    }
    bench.until_done().await;
    assert_eq!(bench.reports().await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_taken_context_is_claimed_again_with_a_fresh_token() {
    let mut first = true;
    let script: Script = Box::new(move |_, answer| {
        let taken = Answer::Taken { until: Timestamp::from_millis(1_004_000), for_ms: 4_000 };
        Some(if std::mem::take(&mut first) { taken } else { answer })
    });
    let bench = Bench::run(work("root", "echo", json!({})), script).await;
    bench.until_done().await;
    let claims = bench.claims();
    assert_eq!(claims.len(), 2);
    assert!((3_900..4_100).contains(&claims[1].0), "the worker asked again at {}", claims[1].0);
    assert_ne!(claims[0].1.token, claims[1].1.token);
    assert_eq!(bench.reports().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn b13_a_coordinator_that_is_unavailable_is_asked_again() {
    let mut left = 3;
    let script: Script = Box::new(move |_, answer| {
        left -= 1;
        Some(if left >= 0 { refusal("unavailable") } else { answer })
    });
    let bench = Bench::run(work("root", "echo", json!({})), script).await;
    bench.until_done().await;
    let tokens: Vec<_> = bench.claims().into_iter().map(|(_, claim)| claim.token).collect();
    assert_eq!(tokens.len(), 4);
    assert!(tokens.iter().all(|token| *token == tokens[0]), "one claim, asked four times");
    assert_eq!(bench.reports().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_claim_returns_to_the_queue() {
    let script: Script = Box::new(|_, _| None);
    let bench = Bench::run(work("root", "echo", json!({})), script).await;
    tokio::time::sleep(Duration::from_secs(45)).await;
    let claims = bench.claims();
    let second = claims.iter().find(|(_, claim)| claim.token != claims[0].1.token);
    assert!((30_000..35_000).contains(&second.unwrap().0), "kept for 30 s, then delivered again");
    assert_eq!((bench.queued().await, bench.reports().await.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn stop_and_done_to_a_claim_end_the_delivery_and_a_refusal_is_a_dead_letter() {
    for (answer, letters) in
        [(Answer::Stop { reason: "ended".into() }, 0), (Answer::Done, 0), (refusal("malformed"), 1)]
    {
        let script: Script = Box::new(move |_, _| Some(answer.clone()));
        let bench = Bench::run(work("root", "echo", json!({})), script).await;
        bench.until_done().await;
        assert_eq!((bench.claims().len(), bench.reports().await.len()), (1, 0));
        let dead = bench.dead_letters().await;
        assert_eq!(dead.len(), letters);
        assert!(dead.iter().all(|letter| letter.child_id == Some(id("root"))));
    }
}

#[tokio::test(start_paused = true)]
async fn g8_stop_on_a_tick_cancels_at_once_and_reports_nothing() {
    let bench = Bench::run(work("root", "sleep", json!({"ms": 3_600_000})), stopping()).await;
    tokio::time::sleep(Duration::from_millis(3_100)).await;
    assert_eq!((bench.queued().await, bench.reports().await.len()), (0, 0));
    assert_eq!(bench.asks().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn g8_a_broadcast_makes_the_context_it_names_tick_at_once_and_no_other() {
    let works = ["a", "b"].map(|child| work(child, "sleep", json!({"ms": 3_600_000})));
    let bench = Bench::start(works.to_vec(), stopping()).await;
    for work in &works {
        bench.dispatch(work).await;
    }
    bench.until("both attempts run", async |bench| bench.claims().len() == 2).await;
    let stop = Stop { trace_id: works[0].trace_id, child_id: id("a") };
    let payload = serde_json::to_vec(&stop).unwrap().into();
    bench.bus.broadcast(&Subject::Stop(stop.trace_id), &Headers::new(), payload).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.queued().await, 1, "one attempt ended before its first tick");
    assert_eq!(ticks(&bench), 1);
    assert_eq!(bench.reports().await.len(), 0);
}

/// Answers every tick with `stop`.
fn stopping() -> Script {
    Box::new(|ask, answer| {
        let stop = Answer::Stop { reason: "cancelled".into() };
        Some(if matches!(ask, Ask::Tick(_)) { stop } else { answer })
    })
}

fn ticks(bench: &Bench) -> usize {
    bench.asks().iter().filter(|(_, ask)| matches!(ask, Ask::Tick(_))).count()
}

/// A forged stop changes nothing, because the coordinator does not confirm it. Many of them cause
/// few ticks.
#[tokio::test(start_paused = true)]
async fn s6_a_forged_stop_stops_nothing_and_a_flood_of_them_makes_few_ticks() {
    let work = work("root", "sleep", json!({"ms": 2_500}));
    let bench = Bench::run(work.clone(), agreeable()).await;
    bench.until("the attempt runs", async |bench| bench.claims().len() == 1).await;
    let stop = Stop { trace_id: work.trace_id, child_id: id("root") };
    let payload = bytes::Bytes::from(serde_json::to_vec(&stop).unwrap());
    for _ in 0..200 {
        for _ in 0..20 {
            bench
                .bus
                .broadcast(&Subject::Stop(stop.trace_id), &Headers::new(), payload.clone())
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let flooded = ticks(&bench);
    assert!((1..=5).contains(&flooded), "{flooded} ticks in a second, for 4,000 stops");
    bench.until_done().await;
    assert_eq!(bench.verdicts().await, [inline("the root's goal")]);
}

/// f05, by the worker's own clock: an attempt whose ticks get no answer ends without a report.
#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_is_given_up_without_a_result() {
    let bench = Bench::run(work("root", "sleep", json!({"ms": 14_000})), silent_from_tick(2)).await;
    bench.until("the delivery is repeated", async |bench| bench.claims().len() == 2).await;
    // The first tick, at 3 s, was answered: the lease lasts until 13 s.
    let again = bench.claims()[1].0;
    assert!((13_000..16_000).contains(&again), "claimed again at {again}");
    assert_eq!((bench.queued().await, bench.reports().await.len()), (1, 0));
}

/// Does not answer the first ticks. The first is sent after 3 s; each waits 2 s for its answer and
/// is sent again half a second later.
fn silent_ticks(count: u32, then: Option<Answer>) -> Script {
    let mut ticks = 0;
    Box::new(move |ask, answer| {
        if !matches!(ask, Ask::Tick(_)) {
            return Some(answer);
        }
        ticks += 1;
        (ticks > count).then(|| then.clone().unwrap_or(answer))
    })
}

fn holds(bench: &Bench) -> Vec<u64> {
    let asks = bench.asks().into_iter();
    asks.filter(|(_, ask)| matches!(ask, Ask::Hold(_))).map(|(at, _)| at).collect()
}

/// No tick is answered between 3 s and 18 s, and the lease expires after 10 s: the call of 20 s is
/// finished and paid once, and the attempt continues.
#[tokio::test(start_paused = true)]
async fn b13_a_call_in_flight_outlives_the_lease_and_the_attempt_goes_on() {
    let work = work("root", "spend", json!({"calls": 2, "usd": 0.01, "ms": 20_000}));
    let bench = Bench::run(work, silent_ticks(6, None)).await;
    bench.until_done().await;
    assert_eq!(bench.claims().len(), 1, "the delivery was claimed once");
    assert_eq!(bench.verdicts().await, [inline(json!({"calls": 2, "spent_usd": "0.02"}))]);
    assert_eq!(bench.costs().await.len(), 2);
    assert_eq!(holds(&bench).len(), 2);
}

/// The coordinator never comes back: the call is finished and its cost stored, no further call
/// begins, and the attempt gives up one lease after the call's end.
#[tokio::test(start_paused = true)]
async fn b13_an_attempt_gives_up_one_lease_after_its_last_call() {
    let work = work("root", "spend", json!({"calls": 2, "usd": 0.01, "ms": 20_000}));
    let bench = Bench::run(work, silent_ticks(1_000, None)).await;
    bench.until("the delivery is repeated", async |bench| bench.claims().len() == 2).await;
    let again = bench.claims()[1].0;
    assert!((30_000..36_000).contains(&again), "claimed again at {again}");
    assert_eq!((bench.costs().await.len(), bench.reports().await.len()), (1, 0));
    assert_eq!(holds(&bench).iter().filter(|at| **at < again).count(), 1, "no new call began");
}

/// Another attempt has begun meanwhile: the answer is `stop`. The delivery is not acknowledged,
/// since it may belong to the other attempt.
#[tokio::test(start_paused = true)]
async fn t5_a_call_in_flight_is_cut_off_when_another_worker_has_the_context() {
    let work = work("root", "spend", json!({"calls": 2, "usd": 0.01, "ms": 20_000}));
    let stop = Answer::Stop { reason: "stale".into() };
    let bench = Bench::run(work, silent_ticks(6, Some(stop))).await;
    bench.until("the delivery is repeated", async |bench| bench.claims().len() == 2).await;
    assert!(bench.reports().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_paid_call_begins_while_ticks_are_unanswered() {
    let inputs = json!({"calls": 100, "ms": 1000, "usd": 0.001});
    let bench = Bench::run(work("root", "spend", inputs), silent_from_tick(1)).await;
    bench.until("the delivery is repeated", async |bench| bench.claims().len() == 2).await;
    let asks = bench.asks();
    let again = bench.claims()[1].0;
    let holds: Vec<u64> = asks
        .iter()
        .filter(|(at, ask)| *at < again && matches!(ask, Ask::Hold(_)))
        .map(|(at, _)| *at)
        .collect();
    // The first tick is sent at 3 s and times out at 5 s.
    assert!(holds.iter().all(|at| *at <= 5_000), "{holds:?}");
    assert!(holds.len() >= 5, "the attempt stopped too early: {holds:?}");
    let costs = bench.costs().await;
    assert!(costs.len() >= holds.len(), "every call is settled");
}

#[tokio::test(start_paused = true)]
async fn f23_an_invalid_message_is_a_dead_letter_and_the_queue_continues() {
    let good = work("root", "echo", json!({}));
    let bench = Bench::start(vec![good.clone()], agreeable()).await;
    let mut elsewhere = good.clone();
    elsewhere.report_to.ask = "agent.spawn".into();
    bench.publish(b"\xff{".to_vec()).await;
    bench.publish(br#"{"nope": 1}"#.to_vec()).await;
    bench.dispatch(&elsewhere).await;
    bench.dispatch(&good).await;
    bench.until_done().await;
    let letters = bench.dead_letters().await;
    assert_eq!(letters.len(), 3);
    assert!(letters.iter().all(|letter| letter.refusal.code == "malformed"), "{letters:#?}");
    assert!(letters[1].refusal.message.contains("`report_to` is missing"), "{:?}", letters[1]);
    assert_eq!(bench.verdicts().await, [inline("the root's goal")]);
}

/// proves: a worker's dead letter identifies its message and the reason of the refusal, and
/// contains nothing of the task.
#[tokio::test(start_paused = true)]
async fn s8_a_dead_letter_of_a_worker_has_no_content() {
    let refused = work("root", "echo", json!({"key": "PRIVATE-INPUT"}));
    let bench = Bench::start(vec![refused.clone()], Box::new(|_, _| Some(refusal("malformed")))).await;
    let mut elsewhere = refused.clone();
    elsewhere.report_to.ask = "agent.spawn".into();
    bench.dispatch(&elsewhere).await;
    bench.publish(br#"{"goal": "the root's goal", "inputs": {"key": "PRIVATE-INPUT"}}"#.to_vec()).await;
    bench.publish(br#"{"goal": "the root's goal PRIVATE-INPUT"#.to_vec()).await;
    bench.dispatch(&refused).await;
    bench.until("all deliveries are refused", async |bench| bench.dead_letters().await.len() == 4).await;
    for letter in bench.dead_letters().await {
        let text = serde_json::to_string(&letter).unwrap();
        assert!(text.contains(" bytes, SHA-256 "), "{text}");
        assert!(!text.contains("PRIVATE-INPUT") && !text.contains("the root's goal"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_worker_finishes_short_attempts_and_hands_back_the_rest() {
    let long = work("long", "sleep", json!({"ms": 3_600_000}));
    let short = work("short", "sleep", json!({"ms": 15_000}));
    let late = work("late", "echo", json!({}));
    let mut bench = Bench::start(vec![long.clone(), short.clone(), late.clone()], agreeable()).await;
    bench.dispatch(&long).await;
    bench.dispatch(&short).await;
    bench.until("both attempts run", async |bench| bench.claims().len() == 2).await;
    bench.shut_down();
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench.dispatch(&late).await;
    bench.until("the worker ends", async |bench| bench.is_over()).await;
    let passed = bench.clock.now().millis_since(Timestamp::from_millis(1_000_000));
    assert!((20_000..21_000).contains(&passed), "ended after {passed} ms");
    assert_eq!(bench.verdicts().await, [inline("the root's goal"), Verdict::HandedBack]);
    assert_eq!(bench.queued().await, 1, "a late delivery remains for other workers");
    bench.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_describes_itself_and_drains_when_it_is_named() {
    let bench = Bench::run(work("root", "sleep", json!({"ms": 5_000})), agreeable()).await;
    bench.until("the attempt runs", async |bench| bench.claims().len() == 1).await;
    let call = async |subject: Subject, call: Value| -> Vec<Value> {
        let payload = call.to_string().into();
        let answers = bench.bus.gather(&subject, payload, Duration::from_millis(100)).await.unwrap();
        answers.iter().map(|answer| serde_json::from_slice(answer).unwrap()).collect()
    };
    let describe = async || -> WorkerState {
        let answers = call(Subject::Worker, json!("describe")).await;
        serde_json::from_value(answers[0].clone()).unwrap()
    };
    let state = describe().await;
    assert_eq!(
        (&state.worker_id, state.slots, state.running, state.draining),
        (&bench.worker_id, 2, 1, false)
    );
    let drain = Subject::Drain;
    assert!(call(drain.clone(), json!({"worker_id": "another"})).await.is_empty());
    // Any client may send on the other subject: a drain is refused there.
    let elsewhere = call(Subject::Worker, json!({"drain": {"worker_id": bench.worker_id}})).await;
    assert_eq!(elsewhere[0]["code"], "malformed", "{elsewhere:?}");
    assert!(!describe().await.draining);
    assert_eq!(call(drain, json!({"worker_id": bench.worker_id})).await[0]["draining"], true);
    assert!(describe().await.draining, "a draining worker still answers");
    bench.until("the worker ends", async |bench| bench.is_over()).await;
    assert_eq!(bench.verdicts().await, [inline("the root's goal")]);
    bench.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn b3_a_hold_denied_for_unbooked_costs_is_asked_again_once_they_are_booked() {
    let mut denials = 1;
    let script: Script = Box::new(move |ask, answer| {
        let second = matches!(ask, Ask::Hold(hold) if hold.call_id.as_str() == "1-2");
        denials -= i32::from(second);
        Some(if second && denials == 0 { denied(false) } else { answer })
    });
    let bench = Bench::run(work("root", "spend", json!({"calls": 2, "usd": "0.2"})), script).await;
    bench.until_done().await;
    let asked: Vec<String> = bench
        .asks()
        .into_iter()
        .filter_map(|(_, ask)| match ask {
            Ask::Hold(hold) => Some(format!("hold {}", hold.call_id)),
            Ask::Settle { call_id, .. } => Some(format!("settle {call_id}")),
            _ => None,
        })
        .collect();
    assert_eq!(
        asked,
        ["hold 1-1", "hold 1-2", "settle 1-1", "hold 1-2", "settle 1-2"],
        "a cost is settled before the result"
    );
    let costs: Vec<_> = bench.costs().await.into_iter().map(|cost| (cost.call_id, cost.amount)).collect();
    let cost = Amount::new(Usd::from_cents(20), Tokens::new(100));
    assert_eq!(costs, ["1-1", "1-2"].map(|call| (call.parse().unwrap(), cost)));
    assert_eq!(bench.verdicts().await, [inline(json!({"calls": 2, "spent_usd": "0.40"}))]);
}

#[tokio::test(start_paused = true)]
async fn b5_b8_a_denied_hold_ends_a_context_or_parks_it_as_the_coordinator_says() {
    let halt = |pause| Answer::Halt { context: id("root"), dimension: Dimension::Cost, pause };
    for (answer, parks) in
        [(denied(false), false), (denied(true), true), (halt(false), false), (halt(true), true)]
    {
        let work = work("root", "spend", json!({}));
        let script: Script = Box::new(move |ask, agreed| {
            Some(if matches!(ask, Ask::Hold(_)) { answer.clone() } else { agreed })
        });
        let bench = Bench::run(work, script).await;
        bench.until_done().await;
        match bench.verdicts().await.as_slice() {
            [Verdict::OutOfBudget] => assert!(parks),
            [Verdict::Failed(failure)] => {
                assert_eq!((failure.kind, failure.retryable, parks), (FailureKind::Budget, false, false));
                assert!(failure.message.contains("`root`"), "{}", failure.message);
            }
            other => panic!("{other:?}"),
        }
        assert!(bench.costs().await.is_empty(), "no call was made");
    }
}

#[tokio::test(start_paused = true)]
async fn b10_open_holds_of_earlier_attempts_are_reported_before_the_first_call() {
    let script: Script = Box::new(|_, mut answer| {
        if let Answer::Claimed(claimed) = &mut answer {
            let call_id = "1-1".parse().unwrap();
            claimed.open_holds = vec![OpenHold { call_id, attempt: 1, amount: cents(1) }];
            claimed.lease.attempt = 2;
        }
        Some(answer)
    });
    let bench = Bench::run(work("root", "spend", json!({})), script).await;
    bench.until_done().await;
    let asks = bench.asks();
    assert!(
        matches!(&asks[1].1, Ask::Resume(resume) if resume.lease.attempt == 2 && resume.settled.is_empty())
    );
    assert!(
        matches!(&asks[2].1, Ask::Hold(hold) if hold.call_id.as_str() == "2-1"),
        "the second attempt uses its own call id"
    );
}

/// The last attempt wrote the model's answer to the journal and was killed before it reported the
/// cost: the cost is booked from the journal, and the call is not made again.
#[tokio::test(start_paused = true)]
async fn b10_an_open_call_is_booked_from_its_journal_entry() {
    let mut work = work("root", "echo", json!({}));
    work.agent.kind = domain::agent::AgentKind::Llm;
    work.model = Some("scripted".parse().unwrap());
    let script: Script = Box::new(|_, mut answer| {
        if let Answer::Claimed(claimed) = &mut answer {
            let call_id = "1-1".parse().unwrap();
            claimed.open_holds = vec![OpenHold { call_id, attempt: 1, amount: cents(9) }];
            claimed.lease.attempt = 2;
        }
        Some(answer)
    });
    let bench = Bench::start(vec![work.clone()], script).await;
    let cost = json!({"amount": cents(3), "prices": "some"});
    let model =
        json!({"call_id": "1-1", "model": "scripted", "cost": cost, "text": "paid for", "max_tokens": 9});
    let entry = json!({"trace_id": work.trace_id, "child_id": "root", "number": 1, "attempt": 1, "at": 1,
        "step": {"model": model}});
    let written = bus::Outgoing {
        subject: Subject::History(trellis_tests::subjects::pool(), work.trace_id, id("root")),
        id: None,
        headers: Headers::new(),
        payload: entry.to_string().into(),
        expect_last: Some(0),
    };
    bench.bus.publish(written).await.unwrap();
    bench.dispatch(&work).await;
    bench.until_done().await;
    assert_eq!(bench.verdicts().await, [inline("paid for")]);
    let asks = bench.asks();
    let resumed =
        asks.iter().find_map(|(_, ask)| if let Ask::Resume(resume) = ask { Some(resume) } else { None });
    let settled: Vec<_> =
        resumed.unwrap().settled.iter().map(|call| (call.call_id.as_str(), call.amount)).collect();
    assert_eq!(settled, [("1-1", cents(3))]);
    assert!(!asks.iter().any(|(_, ask)| matches!(ask, Ask::Hold(_))), "no call is paid again");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_agent_is_a_failed_attempt_and_the_worker_goes_on() {
    let works = [work("a", "panic", json!({})), work("b", "echo", json!({}))];
    let bench = Bench::start(works.to_vec(), agreeable()).await;
    bench.dispatch(&works[0]).await;
    bench.until_done().await;
    bench.dispatch(&works[1]).await;
    bench.until_done().await;
    let verdicts = bench.verdicts().await;
    assert!(
        matches!(&verdicts[0], Verdict::Failed(f) if f.retryable && f.message.contains("panic as requested")),
        "{verdicts:?}"
    );
    assert_eq!(verdicts[1], inline("the root's goal"));
}

#[tokio::test(start_paused = true)]
async fn l_a_large_result_goes_by_reference() {
    let mut work = work("root", "echo", json!({}));
    work.limits.max_result_bytes = 10;
    let bench = Bench::run(work, agreeable()).await;
    bench.until_done().await;
    let verdicts = bench.verdicts().await;
    let [Verdict::Completed(Payload::Reference(ObjectReference { object, size_bytes, sha256 }))] =
        verdicts.as_slice()
    else {
        panic!("{verdicts:?}")
    };
    let stored = bench.bus.get_object(object).await.unwrap().unwrap();
    assert_eq!((stored.as_ref(), *size_bytes), (&br#""the root's goal""#[..], 17));
    assert_eq!(sha256.len(), 64);
}

#[tokio::test(start_paused = true)]
async fn a_bad_parameter_or_name_is_reported_and_not_tried_again() {
    let cases = [
        ("sleep", json!({"ms": "soon"}), "input `ms`"),
        ("spend", json!({"usd": -1}), "input `usd`"),
        ("tree", json!({"width": 0}), "input `width`: 0 is not between 1 and 1000"),
        ("share", json!({"key": "a b"}), "input `key`"),
        ("slep", json!({}), "did you mean `sleep`?"),
        ("crash", json!({}), "`crash` runs only in a worker with its own process"),
    ];
    for (builtin, inputs, says) in cases {
        let bench = Bench::run(work("root", builtin, inputs), agreeable()).await;
        bench.until_done().await;
        let verdicts = bench.verdicts().await;
        let [Verdict::Failed(failure)] = verdicts.as_slice() else { panic!("{builtin}: {verdicts:?}") };
        assert!(failure.message.contains(says) && !failure.retryable, "{builtin}: {failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn built_in_agents_do_what_they_say() {
    let mut asked = work("root", "ask", json!({}));
    asked.answers = vec![given("which?", "the blue one")];
    let mut paid = work("root", "spend", json!({"calls": 3, "usd": 0.1}));
    paid.budget.own = cents(20);
    let cases = [
        (work("root", "echo", json!({"anything": 1})), inline("the root's goal")),
        (work("root", "fail", json!({"times": 0})), inline("the root's goal")),
        (asked, inline("the blue one")),
        (paid, inline(json!({"calls": 3, "spent_usd": "0.30"}))),
        (work("root", "share", json!({})), inline(json!({"keys": [], "read": {}}))),
        (
            work("root", "chain", json!({"length": 2})),
            Verdict::Waiting { children: vec![id("root-next")], hand_over: true },
        ),
        (
            work("root", "tree", json!({"width": 2})),
            Verdict::Waiting { children: vec![id("root-1"), id("root-2")], hand_over: false },
        ),
    ];
    for (work, verdict) in cases {
        let bench = Bench::run(work, agreeable()).await;
        bench.until_done().await;
        assert_eq!(bench.verdicts().await, [verdict]);
        assert!(bench.bus.read(&Filter::Dead).await.unwrap().is_empty());
    }
}

/// f05: a worker that was stopped for longer than its lease ticks before it does anything else.
/// Without `Keeper::live` it would hold, or report, in an attempt that is over.
#[tokio::test(start_paused = true)]
async fn f05_a_worker_resumed_after_its_lease_ticks_before_it_acts() {
    for (builtin, inputs) in [("spend", json!({"calls": 2, "ms": 1000})), ("sleep", json!({"ms": 1000}))] {
        let script: Script = Box::new(move |ask, answer| {
            let zombie = matches!(ask, Ask::Tick(tick) if tick.lease.attempt == 1);
            let over = Answer::Stop { reason: "another attempt runs".into() };
            Some(if zombie { over } else { answer })
        });
        let bench = Bench::run(work("root", builtin, inputs), script).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::time::advance(Duration::from_secs(60)).await;
        // The work was redelivered meanwhile, and a second attempt runs.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let late: Vec<_> =
            bench.asks().into_iter().filter(|(at, _)| *at > 1_000).map(|(_, ask)| ask).collect();
        assert!(late.iter().any(|ask| matches!(ask, Ask::Tick(tick) if tick.lease.attempt == 1)), "{late:?}");
        assert!(
            !late.iter().any(|ask| matches!(ask, Ask::Hold(hold) if hold.lease.attempt == 1)),
            "{late:?}"
        );
        assert_eq!(bench.queued().await, 1, "the late attempt acknowledged the delivery of its successor");
        bench.until_done().await;
        let attempts: Vec<u32> = bench.reports().await.iter().map(|report| report.lease.attempt).collect();
        assert_eq!(attempts, [2]);
    }
}

#[tokio::test]
async fn a_worker_says_whether_it_is_ready() {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };
    let free = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, free_port()));
    let bus = Bus::Memory(Memory::new(Namespace::default()));
    let config = ::worker::Config { health: Some(free), ..::worker::Config::default() };
    let (shutdown, told) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(::worker::run(config, bus, async {
        let _ = told.await;
    }));
    let mut answer = String::new();
    let deadline = tokio::time::Instant::now() + SOON;
    while !answer.starts_with("HTTP/1.1 200") && tokio::time::Instant::now() < deadline {
        if let Ok(mut stream) = TcpStream::connect(free).await {
            answer.clear();
            stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            stream.read_to_string(&mut answer).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ready\n"), "{answer}");
    drop(shutdown);
    worker.await.unwrap().unwrap();
}

/// Without the flush at the end of a cancelled attempt the cost would be lost, and the hold booked
/// as estimated.
#[tokio::test(start_paused = true)]
async fn b12_the_cost_of_a_cancelled_call_is_still_sent() {
    let work = work("root", "spend", json!({"ms": 100}));
    let bench = Bench::run(work.clone(), stopping()).await;
    bench.until("the attempt runs", async |bench| !bench.claims().is_empty()).await;
    bench.bus.set_up(&Topology { max_queue_bytes: 1, ..Topology::default() }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stop = Stop { trace_id: work.trace_id, child_id: id("root") };
    let payload = serde_json::to_vec(&stop).unwrap().into();
    bench.bus.broadcast(&Subject::Stop(stop.trace_id), &Headers::new(), payload).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(bench.costs().await.is_empty());
    bench.bus.set_up(&Topology::default()).await.unwrap();
    bench.until_done().await;
    assert_eq!((bench.costs().await.len(), bench.reports().await.len()), (1, 0));
    let forfeited = bench.asks().iter().any(|(_, ask)| matches!(ask, Ask::Forfeit { .. }));
    assert!(!forfeited, "a call whose cost was sent was forfeited");
}
