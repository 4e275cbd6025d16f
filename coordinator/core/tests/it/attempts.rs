//! Attempts: claims, leases, fencing, retries, waiting, humans.

use domain::{
    Amount,
    wire::{Answer, Claim, EndStatus, Failure, FailureKind, Lease, Progress, Text, Verdict},
};
use serde_json::json;
use trace::{Command, Effect, Phase, Refusal, Status, effects};
use world::{World, cents, id, with};

#[test]
fn t3_attempts_grow_and_a_live_lease_is_taken() {
    let mut world = World::with_root(json!({}));
    let first = world.claim("root");
    assert!(matches!(world.try_claim("root").unwrap_err(), Refusal::Taken { .. }));
    world.pass(9_999);
    assert!(matches!(world.try_claim("root").unwrap_err(), Refusal::Taken { .. }));
    world.pass(1);
    let second = world.claim("root");
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(world.node("root").retries(), 1, "an attempt lost with its worker is a retry (B15)");
}

#[test]
fn t3_a_claim_is_known_by_its_token() {
    let mut world = World::with_root(json!({}));
    let claim =
        Claim { child_id: id("root"), worker_id: "w".parse().unwrap(), token: "mine".parse().unwrap() };
    assert_eq!(world.handle(Command::Claim(claim.clone())).unwrap().len(), 1);
    assert_eq!(world.handle(Command::Claim(claim.clone())).unwrap(), []);
    let Answer::Claimed(claimed) = world.trace.answer_claim(&claim, Ok(()), &world::home(), world.now) else {
        panic!()
    };
    assert_eq!((claimed.lease.attempt, claimed.work.attempt), (1, 1));
    // A second delivery of the first claim, after a later attempt has begun, is stale. It starts no
    // new attempt.
    world.pass(10_000);
    world.claim("root");
    world.pass(10_000);
    assert!(matches!(world.handle(Command::Claim(claim)).unwrap_err(), Refusal::Stale { .. }));
}

#[test]
fn t3_a_tick_keeps_the_lease_and_says_go_on_or_stop() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    for _ in 0..10 {
        world.now = world.now.plus_millis(9_000);
        world.tick(&root, Progress::default()).unwrap();
    }
    assert_eq!(world.node("root").attempt(), 1);
    world.cancel(None).unwrap();
    let tick = domain::wire::Tick { lease: root, progress: Progress::default() };
    let refusal = world.handle(Command::Tick(tick.clone())).unwrap_err();
    assert!(matches!(world.trace.answer_tick(&tick, Err(&refusal), world.now), Answer::Stop { .. }));
}

#[test]
fn t5_nothing_is_accepted_from_a_stale_attempt_or_a_wrong_token_but_its_cost() {
    let mut world = World::with_root(json!({}));
    let zombie = world.claim("root");
    world.hold(&zombie, "c1", cents(5)).unwrap();
    world.pass(10_000);
    let lease = world.claim("root");
    let forged = Lease { token: "forged".parse().unwrap(), ..lease.clone() };
    let unborn = Lease { attempt: 9, ..lease.clone() };
    for (who, code) in [(&zombie, "stale"), (&forged, "wrong_token"), (&unborn, "stale")] {
        let refusals = [
            world.complete(who, "mine").unwrap_err(),
            world.fail(who, true).unwrap_err(),
            world.tick(who, Progress::default()).unwrap_err(),
            world.hold(who, "c2", cents(1)).unwrap_err(),
            world.spawn(who, json!({"goal": "x", "child_id": "x"})).unwrap_err(),
            world.resume(who, &[]).unwrap_err(),
        ];
        assert!(refusals.iter().all(|refusal| refusal.code().0 == code), "{refusals:?}");
    }
    assert!(world.settle(&forged, "c1", cents(0)).is_err(), "a forged cost released a hold");
    assert!(world.release(&lease, "c1").is_err(), "only the attempt that holds a call can release it");
    world.settle(&zombie, "c1", cents(4)).unwrap();
    assert_eq!(world.spent_cents("root"), 4);
    world.complete(&lease, "ok").unwrap();
}

