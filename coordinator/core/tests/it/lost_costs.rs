//! The store loses commits with costs, and others replace them before the loss is noticed. Both are
//! in the log.

use domain::{Amount, CallId, Usd, wire::Lease};
use serde_json::json;
use trace::{CallState, Command, LoggedEvents, LostCost, Replay, Trace, logged};
use world::{World, cents};

use super::log_cuts::commits;

/// A running root with a budget of one dollar and one open hold.
fn begun() -> (World, Lease) {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.hold(&lease, "1-1", cents(10)).unwrap();
    (world, lease)
}

/// The world of `stands`, and the lost costs that a replay of the log reports. The log has the
/// commits of `lost`, and five seconds later those of `stands`.
fn rebuilt(
    lost: impl FnOnce(&mut World, &Lease),
    stands: impl FnOnce(&mut World, &Lease),
) -> (World, Vec<LostCost>) {
    let (mut first, lease) = begun();
    lost(&mut first, &lease);
    let (mut second, lease) = begun();
    second.pass(5_000);
    stands(&mut second, &lease);
    let log = [commits(&first), commits(&second)].concat().concat();
    let (trace, _, missed) = Replay::with_lost(Trace::new(second.trace.id()), log.clone());
    assert_eq!(trace.version(), second.trace.version());
    // A store that already has the trace lacks the same costs.
    let (again, _, of_stored) = Replay::with_lost(trace.clone(), log);
    assert_eq!((&again, &of_stored), (&trace, &missed));
    (second, missed)
}

fn book(world: &mut World, missed: &[LostCost]) {
    for cost in missed {
        world.handle(Command::BookLost(cost.clone())).unwrap();
    }
    let version = world.trace.version();
    for cost in missed {
        world.handle(Command::BookLost(cost.clone())).unwrap();
    }
    assert_eq!(world.trace.version(), version, "each cost is booked once");
}

/// Ends the run and checks its books.
fn end(mut world: World) {
    world.cancel(None).unwrap();
    world.rest();
}

fn state(world: &World, call: &str) -> Option<CallState> {
    let id: CallId = call.parse().unwrap();
    world.node("root").calls.kept().get(&id).map(|call| call.state)
}

#[test]
fn b5_costs_in_commits_that_do_not_count_are_booked_once() {
    let (mut world, missed) = rebuilt(
        |lost, lease| {
            lost.settle(lease, "1-1", cents(5)).unwrap();
            lost.pay(lease, "1-2", cents(3)).unwrap();
            lost.hold(lease, "1-3", cents(10)).unwrap();
            lost.release(lease, "1-3").unwrap();
            lost.hold(lease, "1-4", cents(20)).unwrap();
            lost.charge("root", "k", cents(2)).unwrap();
        },
        |stands, lease| drop(stands.pay(lease, "1-5", cents(1)).unwrap()),
    );
    book(&mut world, &missed);
    assert_eq!(state(&world, "1-1"), Some(CallState::Settled(cents(5))));
    assert_eq!(state(&world, "1-2"), Some(CallState::Settled(cents(3))));
    assert_eq!(state(&world, "1-3"), None, "a released call has no cost");
    assert_eq!(state(&world, "1-4"), Some(CallState::Held), "the attempt of the call is live");
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.held), (cents(11), cents(20)));
    end(world);
}

#[test]
fn b5_a_lost_cost_is_reported_with_its_model() {
    let (mut world, missed) = rebuilt(
        |lost, lease| drop(lost.settle_with(lease, "1-1", cents(5), "large").unwrap()),
        |stands, lease| drop(stands.pay(lease, "1-5", cents(1)).unwrap()),
    );
    book(&mut world, &missed);
    let spent = world.summary().spent_by;
    let of_large = spent.iter().find(|one| one.model.as_ref().is_some_and(|model| model.as_str() == "large"));
    assert_eq!(of_large.map(|one| one.cost_usd), Some(Usd::from_cents(5)), "{spent:#?}");
    end(world);
}

#[test]
fn b5_calls_of_an_attempt_that_is_lost_too_are_booked_under_ids_of_their_own() {
    let child = |world: &mut World, lease: &Lease, id: &str| {
        world.spawn(lease, json!({"goal": "a", "child_id": id})).unwrap();
        world.claim(id)
    };
    let (mut world, missed) = rebuilt(
        |lost, lease| {
            for id in ["a", "b"] {
                let lease = child(lost, lease, id);
                lost.pay(&lease, "1-1", cents(3)).unwrap();
                lost.hold(&lease, "1-2", cents(4)).unwrap();
            }
        },
        |stands, lease| {
            let lease = child(stands, lease, "a");
            stands.pay(&lease, "1-1", cents(7)).unwrap();
            stands.hold(&lease, "1-2", cents(8)).unwrap();
        },
    );
    book(&mut world, &missed);
    // `b` is unknown in the rebuilt trace, so its root pays.
    let [root, a] = ["root", "a"].map(|child| &world.node(child).budget);
    assert_eq!((a.spent, a.estimated, a.held), (cents(7 + 3 + 4), cents(4), cents(8)));
    assert_eq!((root.spent, root.estimated), (cents(7 + 2 * (3 + 4)), cents(8)));
    let lease = world.lease(&"a".parse().unwrap());
    world.settle(&lease, "1-2", cents(8)).unwrap();
    end(world);
}

