//! Disputed charges (B18): a cost without a hold is booked as far as money is left; the rest waits
//! for a decision.

use domain::{
    Amount, Usd,
    wire::{DecideDispute, Decision, Dispute, DisputedCost, Sender, Verdict},
};
use serde_json::json;
use trace::{Command, Event, Refusal};
use world::{World, cents, id};

/// Spent, held and disputed, in cents.
fn books(world: &World, child: &str) -> [u64; 3] {
    let budget = &world.node(child).budget;
    [budget.spent, budget.held, budget.disputed].map(|amount| amount.cost_usd.nanos() / 10_000_000)
}

fn decide(world: &mut World, child: &str, number: u32, decision: Decision) -> Result<Vec<Event>, Refusal> {
    world.handle(Command::DecideDispute(DecideDispute { child_id: id(child), number, decision }))
}

#[test]
fn b18_a_charge_is_booked_as_far_as_something_is_left() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "c", cents(30)).unwrap();
    for _ in 0..2 {
        world.charge("root", "invoice", cents(100)).unwrap();
    }
    assert_eq!(
        books(&world, "root"),
        [70, 30, 30],
        "the hold is unchanged, and a second charge changes nothing"
    );
    assert!(matches!(world.charge("root", "invoice", cents(70)).unwrap_err(), Refusal::CallConflict(_)));
    world.settle(&root, "c", cents(10)).unwrap();
    assert_eq!(books(&world, "root"), [80, 0, 30], "the charge stays disputed until a decision");
    let budget = world.trace.snapshot(world.node("root")).budget;
    assert_eq!((budget.overspent, budget.disputed), (cents(0), cents(30)));
}

#[test]
fn b18_a_cost_of_a_worker_that_held_nothing_is_bounded_by_every_ancestor() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.6})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b", "max_cost_usd": 0.6})).unwrap();
    let (a, b) = (world.claim("a"), world.claim("b"));
    world.settle(&a, "own", cents(90_000)).unwrap();
    world.settle(&b, "own", cents(90_000)).unwrap();
    assert_eq!(["root", "a", "b"].map(|c| world.spent_cents(c)), [100, 60, 40]);
    assert_eq!(books(&world, "root")[2], 90_000 + 90_000 - 100);
    let shown = world.trace.snapshot(world.node("b")).disputes;
    let sent_by = Sender::Worker { worker_id: world.node("b").attempts[0].worker_id.clone(), attempt: 1 };
    let of = DisputedCost::Call("own".parse().unwrap());
    let amount = cents(90_000 - 40);
    assert_eq!(shown, [Dispute { number: 1, amount, of, sent_by, at: world.now, decision: None }]);
    assert_eq!(world.settle(&b, "own", cents(90_000)).unwrap(), [], "the same cost again changes nothing");
    assert!(matches!(world.settle(&b, "own", cents(40)).unwrap_err(), Refusal::CallConflict(_)));
}

#[test]
fn b18_a_grant_pays_for_its_own_and_no_more() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    let granted = json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.01, "funding": "granted"});
    world.spawn(&root, granted).unwrap();
    // The whole remainder is held; the grant can still pay.
    world.hold(&root, "c", cents(99)).unwrap();
    let a = world.claim("a");
    world.settle(&a, "own", cents(90_000_000)).unwrap();
    assert_eq!(books(&world, "a"), [1, 0, 89_999_999]);
    assert_eq!(books(&world, "root"), [1, 99, 89_999_999]);
    assert_eq!(world.status("a"), "working", "a working context is halted only at its next call");
    world.complete(&a, "done").unwrap();
    world.settle(&root, "c", cents(0)).unwrap();
    // After its end the grant is returned: the parent pays, if it can.
    world.charge("a", "late", cents(5)).unwrap();
    assert_eq!(books(&world, "a"), [1, 0, 90_000_004], "its own ceiling still applies");
}

#[test]
fn b18_an_administrator_accepts_or_drops_it_once() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.charge("root", "one", cents(150)).unwrap();
    world.charge("root", "two", cents(7)).unwrap();
    assert_eq!(books(&world, "root"), [100, 0, 57]);
    assert!(matches!(decide(&mut world, "root", 3, Decision::Dropped), Err(Refusal::NoDispute { .. })));

    decide(&mut world, "root", 1, Decision::Accepted).unwrap();
    assert_eq!(books(&world, "root"), [150, 0, 7]);
    let budget = world.trace.snapshot(world.node("root")).budget;
    assert_eq!(
        (budget.overspent, budget.own),
        (cents(50), cents(150)),
        "the snapshot shows the overspent amount"
    );
    decide(&mut world, "root", 2, Decision::Dropped).unwrap();
    assert_eq!(books(&world, "root"), [150, 0, 0]);

    assert_eq!(decide(&mut world, "root", 1, Decision::Accepted).unwrap(), []);
    let other = decide(&mut world, "root", 1, Decision::Dropped).unwrap_err();
    assert!(matches!(other, Refusal::DisputeDecided { .. }));
    assert_eq!(world.charge("root", "one", cents(150)).unwrap(), [], "the charge itself is still known");
    world.cancel(None).unwrap();
    drop(root);
    world.rest();
}

