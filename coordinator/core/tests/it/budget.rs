//! Section B: the budget tree.

use domain::{
    Amount, Dimension, Json, Tokens, Usd,
    wire::{EndStatus, Failure, FailureKind, Payload, Raise, Verdict},
};
use serde_json::{Value, json};
use trace::{CallState, Command, Event, Refusal};
use world::{World, cents, id};

/// Root, child and grandchild with these limits in cents; the leases of all three.
fn three_levels(root: u64, child: u64, grandchild: u64) -> (World, [domain::wire::Lease; 3]) {
    let usd = |cents: u64| serde_json::to_value(Usd::from_cents(cents)).unwrap();
    let mut world = World::with_root(json!({"max_cost_usd": usd(root)}));
    let a = world.claim("root");
    world.spawn(&a, json!({"goal": "a", "child_id": "a", "max_cost_usd": usd(child)})).unwrap();
    let b = world.claim("a");
    world.spawn(&b, json!({"goal": "b", "child_id": "b", "max_cost_usd": usd(grandchild)})).unwrap();
    let c = world.claim("b");
    (world, [a, b, c])
}

#[test]
fn b1_three_levels_show_the_cost_of_the_lowest() {
    let (mut world, [_, _, lease]) = three_levels(100, 60, 30);
    world.pay(&lease, "c1", cents(20)).unwrap();
    assert_eq!(["root", "a", "b"].map(|c| world.spent_cents(c)), [20, 20, 20]);
    assert_eq!(["root", "a", "b"].map(|c| world.node(c).budget.own), [cents(0), cents(0), cents(20)]);
}

#[test]
fn b1_a_child_can_not_spend_what_its_parent_does_not_have() {
    // The original problem: A has $1; B asks for $5 and would spend $3.
    let (mut world, [_, lease, _]) = three_levels(100, 500, 500);
    assert_eq!(
        world.node("a").budget.ceilings.limit.cost_usd,
        Usd::from_cents(100),
        "a ceiling is at most that of the parent"
    );
    let denied = world.hold(&lease, "c1", cents(300)).unwrap_err();
    assert!(matches!(denied, Refusal::Denied(ref d) if d.context == id("a")), "{denied}");
}

#[test]
fn b3_a_hold_is_taken_on_all_ancestors_and_the_rest_returns() {
    let (mut world, [_, _, lease]) = three_levels(100, 60, 30);
    world.hold(&lease, "c1", cents(25)).unwrap();
    for context in ["root", "a", "b"] {
        assert_eq!(world.node(context).budget.held, cents(25));
    }
    world.settle(&lease, "c1", cents(5)).unwrap();
    for context in ["root", "a", "b"] {
        assert_eq!((world.node(context).budget.held, world.spent_cents(context)), (cents(0), 5));
    }
    world.hold(&lease, "c2", cents(25)).unwrap();
    world.release(&lease, "c2").unwrap();
    assert_eq!((world.node("root").budget.held, world.spent_cents("root")), (cents(0), 5));
}

#[test]
fn b3_tokens_are_held_and_spent_like_money() {
    let mut world = World::with_root(json!({"max_tokens": 1000}));
    let lease = world.claim("root");
    let tokens = |n| Amount::new(Usd::ZERO, Tokens::new(n));
    world.pay(&lease, "c1", tokens(600)).unwrap();
    let denied = world.hold(&lease, "c2", tokens(401)).unwrap_err();
    assert!(matches!(denied, Refusal::Denied(ref d) if d.dimension == Dimension::Tokens), "{denied}");
    world.hold(&lease, "c2", tokens(400)).unwrap();
    world.settle(&lease, "c2", tokens(400)).unwrap();
    assert_eq!(world.node("root").lifecycle.exhausted, Some(Dimension::Tokens));
}

#[test]
fn b4_a_hold_that_fits_exactly_is_admitted_and_at_the_limit_calls_are_halted() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.5}));
    let lease = world.claim("root");
    world.hold(&lease, "c1", cents(50)).unwrap();
    let queued = world.hold(&lease, "c2", cents(1)).unwrap();
    assert!(matches!(queued.as_slice(), [Event::HoldQueued { .. }]), "not halted yet: {queued:?}");
    world.settle(&lease, "c1", cents(50)).unwrap();
    let snapshot = world.trace.snapshot(world.node("root"));
    assert!(snapshot.aborted && snapshot.reason.unwrap().contains("cost"));
    for amount in [cents(1), cents(0)] {
        let halted = world.hold(&lease, "c3", amount).unwrap_err();
        assert!(matches!(halted, Refusal::Halted { pause: false, .. }), "{halted}");
    }
    let refused = world.spawn(&lease, json!({"goal": "x"})).unwrap_err();
    assert!(matches!(refused, Refusal::NothingLeft { .. }), "{refused}");
}