#[test]
fn t3_a_report_after_the_lease_but_before_a_successor_still_counts() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.now = world.now.plus_millis(60_000);
    world.complete(&root, "slow but first").unwrap();
    assert_eq!(world.status("root"), "completed");
    assert!(matches!(
        world.complete(&root, "again").unwrap_err(),
        Refusal::Ended { status: EndStatus::Completed, .. }
    ));
}

#[test]
fn b15_work_that_kills_every_worker_ends() {
    let mut world = World::with_root(json!({"limits": {"max_retries_total": 3}}));
    for attempt in 1..=4 {
        assert_eq!(world.claim("root").attempt, attempt);
        world.pass(10_000);
    }
    let end = world.node("root").end().expect("the root has ended");
    assert_eq!(
        (end.status, end.details.error.as_ref().unwrap().kind),
        (EndStatus::Failed, FailureKind::WorkerLost)
    );
    world.rest();
}

#[test]
fn b15_a_failure_that_may_pass_is_tried_again_after_a_while() {
    let mut world = World::with_root(json!({"limits": {"max_retries_total": 2}}));
    for wait in [500, 1000] {
        let lease = world.claim("root");
        world.fail(&lease, true).unwrap();
        assert!(matches!(world.try_claim("root").unwrap_err(), Refusal::NotYet { .. }));
        let events = world.pass(wait);
        let sent = effects(&world.trace, &events);
        assert!(matches!(sent.as_slice(), [Effect::Execute { .. }]), "{sent:?}");
    }
    let lease = world.claim("root");
    world.fail(&lease, true).unwrap();
    assert_eq!(world.status("root"), "failed");
    assert_eq!((world.node("root").attempt(), world.node("root").retries()), (3, 2));
}

#[test]
fn b15_retries_of_calls_count_too() {
    let mut world = World::with_root(json!({"limits": {"max_retries_total": 2}}));
    let root = world.claim("root");
    world.tick(&root, Progress { retries: 2, ..Progress::default() }).unwrap();
    assert_eq!(world.status("root"), "working");
    world.tick(&root, Progress { retries: 3, ..Progress::default() }).unwrap();
    assert!(
        world
            .node("root")
            .end()
            .unwrap()
            .details
            .error
            .as_ref()
            .unwrap()
            .message
            .contains("of max_retries_total = 2 (the submission)")
    );
}

#[test]
fn b15_retries_in_a_failing_report_are_counted() {
    let mut world = World::with_root(json!({"limits": {"max_retries_total": 2}}));
    let root = world.claim("root");
    let failure = domain::wire::Failure::retryable("it broke");
    let progress = Progress { retries: 2, ..Progress::default() };
    world.report_with(&root, progress, Verdict::Failed(failure)).unwrap();
    assert_eq!(world.status("root"), "failed", "the call was retried twice, and not a third time");
    assert_eq!((world.node("root").attempt(), world.node("root").retries()), (1, 2));
}

#[test]
fn t5_events_and_the_store_contain_no_lease_token() {
    let mut world = World::with_root(json!({}));
    world.claim("root");
    let log = serde_json::to_string(&world.log).unwrap();
    let stored = format!("{:?}", world.trace.clone().take_changes());
    assert!(!log.contains("token1\"") && !stored.contains("token1\""), "{log} {stored}");
}

#[test]
fn l_a_claim_after_the_deadline_ends_the_context_as_its_timer_would() {
    let mut world = World::with_root(json!({"timeout_ms": 5_000}));
    world.now = world.now.plus_millis(5_000);
    let claim = Claim { child_id: id("root"), worker_id: "w".parse().unwrap(), token: "t".parse().unwrap() };
    world.handle(Command::Claim(claim.clone())).unwrap();
    assert_eq!(world.status("root"), "timed_out");
    let answer = world.trace.answer_claim(&claim, Ok(()), &world::home(), world.now);
    assert!(matches!(answer, Answer::Stop { .. }), "{answer:?}");
    world.rest();
}