/// The lost branch and the valid branch contain the same calls, which were folded in between.
#[test]
fn b9_a_lost_cost_of_a_folded_call_is_booked_once() {
    let small = Amount::cost(Usd::from_nanos(1_000));
    let (mut world, missed) = rebuilt(
        |lost, lease| {
            lost.settle(lease, "1-1", cents(5)).unwrap();
            lost.pay(lease, "1-2", small).unwrap();
            lost.pay(lease, "1-3", cents(1)).unwrap();
            lost.hold(lease, "1-4", cents(1)).unwrap();
            lost.hold(lease, "1-5", cents(1)).unwrap();
            lost.release(lease, "1-5").unwrap();
        },
        |stands, lease| {
            stands.settle(lease, "1-1", cents(5)).unwrap();
            for number in 2..=300 {
                stands.pay(lease, &format!("1-{number}"), small).unwrap();
            }
        },
    );
    let version = world.trace.version();
    assert!((1..=5).all(|number| state(&world, &format!("1-{number}")).is_none()), "the calls are folded");
    assert_eq!(missed.len(), 5);
    book(&mut world, &missed);
    assert_eq!(world.trace.version(), version);
    end(world);
}

/// A lost cost of sixty cents is booked as far as the other costs left money.
fn takes_forty_of_sixty(lost: impl FnOnce(&mut World, &Lease)) {
    let (mut world, missed) =
        rebuilt(lost, |stands, lease| drop(stands.pay(lease, "1-4", cents(50)).unwrap()));
    book(&mut world, &missed);
    let budget = &world.node("root").budget;
    assert_eq!((budget.spent, budget.held, budget.disputed), (cents(90), cents(10), cents(20)));
    end(world);
}

#[test]
fn b18_lost_costs_for_which_nothing_is_left_are_disputed() {
    takes_forty_of_sixty(|lost, lease| {
        lost.pay(lease, "1-2", cents(60)).unwrap();
        lost.hold(lease, "1-3", cents(25)).unwrap();
    });
}

/// A cost that a program pays itself has an id that is the same in every attempt.
#[test]
fn b9_a_cost_that_every_attempt_reports_is_booked_once() {
    let paid = |world: &mut World, lease: &Lease| {
        world.spawn(lease, json!({"goal": "a", "child_id": "a"})).unwrap();
        let lease = world.claim("a");
        world.pay(&lease, "external-k", cents(3)).unwrap();
    };
    let (mut world, missed) = rebuilt(paid, paid);
    book(&mut world, &missed);
    assert_eq!(world.node("a").budget.spent, cents(3));
    end(world);
}

#[test]
fn b18_a_lost_hold_of_a_lost_attempt_that_does_not_fit_is_disputed() {
    takes_forty_of_sixty(|lost, lease| {
        lost.spawn(lease, json!({"goal": "a", "child_id": "a"})).unwrap();
        let lease = lost.claim("a");
        lost.hold(&lease, "1-1", cents(60)).unwrap();
    });
}

/// Two losses: attempts with the same number were claimed in two branches, each with its own call.
#[test]
fn b5_each_branch_of_a_log_has_its_own_attempts() {
    let child = |world: &mut World, cost| {
        let (_, lease) = begun();
        world.spawn(&lease, json!({"goal": "a", "child_id": "a"})).unwrap();
        let lease = world.claim("a");
        world.pay(&lease, "1-1", cents(cost)).unwrap();
    };
    let [(mut first, _), (mut second, _), (mut third, lease)] = [begun(), begun(), begun()];
    child(&mut first, 3);
    second.pass(5_000);
    child(&mut second, 4);
    third.pass(9_000);
    third.pay(&lease, "1-5", cents(1)).unwrap();
    let log = [commits(&first), commits(&second), commits(&third)].concat().concat();
    let (_, _, missed) = Replay::with_lost(Trace::new(third.trace.id()), log);
    book(&mut third, &missed);
    assert_eq!(third.node("root").budget.spent, cents(3 + 4 + 1));
    end(third);
}

/// Messages of the log have expired or never came. Commits before a gap may belong to the valid
/// branch, so nothing is booked twice.
#[test]
fn b5_a_cost_that_may_be_booked_is_not_lost() {
    let (mut world, lease) = begun();
    world.settle(&lease, "1-1", cents(5)).unwrap();
    world.pay(&lease, "1-2", cents(3)).unwrap();
    let commits = commits(&world);
    let id = world.trace.id();
    let missed = |stored: &Trace, log: Vec<LoggedEvents>| Replay::with_lost(stored.clone(), log).2;
    let (stored, _) = Replay::all(Trace::new(id), commits.concat());
    for gone in 0..commits.len() {
        let log =
            commits.iter().enumerate().filter(|(place, _)| *place != gone).map(|(_, commit)| commit.clone());
        let log: Vec<LoggedEvents> = log.collect::<Vec<_>>().concat();
        assert_eq!(missed(&stored, log.clone()), [], "without commit {gone}");
        assert_eq!(missed(&stored, log[gone.min(log.len())..].to_vec()), []);
    }
    // The store has a commit that the log lacks.
    let mut ahead = stored.clone();
    let now = world.now.plus_millis(100);
    let events =
        ahead.handle(Command::Cancel { child_id: None, reason: None, without_undo: false }, now).unwrap();
    drop(logged(&mut ahead, events, now));
    assert_eq!(missed(&ahead, commits.concat()), []);
}