#[test]
fn b4_reaching_the_limit_of_an_ancestor_halts_everyone_under_it() {
    let (mut world, [root, a, b]) = three_levels(30, 30, 30);
    world.pay(&b, "c1", cents(30)).unwrap();
    for lease in [&root, &a, &b] {
        assert!(matches!(world.hold(lease, "c2", cents(1)).unwrap_err(), Refusal::Halted { .. }));
    }
    // A context that already has its result may still report it; the others are aborted.
    world.complete(&b, "the answer that was paid for").unwrap();
    let failure = Failure { kind: FailureKind::Budget, message: "halted".into(), retryable: true };
    world.report(&a, Verdict::Failed(failure)).unwrap();
    assert_eq!(["root", "a", "b"].map(|c| world.status(c)), ["working", "aborted", "completed"]);
}

#[test]
fn b5_a_denial_names_the_context_the_dimension_and_what_is_left() {
    let (mut world, [root, _, lease]) = three_levels(100, 60, 50);
    world.pay(&root, "c0", cents(70)).unwrap();
    let Refusal::Denied(denied) = world.hold(&lease, "c2", cents(35)).unwrap_err() else {
        panic!("not denied")
    };
    assert_eq!((denied.context, denied.dimension), (id("root"), Dimension::Cost));
    assert_eq!((denied.limit.cost_usd, denied.spent.cost_usd), (Usd::from_cents(100), Usd::from_cents(70)));
    assert_eq!((denied.held.cost_usd, denied.left_usd), (Usd::ZERO, Usd::from_cents(30)));
    // A hold lowered to the remaining amount is admitted.
    world.hold(&lease, "c2", Amount::cost(denied.left_usd)).unwrap();
}

#[test]
fn b6_spawn_child_with_and_without_an_amount() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.pay(&lease, "c1", cents(30)).unwrap();
    world.spawn(&lease, json!({"goal": "x", "child_id": "with", "max_cost_usd": "0.5"})).unwrap();
    world.spawn(&lease, json!({"goal": "x", "child_id": "without"})).unwrap();
    assert_eq!(world.node("with").budget.ceilings.limit.cost_usd, Usd::from_cents(50));
    assert_eq!(
        world.node("without").budget.ceilings.limit.cost_usd,
        Usd::from_cents(70),
        "the ceiling is what the parent has left"
    );
}

#[test]
fn b6_a_ceiling_does_not_depend_on_the_calls_in_flight() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.hold(&lease, "c1", cents(90)).unwrap();
    world.spawn(&lease, json!({"goal": "x", "child_id": "a"})).unwrap();
    assert_eq!(world.node("a").budget.ceilings.limit.cost_usd, Usd::from_cents(100));
}

#[test]
fn b6_a_grant_is_carved_out_guaranteed_and_its_rest_returns() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world
        .spawn(&root, json!({"goal": "x", "child_id": "a", "max_cost_usd": 0.6, "funding": "granted"}))
        .unwrap();
    assert_eq!(world.node("root").budget.held, cents(60));
    assert!(world.hold(&root, "c1", cents(41)).is_err(), "the parent can't spend the grant");
    world.pay(&root, "c2", cents(39)).unwrap();
    let lease = world.claim("a");
    world.pay(&lease, "c1", cents(60)).unwrap();
    assert_eq!(["root", "a"].map(|c| world.spent_cents(c)), [99, 60]);
    assert_eq!(world.node("root").budget.held, cents(0), "a spent grant is not held");

    world
        .spawn(&root, json!({"goal": "y", "child_id": "b", "max_cost_usd": 0.01, "funding": "granted"}))
        .unwrap();
    assert_eq!(world.node("root").budget.held, cents(1));
    let lease = world.claim("b");
    world.complete(&lease, "free").unwrap();
    assert_eq!(world.node("root").budget.held, cents(0), "the unspent part returned at the end");
}