/// A worker stops its call at the deadline and then reports a failure.
#[test]
fn l_a_failure_reported_after_the_deadline_ends_the_context_as_its_timer_would() {
    for retryable in [false, true] {
        for late_ms in [0, 1] {
            let mut world = World::with_root(json!({"timeout_ms": 5_000}));
            let root = world.claim("root");
            world.now = world.now.plus_millis(5_000 + late_ms);
            world.fail(&root, retryable).unwrap();
            assert_eq!(world.status("root"), "timed_out");
            world.rest();
        }
        let mut world = World::with_root(json!({"timeout_ms": 5_000}));
        let root = world.claim("root");
        world.now = world.now.plus_millis(4_999);
        world.fail(&root, retryable).unwrap();
        assert_ne!(world.status("root"), "timed_out");
    }
}

/// The deadline cuts a call off. Three things follow in any order: its hold is booked, its worker
/// reports, the timer is due. In no order does the context end for lack of budget, though the hold
/// was the whole budget.
#[test]
fn l_a_call_that_the_deadline_cut_off_ends_its_context_as_timed_out_in_any_order() {
    let verdicts = || {
        let failure =
            |retryable| Failure { kind: FailureKind::Provider, message: "no answer".into(), retryable };
        [
            Some(Verdict::Failed(failure(false))),
            Some(Verdict::Failed(failure(true))),
            Some(Verdict::OutOfBudget),
            Some(Verdict::HandedBack),
            Some(Verdict::InputRequired { question: Text::new("?").unwrap(), form: Default::default() }),
            None,
        ]
    };
    let orders =
        ["forfeit report timer", "report forfeit timer", "report timer forfeit", "timer forfeit report"];
    for (order, verdict) in orders.iter().flat_map(|order| verdicts().map(|verdict| (*order, verdict))) {
        for terms in [json!({}), json!({"on_exhausted": "pause"})] {
            let mut world = World::with_root(with(json!({"timeout_ms": 5_000, "max_cost_usd": 0.05}), terms));
            let root = world.claim("root");
            world.hold(&root, "1-1", cents(5)).unwrap();
            world.now = world.now.plus_millis(5_000);
            for what in order.split(' ') {
                // The second or third command may be refused because the context has ended.
                let _ = match (what, &verdict) {
                    ("forfeit", _) => {
                        let (lease, call_id) = (root.clone(), "1-1".parse().unwrap());
                        world.handle(Command::Forfeit { lease, call_id }).map(drop)
                    }
                    ("report", Some(verdict)) => world.report(&root, verdict.clone()).map(drop),
                    ("timer", _) => world.handle(Command::Wake).map(drop),
                    _ => Ok(()),
                };
            }
            assert_eq!(world.status("root"), "timed_out", "{order}: {verdict:?}");
            world.rest();
            assert_eq!(world.node("root").budget.spent, cents(5), "{order}: the hold is booked");
        }
    }
}

#[test]
fn progress_only_grows_in_any_order_of_reports() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.tick(&root, Progress { steps: 5, ..Progress::default() }).unwrap();
    world.tick(&root, Progress { steps: 3, ..Progress::default() }).unwrap();
    assert_eq!(world.node("root").lifecycle.progress.steps, 5);
}

#[test]
fn a_draining_worker_hands_back_without_a_retry() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let events = world.report(&root, Verdict::HandedBack).unwrap();
    assert!(matches!(effects(&world.trace, &events).as_slice(), [Effect::Execute { attempt: 2, .. }]));
    assert_eq!(world.node("root").retries(), 0);
    world.run("root", "ok");
}