#[test]
fn b18_an_accepted_charge_uses_up_the_budget() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.hold(&root, "c", cents(60)).unwrap();
    world.charge("a", "invoice", cents(100)).unwrap();
    world.settle(&root, "c", cents(0)).unwrap();
    assert_eq!((books(&world, "root"), world.node("root").lifecycle.exhausted), ([40, 0, 60], None));
    decide(&mut world, "a", 1, Decision::Accepted).unwrap();
    assert!(world.node("root").lifecycle.exhausted.is_some());
    assert!(matches!(world.hold(&root, "d", cents(1)).unwrap_err(), Refusal::Halted { .. }));
    assert_eq!(world.status("a"), "aborted", "a queued descendant is aborted");
}

#[test]
fn b18_b20_a_decision_after_the_outcome_is_an_event_of_its_own() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.settle(&root, "own", cents(500)).unwrap();
    world.complete(&root, "done").unwrap();
    let outcome = world.trace.outcome(&id("root")).unwrap();
    assert_eq!((outcome.context.budget.spent, outcome.context.budget.disputed), (cents(100), cents(400)));
    let events = decide(&mut world, "root", 1, Decision::Accepted).unwrap();
    assert!(matches!(&events[..], [Event::DisputeDecided { .. }]), "{events:?}");
    assert_eq!(books(&world, "root"), [500, 0, 0]);
}

#[test]
fn b18_costs_in_one_resume_share_the_remaining_budget() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    let sums = [("a", cents(70)), ("b", cents(70)), ("c", cents(70))];
    for (call, _) in sums {
        world.hold(&root, call, cents(1)).unwrap();
        world.release(&root, call).unwrap();
    }
    world.resume(&root, &sums).unwrap();
    assert_eq!(books(&world, "root"), [100, 0, 110]);
    assert_eq!(world.resume(&root, &sums).unwrap(), [], "a second resume changes nothing");
}

/// Without this bound one message could add a hundred thousand costs, each with a dispute.
#[test]
fn s6_b18_a_successor_can_settle_only_held_calls() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "a", cents(10)).unwrap();
    let refusal = world.resume(&root, &[("a", cents(10)), ("unheard-of", cents(1))]).unwrap_err();
    assert_eq!(refusal, Refusal::NoHold("unheard-of".parse().unwrap()));
    assert_eq!(books(&world, "root"), [0, 10, 0]);
}

#[test]
fn b18_a_cost_after_its_hold_was_released_had_no_hold() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    world.hold(&root, "c", cents(10)).unwrap();
    world.release(&root, "c").unwrap();
    world.hold(&root, "d", cents(8)).unwrap();
    world.settle(&root, "c", cents(10)).unwrap();
    assert_eq!(books(&world, "root"), [2, 8, 8]);
}

#[test]
fn b18_a_cost_whose_hold_waits_in_the_line_leaves_it() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    world.hold(&root, "flying", cents(8)).unwrap();
    world.hold(&root, "own", cents(5)).unwrap();
    assert_eq!(world.node("root").lifecycle.waiting.len(), 1);
    world.settle(&root, "own", cents(5)).unwrap();
    assert_eq!((world.node("root").lifecycle.waiting.len(), books(&world, "root")), (0, [2, 8, 3]));
}

#[test]
fn b18_the_sum_of_disputes_has_a_bound() {
    let mut world = World::with_root(json!({}));
    world.claim("root");
    let million = Amount::cost(Usd::MAX);
    for n in 0..8 {
        world.charge("root", &format!("k{n}"), million).unwrap();
    }
    assert_eq!(world.charge("root", "k8", million).unwrap_err(), Refusal::BooksFull);
    for n in 1..=8 {
        decide(&mut world, "root", n, Decision::Accepted).unwrap();
    }
    world.check_replay();
}

#[test]
fn b18_costs_beyond_holds_leave_less_for_costs_without_a_hold() {
    let sums = [("held", cents(60)), ("own", cents(90))];
    let one_by_one = {
        let mut world = World::with_root(json!({"max_cost_usd": 1}));
        let root = world.claim("root");
        world.hold(&root, "held", cents(10)).unwrap();
        sums.iter().for_each(|(call, amount)| drop(world.settle(&root, call, *amount).unwrap()));
        books(&world, "root")
    };
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "held", cents(10)).unwrap();
    world.hold(&root, "own", cents(10)).unwrap();
    world.release(&root, "own").unwrap();
    world.resume(&root, &sums).unwrap();
    assert_eq!((books(&world, "root"), one_by_one), ([100, 0, 50], [100, 0, 50]));
}

#[test]
fn b18_disputes_do_not_keep_the_costs_of_others_out_of_the_books() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.01})).unwrap();
    let a = world.claim("a");
    // The largest sum that can be disputed.
    for (n, cents_of) in std::iter::repeat_n(100_000_000, 8).chain([38_860_801]).enumerate() {
        world.settle(&a, &format!("own{n}"), cents(cents_of)).unwrap();
    }
    assert_eq!(world.settle(&a, "more", cents(100)).unwrap_err(), Refusal::BooksFull);
    world.hold(&root, "call", cents(30)).unwrap();
    world.settle(&root, "call", cents(20)).unwrap();
    assert_eq!((books(&world, "root")[0], books(&world, "root")[1]), (21, 0));
}