#[test]
fn b6_a_grant_that_does_not_fit_is_refused_not_shrunk() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    let grant =
        |n: &str, usd: f64| json!({"goal": n, "child_id": n, "max_cost_usd": usd, "funding": "granted"});
    world.spawn(&root, grant("a", 0.7)).unwrap();
    let refused = world.spawn(&root, grant("b", 0.31)).unwrap_err();
    assert!(matches!(refused, Refusal::NotGranted(ref d) if d.left_usd == Usd::from_cents(30)), "{refused}");
    assert!(refused.to_string().starts_with("a grant of $0.31 was denied"), "{refused}");
    assert!(world.trace.context(&id("b")).is_none());
    world.spawn(&root, grant("b", 0.3)).unwrap();
    let refused = world.spawn(&root, json!({"goal": "c", "child_id": "c"})).unwrap_err();
    assert!(matches!(refused, Refusal::NothingLeft { .. }), "everything is carved out: {refused}");
}

#[test]
fn b6_a_grant_in_a_shared_child_is_held_on_everyone_above() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world
        .spawn(&a, json!({"goal": "b", "child_id": "b", "max_cost_usd": 0.8, "funding": "granted"}))
        .unwrap();
    assert_eq!(["root", "a"].map(|c| world.node(c).budget.held), [cents(80), cents(80)]);
    assert!(world.hold(&root, "c1", cents(21)).is_err());
    let b = world.claim("b");
    world.hold(&b, "c1", cents(80)).unwrap();
    assert_eq!(world.node("root").budget.held, cents(80), "the amount is held once");
    world.settle(&b, "c1", cents(50)).unwrap();
    assert_eq!((world.node("root").budget.held, world.spent_cents("root")), (cents(30), 50));
}

#[test]
fn b7_descendants_can_not_hold_the_closing_reserve() {
    let mut world = World::with_root(json!({"max_cost_usd": 1, "closing_reserve_usd": 0.2}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    assert!(world.hold(&a, "c1", cents(81)).is_err());
    world.pay(&a, "c2", cents(80)).unwrap();
    assert_eq!(world.node("root").lifecycle.exhausted, None, "the parent is not exhausted");
    assert!(matches!(world.spawn(&root, json!({"goal": "b"})).unwrap_err(), Refusal::NothingLeft { .. }));
    world.complete(&a, "done").unwrap();
    let denied = world.hold(&root, "more", cents(1)).unwrap_err();
    assert!(matches!(denied, Refusal::Denied(_)), "ordinary calls can't use the reserve");
    world.hold_to_close(&root, "last", cents(20)).unwrap();
    world.settle(&root, "last", cents(15)).unwrap();
    world.report(&root, Verdict::LastReport(Payload::Inline(Json::from("as far as I came")))).unwrap();
    assert_eq!(world.status("root"), "aborted", "a last report is not a complete result");
    let end = world.node("root").end().unwrap().clone();
    assert_eq!(end.details.result, Some(Payload::Inline(Json::from("as far as I came"))));
    assert!(end.details.reason.unwrap().contains("last report"));
}

#[test]
fn b7_a_parent_gets_the_last_report_of_a_child_marked_as_such() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world.report(&root, Verdict::Waiting { children: vec!["a".parse().unwrap()], hand_over: false }).unwrap();
    world.report(&a, Verdict::LastReport(Payload::Inline(Json::from("half")))).unwrap();
    let work = world.work(&id("root")).unwrap();
    assert_eq!(work.children[0].status, EndStatus::Aborted);
    assert_eq!(work.children[0].result, Some(Payload::Inline(Json::from("half"))));
    assert!(work.children[0].error.as_ref().unwrap().contains("budget"));
}

#[test]
fn b10_a_call_of_unknown_cost_is_booked_at_its_hold_and_corrected_later() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "c1", cents(30)).unwrap();
    world.forfeit(&root, "c1").unwrap();
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.held, budget.estimated), (cents(30), Amount::ZERO, cents(30)));
    assert_eq!(world.forfeit(&root, "c1").unwrap(), [], "a second forfeit changes nothing");
    assert!(matches!(world.forfeit(&root, "c2").unwrap_err(), Refusal::NoHold(_)));
    world.settle(&root, "c1", cents(12)).unwrap();
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.estimated), (cents(12), Amount::ZERO));
}

#[test]
fn b7_a_grant_can_not_take_the_reserve_either() {
    let mut world = World::with_root(json!({"max_cost_usd": 1, "closing_reserve_usd": 0.2}));
    let root = world.claim("root");
    let grant = |usd: f64| json!({"goal": "a", "child_id": "a", "max_cost_usd": usd, "funding": "granted"});
    assert!(world.spawn(&root, grant(0.81)).is_err());
    world.spawn(&root, grant(0.8)).unwrap();
}