#[test]
fn unclaimed_work_is_sent_again_with_growing_delays() {
    let mut world = World::with_root(json!({}));
    let mut sent_after_minutes = Vec::new();
    for minute in 1..=250 {
        let events = world.pass(60_000);
        match effects(&world.trace, &events).as_slice() {
            [] => {}
            [Effect::Execute { attempt: 1, .. }] => sent_after_minutes.push(minute),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sent_after_minutes, [15, 30, 60, 120, 240], "a long queue is not a loss");
}

#[test]
fn p_a_parent_that_waits_holds_no_worker_and_is_woken_once() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    for child in ["a", "b"] {
        world.spawn(&root, json!({"goal": child, "child_id": child})).unwrap();
    }
    world.wait(&root, &["a", "b"]).unwrap();
    assert!(matches!(world.try_claim("root").unwrap_err(), Refusal::NotQueued { .. }));
    world.run("a", 1);
    assert!(matches!(world.node("root").status, Status::Working(Phase::Waiting { .. })));
    world.break_it("b");
    assert_eq!(world.queued(), [id("root")]);
    let work = world.work(&id("root")).unwrap();
    let seen: Vec<_> = work.children.iter().map(|c| (c.child_id.as_str(), c.status)).collect();
    assert_eq!(seen, [("a", EndStatus::Completed), ("b", EndStatus::Failed)]);
    let again = world.claim("root");
    // A wait for a child that has already ended wakes the parent at once.
    world.wait(&again, &["a"]).unwrap();
    world.run("root", "ok");
    assert_eq!(world.node("root").retries(), 0);
    world.rest();
}

#[test]
fn g10_a_delegate_makes_the_childs_result_its_own() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.report(&root, Verdict::Waiting { children: vec![id("a")], hand_over: true }).unwrap();
    world.run("a", "from the child");
    let outcome = serde_json::to_value(world.trace.outcome(&id("root")).unwrap()).unwrap();
    assert_eq!(
        (outcome["status"].clone(), outcome["result"].clone()),
        (json!("completed"), json!("from the child"))
    );
    world.rest();
}

#[test]
fn a_wait_for_a_context_that_is_not_a_child_is_refused() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    for (lease, children) in [(&a, vec!["root"]), (&root, vec!["nobody"]), (&root, vec![])] {
        assert!(matches!(world.wait(lease, &children).unwrap_err(), Refusal::Malformed(_)));
    }
}

#[test]
fn children_do_not_outlive_their_parent() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world.spawn(&a, json!({"goal": "b", "child_id": "b"})).unwrap();
    world.complete(&root, "did not wait").unwrap();
    assert_eq!(["a", "b"].map(|c| world.status(c)), ["cancelled", "cancelled"]);
    world.rest();
}