#[test]
fn b18_a_decision_for_which_the_books_have_no_room_is_refused() {
    let mut world = World::with_root(json!({"max_cost_usd": 1_000_000}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.01})).unwrap();
    let a = world.claim("a");
    for n in 0..8 {
        world.settle(&a, &format!("own{n}"), cents(100_000_000)).unwrap();
    }
    world.hold(&root, "call", cents(99_999_999)).unwrap();
    world.forfeit(&root, "call").unwrap();
    for n in 1..=7 {
        decide(&mut world, "a", n, Decision::Accepted).unwrap();
    }
    assert_eq!(decide(&mut world, "a", 8, Decision::Accepted).unwrap_err(), Refusal::BooksFull);
    decide(&mut world, "a", 8, Decision::Dropped).unwrap();
}

/// The cost arrives after the context parked in the queue for that call: its turn never comes, so
/// the cost must wake it.
#[test]
fn b18_a_context_that_parked_for_a_call_goes_on_when_the_cost_of_the_call_comes() {
    for ending in ["is cancelled", "goes on"] {
        let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
        let root = world.claim("root");
        world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
        let a = world.claim("a");
        world.hold(&root, "flying", cents(8)).unwrap();
        world.hold(&a, "own", cents(5)).unwrap();
        world.report(&a, Verdict::OutOfBudget).unwrap();
        assert_eq!(world.status("a"), "paused");
        world.settle(&a, "own", cents(5)).unwrap();
        assert_eq!((world.node("a").lifecycle.waiting.len(), books(&world, "root")), (0, [2, 8, 3]));
        if ending == "goes on" {
            assert_eq!(world.status("a"), "working", "the context is queued again");
            let again = world.claim("a");
            world.complete(&again, "done").unwrap();
        }
        world.cancel(None).unwrap();
        world.settle(&root, "flying", cents(1)).unwrap();
        world.rest();
    }
}

#[test]
fn b18_b8_a_context_that_parked_for_a_call_and_has_its_cost_waits_for_a_raise_if_nothing_is_left() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world.hold(&root, "flying", cents(8)).unwrap();
    world.hold(&a, "own", cents(5)).unwrap();
    world.report(&a, Verdict::OutOfBudget).unwrap();
    world.charge("root", "invoice", cents(2)).unwrap();
    world.settle(&root, "flying", cents(8)).unwrap();
    world.settle(&a, "own", cents(5)).unwrap();
    assert_eq!((world.status("a"), books(&world, "root")), ("paused".into(), [10, 0, 5]));
    assert_eq!(world.node("a").lifecycle.waiting_for_humans, 1);
    world.raise("root", 50).unwrap();
    assert_eq!((world.status("a"), world.node("root").lifecycle.waiting_for_humans), ("working".into(), 0));
    let again = world.claim("a");
    world.pay(&again, "next", cents(30)).unwrap();
    world.complete(&again, "done").unwrap();
    world.cancel(None).unwrap();
    world.rest();
}

/// proves: a ceiling is exceeded by no more than the largest hold, however many calls report a cost
/// above their holds.
#[test]
fn b18_costs_beyond_holds_are_bounded_for_all_calls_together() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    let calls: Vec<String> = (1..=10).map(|number| format!("c{number}")).collect();
    for (number, call) in calls.iter().enumerate() {
        let lease = if number % 2 == 0 { &root } else { &a };
        world.hold(lease, call, cents(10)).unwrap();
    }
    for (number, call) in calls.iter().enumerate() {
        let lease = if number % 2 == 0 { &root } else { &a };
        for _ in 0..2 {
            world.settle(lease, call, cents(20)).unwrap();
        }
    }
    assert_eq!(books(&world, "root"), [110, 0, 90], "one of ten calls is paid beyond its hold");
    let budget = world.trace.snapshot(world.node("root")).budget;
    assert_eq!(budget.overspent, cents(10));
}

/// proves: the same for grants: what several grants exceed adds up at the ceiling above them, and
/// is bounded there.
#[test]
fn b18_b11_costs_beyond_grants_are_bounded_for_all_grants_together() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    let children = ["a", "b", "c", "d"];
    for child in children {
        let granted = json!({"goal": "g", "child_id": child, "max_cost_usd": 0.25, "funding": "granted"});
        world.spawn(&root, granted).unwrap();
    }
    let leases = children.map(|child| world.claim(child));
    for (lease, child) in leases.iter().zip(children) {
        world.hold(lease, child, cents(25)).unwrap();
    }
    for (lease, child) in leases.iter().zip(children) {
        world.settle(lease, child, cents(50)).unwrap();
    }
    assert_eq!(
        books(&world, "root"),
        [125, 0, 75],
        "the first is paid beyond its hold, the others are disputed"
    );
    assert_eq!(world.trace.snapshot(world.node("root")).budget.overspent, cents(25));
}