#[test]
fn b8_pause_parks_without_a_worker_and_a_raise_resumes() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.pay(&root, "c1", cents(10)).unwrap();
    assert_eq!(world.status("a"), "paused", "a queued context is parked at once");
    assert!(!world.trace.snapshot(world.node("root")).aborted);
    let halted = world.hold(&root, "c2", cents(1)).unwrap_err();
    assert!(matches!(halted, Refusal::Halted { pause: true, .. }));
    world.report(&root, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("root"), "paused");
    assert!(world.try_claim("root").is_err(), "a paused context can't be claimed");

    // A raise comes days later, and is delivered twice: the second changes nothing.
    world.pass(3 * 24 * 3600 * 1000);
    assert_eq!(world.status("root"), "paused");
    world.raise("root", 100).unwrap();
    assert_eq!(world.raise("root", 100).unwrap(), []);
    assert_eq!(["root", "a"].map(|c| world.status(c)), ["working", "working"]);
    let again = world.claim("root");
    world.pay(&again, "c2", cents(5)).unwrap();
    world.complete(&again, "ok").unwrap();
    assert_eq!(world.node("root").retries(), 0, "a pause is not a retry");
    world.rest();
}

/// proves: a raise without any amount is a mistake of its sender. It is refused and not stored.
#[test]
fn b8_a_raise_of_nothing_is_refused() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let nothing = Raise { child_id: id("root"), max_cost_usd: None, max_tokens: None };
    let refused = world.handle(Command::Raise(nothing)).unwrap_err();
    assert!(matches!(refused, Refusal::Malformed(_)), "{refused}");
    assert!(refused.to_string().contains("give `max_cost_usd`, `max_tokens` or both"), "{refused}");
}

#[test]
fn b8_only_raises_are_taken_and_not_past_the_parent() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.5})).unwrap();
    world
        .spawn(&root, json!({"goal": "b", "child_id": "b", "max_cost_usd": 0.4, "funding": "granted"}))
        .unwrap();
    assert!(matches!(world.raise("a", 40).unwrap_err(), Refusal::NotARaise { .. }));
    assert!(matches!(world.raise("a", 101).unwrap_err(), Refusal::RaiseParentFirst { .. }));
    world.raise("a", 100).unwrap();
    assert_eq!(world.node("root").budget.held, cents(40));
    world.raise("b", 100).unwrap();
    assert_eq!(world.node("root").budget.held, cents(100), "a raised grant is carved out too");
    world.raise("root", 200).unwrap();
    world.pay(&root, "c1", cents(1)).unwrap();
    assert!(
        matches!(world.raise("b", 200).unwrap_err(), Refusal::NotGranted(_)),
        "only 99 cents are left to carve"
    );
    world.raise("b", 199).unwrap();
    assert_eq!(world.node("root").budget.held, cents(199));
}

#[test]
fn b9_a_cost_is_booked_once_for_any_number_and_order_of_reports() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world.hold(&a, "c1", cents(10)).unwrap();
    // The result arrives before the cost, and the parent also ends before the cost.
    world.complete(&a, "ok").unwrap();
    world.complete(&root, "ok").unwrap();
    for _ in 0..3 {
        world.settle(&a, "c1", cents(7)).unwrap();
    }
    assert_eq!(["root", "a"].map(|c| world.spent_cents(c)), [7, 7]);
    let conflict = world.settle(&a, "c1", cents(8)).unwrap_err();
    assert!(matches!(conflict, Refusal::CallConflict(_)), "the first amount was changed: {conflict}");
    world.rest();
    assert_eq!(world.spent_cents("root"), 7);
}

#[test]
fn b9_a_cost_that_was_never_held_is_booked_once_all_the_same() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    world.settle(&root, "unknown", cents(15)).unwrap();
    world.settle(&root, "unknown", cents(15)).unwrap();
    let budget = world.trace.snapshot(world.node("root")).budget;
    assert_eq!((budget.spent, budget.disputed), (cents(10), cents(5)));
    assert!(world.node("root").lifecycle.exhausted.is_some());
}

#[test]
fn b9_the_same_hold_twice_is_one_hold() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "c1", cents(10)).unwrap();
    assert_eq!(world.hold(&root, "c1", cents(10)).unwrap(), []);
    assert!(matches!(world.hold(&root, "c1", cents(11)).unwrap_err(), Refusal::CallConflict(_)));
    assert_eq!(world.node("root").budget.held, cents(10));
    world.release(&root, "c1").unwrap();
    assert_eq!(world.release(&root, "c1").unwrap(), []);
    assert!(matches!(world.release(&root, "c2").unwrap_err(), Refusal::NoHold(_)));
}