#[test]
fn g7_a_question_reaches_the_roots_caller_and_the_answer_resumes_days_later() {
    let mut world = World::with_root(json!({"timeout_ms": 100_000}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.wait(&root, &["a"]).unwrap();
    let a = world.claim("a");
    let events = world.ask_human(&a, "tea or coffee?").unwrap();
    assert!(matches!(effects(&world.trace, &events).as_slice(), [Effect::Question { .. }]));
    let question = world.trace.question(&id("a")).unwrap();
    assert_eq!((question.number, question.path), (1, vec![id("root"), id("a")]));
    world.pass(10 * 24 * 3600 * 1000);
    assert_eq!(
        ["root", "a"].map(|c| world.status(c)),
        ["input_required", "input_required"],
        "the deadlines of both are stopped"
    );

    assert!(matches!(world.answer("a", 2, "early").unwrap_err(), Refusal::NoQuestion { .. }));
    world.answer("a", 1, "tea").unwrap();
    assert_eq!(world.answer("a", 1, "tea").unwrap(), [], "the same answer again changes nothing");
    assert!(
        matches!(world.answer("a", 1, "coffee").unwrap_err(), Refusal::NoQuestion { .. }),
        "the first answer remains"
    );
    let left = world.node("root").lifecycle.deadline.unwrap().millis_since(world.now);
    assert_eq!(left, 100_000, "the deadline continues with the remaining time");
    let work = world.work(&id("a")).unwrap();
    assert_eq!(work.answers[0].answer.as_str(), "tea");
    world.run("a", "tea it is");
    world.run("root", "ok");
    world.rest();
}

#[test]
fn g7_hitl_fail_turns_a_question_into_a_failure_all_the_way_down() {
    let mut world = World::with_root(json!({"hitl": "fail"}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world.ask_human(&a, "well?").unwrap();
    let end = world.node("a").end().unwrap();
    assert_eq!(end.details.error.as_ref().unwrap().kind, FailureKind::InputRequired);
}

#[test]
fn b8_a_context_out_of_budget_without_pause_is_aborted() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    assert!(world.hold(&root, "c1", Amount::cost(domain::Usd::from_cents(11))).is_err());
    world.report(&root, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("root"), "aborted");
}

#[test]
fn claims_answer_with_the_holds_a_predecessor_left_open() {
    let mut world = World::with_root(json!({}));
    let first = world.claim("root");
    world.hold(&first, "b", cents(2)).unwrap();
    world.hold(&first, "a", cents(1)).unwrap();
    world.pass(10_000);
    let second = world.claim("root");
    let claim = Claim { child_id: id("root"), worker_id: "worker".parse().unwrap(), token: second.token };
    let Answer::Claimed(claimed) = world.trace.answer_claim(&claim, Ok(()), &world::home(), world.now) else {
        panic!()
    };
    let open: Vec<_> = claimed.open_holds.iter().map(|h| (h.call_id.as_str(), h.attempt)).collect();
    assert_eq!(open, [("a", 1), ("b", 1)]);
}

#[test]
fn b13_a_tick_without_progress_renews_the_lease_and_nothing_is_written() {
    let mut world = World::with_root(json!({}));
    let lease = world.claim("root");
    let started = Progress { steps: 1, ..Progress::default() };
    assert_eq!(world.tick(&lease, started).unwrap().len(), 1, "progress is an event");
    for _ in 0..20 {
        world.pass(9_000);
        assert_eq!(world.tick(&lease, started).unwrap(), []);
    }
    assert!(matches!(world.try_claim("root"), Err(Refusal::Taken { .. })));
    assert_eq!(
        world.trace.stored_timer().unwrap().plus_millis(20 * 9_000),
        world.trace.next_timer().unwrap()
    );
    // A loaded trace has no renewals: its lease looks expired until they are applied again or it is
    // spared.
    let renewals = world.trace.renewals();
    let loaded = world.trace.without_renewals();
    assert!(loaded.next_timer() < Some(world.now));
    let mut told = loaded.clone();
    told.renew_again(&renewals);
    let mut spared = loaded.clone();
    spared.renewed_by(world.now);
    assert!(told == world.trace && spared == world.trace);
    world.pass(10_000);
    assert_eq!(world.queued(), [id("root")], "the context is queued again");
    // A renewal applies only to its own attempt, not to an attempt of another trace with the same
    // number.
    let mut other = World::with_root(json!({}));
    other.try_claim("nobody").unwrap_err();
    let lease = other.claim("root");
    other.pass(9_000);
    other.tick(&lease, Progress::default()).unwrap();
    let mut unchanged = loaded.clone();
    unchanged.renew_again(&other.trace.renewals());
    assert!(unchanged == loaded && !other.trace.renewals().is_empty());
}

/// B13: without a coordinator no worker could renew its lease. `Spare` gives the worker a moment to
/// do so.
#[test]
fn b13_a_lease_that_expired_without_a_coordinator_is_spared_once() {
    let mut world = World::with_root(json!({}));
    let lease = world.claim("root");
    world.now = world.now.plus_millis(60_000);
    let until = world.now.plus_millis(5_000);
    world.handle(Command::Spare { until }).unwrap();
    assert_eq!(world.handle(Command::Wake).unwrap(), [], "the attempt is not lost");
    assert!(matches!(world.try_claim("root"), Err(Refusal::Taken { .. })));
    world.tick(&lease, Progress::default()).unwrap();
    world.pass(9_999);
    assert_eq!(world.node("root").attempt(), 1);
    assert_eq!(
        world.handle(Command::Spare { until: world.now.plus_millis(5_000) }).unwrap(),
        [],
        "the lease is unchanged"
    );
    // A worker that does not renew in that time has lost its attempt, as usual.
    world.pass(1);
    assert_eq!(world.queued(), [id("root")]);
    world.claim("root");
    world.now = world.now.plus_millis(60_000);
    world.handle(Command::Spare { until: world.now.plus_millis(5_000) }).unwrap();
    world.pass(5_000);
    assert_eq!(world.queued(), [id("root")]);
}