#[test]
fn b10_a_successor_adopts_what_its_journal_shows_and_the_rest_is_forfeited() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let first = world.claim("root");
    world.hold(&first, "known", cents(10)).unwrap();
    world.hold(&first, "unknown", cents(20)).unwrap();
    world.pass(10_000);
    let second = world.claim("root");
    assert_eq!(world.node("root").budget.held, cents(30), "a call of unknown cost keeps its hold");
    world.resume(&second, &[("known", cents(4))]).unwrap();
    assert_eq!(world.resume(&second, &[("known", cents(4))]).unwrap(), [], "a second resume changes nothing");
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.estimated, budget.held), (cents(24), cents(20), cents(0)));
    // The real cost of the older attempt arrives later and corrects the estimate.
    world.settle(&first, "unknown", cents(3)).unwrap();
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.estimated), (cents(7), cents(0)));
}

#[test]
fn b10_holds_without_a_report_are_booked_after_the_grace() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "c1", cents(10)).unwrap();
    world.cancel(None).unwrap();
    assert_eq!(world.node("root").budget.held, cents(10), "the call may still be in flight");
    world.pass(12_999);
    assert_eq!(world.node("root").budget.held, cents(10));
    world.pass(1);
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.estimated, budget.held), (cents(10), cents(10), cents(0)));
    world.settle(&root, "c1", cents(12)).unwrap();
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.estimated, budget.uncovered), (cents(12), cents(0), cents(2)));
    world.rest();
}

#[test]
fn b11_a_charge_needs_no_hold_and_counts_once_also_after_the_end() {
    let (mut world, _) = three_levels(100, 60, 30);
    for _ in 0..2 {
        world.charge("b", "invoice-1", cents(20)).unwrap();
    }
    assert_eq!(["root", "a", "b"].map(|c| world.spent_cents(c)), [20, 20, 20]);
    assert!(matches!(world.charge("b", "invoice-1", cents(1)).unwrap_err(), Refusal::CallConflict(_)));
    world.cancel(None).unwrap();
    world.charge("b", "invoice-2", cents(1)).unwrap();
    assert_eq!(world.spent_cents("root"), 21, "spent money is booked, even in an ended context");
}

#[test]
fn b11_the_keys_of_charges_and_the_ids_of_calls_are_apart() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.charge("root", "1-1", cents(5)).unwrap();
    world.pay(&root, "1-1", cents(7)).unwrap();
    world.charge("root", "1-1", cents(5)).unwrap();
    assert_eq!(world.spent_cents("root"), 12);
}

#[test]
fn b11_a_provider_that_takes_more_than_the_hold_is_booked_and_shown() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    world.hold(&root, "c1", cents(10)).unwrap();
    world.settle(&root, "c1", cents(13)).unwrap();
    let budget = world.trace.snapshot(world.node("root")).budget;
    assert_eq!((budget.spent, budget.overspent), (cents(13), cents(3)));
}

#[test]
fn b11_the_books_do_not_overflow() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let million = Amount::cost(Usd::MAX);
    for call in ["a", "b"] {
        world.hold(&root, call, cents(1)).unwrap();
        world.release(&root, call).unwrap();
    }
    for n in 0..8 {
        world.charge("root", &format!("k{n}"), million).unwrap();
    }
    assert_eq!(world.charge("root", "k8", million).unwrap_err(), Refusal::BooksFull);
    // A trace with a sum above a million can still be stored and read.
    world.check_replay();
    let sums = [("a", million), ("b", million)];
    assert_eq!(
        world.resume(&root, &sums).unwrap_err(),
        Refusal::BooksFull,
        "many costs together are refused too"
    );
}

#[test]
fn b12_an_abort_reaches_what_is_queued_and_parked_beneath() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    for child in ["running", "queued", "asking"] {
        world.spawn(&root, json!({"goal": child, "child_id": child})).unwrap();
    }
    let asking = world.claim("asking");
    world.ask_human(&asking, "which?").unwrap();
    let running = world.claim("running");
    world.pay(&running, "c1", cents(10)).unwrap();
    assert_eq!(["running", "queued", "asking"].map(|c| world.status(c)), ["working", "aborted", "aborted"]);
    world.wait(&root, &["running", "queued", "asking"]).unwrap();
    world.complete(&running, "paid for").unwrap();
    assert_eq!(world.status("root"), "aborted", "a paused context that can't call any more is aborted");
    world.rest();
}

#[test]
fn b14_a_snapshot_shows_all_fields() {
    let (mut world, [root, a, _]) = three_levels(100, 60, 30);
    world.pay(&a, "c1", cents(10)).unwrap();
    world.hold(&root, "c2", cents(5)).unwrap();
    let snapshot = serde_json::to_value(world.trace.snapshot(world.node("root"))).unwrap();
    let expect = |path: &str, value: Value| assert_eq!(snapshot.pointer(path), Some(&value), "{path}");
    expect("/budget/limit/cost_usd", json!(1.0));
    expect("/budget/spent/cost_usd", json!(0.1));
    expect("/budget/own/cost_usd", json!(0.0));
    expect("/budget/held/cost_usd", json!(0.05));
    expect("/budget/remaining/cost_usd", json!(0.85));
    expect("/parent_id", Value::Null);
    expect("/children", json!(["a"]));
    expect("/steps", json!(0));
    expect("/retries", json!(0));
    expect("/aborted", json!(false));
    expect("/status", json!("working"));
    let child = serde_json::to_value(world.trace.snapshot(world.node("a"))).unwrap();
    assert_eq!(child["parent_id"], "root");
    assert_eq!(child["budget"]["own"]["cost_usd"], 0.1);
}

/// B16, as the core decides it: a worker reports that a check halted its agent.
#[test]
fn a_halt_that_a_check_reports_ends_the_agent_as_aborted() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.report(&root, Verdict::Halted { check: "pii".into(), reason: "a name".into() }).unwrap();
    let snapshot = world.trace.snapshot(world.node("root"));
    assert!(snapshot.aborted && snapshot.reason.unwrap().contains("pii"));
    assert_eq!(world.status("root"), "aborted");
}

#[test]
fn acceptance_a_hundred_calls_of_ten_cents_under_five_dollars_exactly_fifty() {
    let mut world = World::with_root(json!({"max_cost_usd": 5}));
    let root = world.claim("root");
    let leases: Vec<_> = (0..100)
        .map(|n| {
            let name = format!("agent-{n}");
            world.spawn(&root, json!({"goal": name, "child_id": name})).unwrap();
            world.claim(&name)
        })
        .collect();
    let mut admit = |lease| matches!(world.hold(lease, "c1", cents(10)).as_deref(), Ok([Event::Held { .. }]));
    let admitted: Vec<bool> = leases.iter().map(&mut admit).collect();
    assert_eq!(admitted.iter().filter(|ok| **ok).count(), 50);
    for (lease, _) in leases.iter().zip(&admitted).filter(|(_, ok)| **ok) {
        world.settle(lease, "c1", cents(10)).unwrap();
    }
    assert_eq!(world.spent_cents("root"), 500);
    assert!(leases.iter().all(|lease| world.hold(lease, "c2", cents(10)).is_err()));
}

#[test]
fn acceptance_two_hundred_children_on_a_budget_for_ten() {
    for funding in ["shared", "granted"] {
        let mut world = World::new();
        world.settings.limits.max_children = 1000;
        world.submit(json!({"goal": "all", "child_id": "root", "max_cost_usd": 1})).unwrap();
        let root = world.claim("root");
        let mut spawned = Vec::new();
        for n in 0..200 {
            let name = format!("agent-{n}");
            let child = json!({"goal": name, "child_id": name, "max_cost_usd": 0.1, "funding": funding});
            if world.spawn(&root, child).is_ok() {
                spawned.push(name);
            }
        }
        let mut ran = 0;
        for name in &spawned {
            let Ok(lease) = world.try_claim(name) else { continue };
            if world.pay(&lease, "c1", cents(10)).is_ok() {
                ran += 1;
                world.complete(&lease, "ok").unwrap();
            }
        }
        assert_eq!((ran, world.spent_cents("root")), (10, 100), "{funding}");
        let expected = if funding == "granted" { 10 } else { 200 };
        assert_eq!(spawned.len(), expected, "{funding}");
    }
}

#[test]
fn a_settled_call_keeps_its_hold_and_its_cost() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.hold(&root, "c1", cents(5)).unwrap();
    let events = world.settle(&root, "c1", cents(2)).unwrap();
    assert!(matches!(events.as_slice(), [Event::Settled { amount, .. }] if *amount == cents(2)));
    let call = world.node("root").calls.kept().get("c1").unwrap();
    assert_eq!((call.held, call.state), (cents(5), CallState::Settled(cents(2))));
}
