//! When an outcome is final (B20): it is published once, when its context has no holds any more.

use domain::wire::Outcome;
use serde_json::json;
use trace::{Effect, Event, effects};
use world::{World, cents, id};

/// The contexts whose outcomes are published because of these events.
fn published(world: &World, events: &[Event]) -> Vec<String> {
    let outcome = |effect| if let Effect::Outcome { child_id } = effect { Some(child_id) } else { None };
    effects(&world.trace, events).into_iter().filter_map(outcome).map(|id| id.to_string()).collect()
}

fn outcome(world: &World, child: &str) -> Outcome {
    world.trace.outcome(&id(child)).expect("the context has ended")
}

#[test]
fn b20_an_outcome_waits_for_the_holds_of_its_context() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "1-1", cents(5)).unwrap();
    let events = world.complete(&root, "done").unwrap();
    assert_eq!(world.status("root"), "completed");
    assert_eq!(published(&world, &events), Vec::<String>::new(), "the outcome waits for the cost");

    let events = world.settle(&root, "1-1", cents(3)).unwrap();
    assert_eq!(published(&world, &events), ["root"]);
    let budget = outcome(&world, "root").context.budget;
    assert_eq!((budget.spent, budget.held), (cents(3), cents(0)));
    assert!(world.settle(&root, "1-1", cents(3)).unwrap().is_empty(), "the second delivery changes nothing");
    world.rest();
}

#[test]
fn b20_holds_that_stay_open_are_forfeited_and_the_outcome_shows_it() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "1-1", cents(5)).unwrap();
    world.cancel(None).unwrap();
    let grace = world.settings.hold_grace_ms;
    assert!(world.pass(grace - 1).is_empty());
    let events = world.pass(1);
    assert_eq!(published(&world, &events), ["root"]);
    let budget = outcome(&world, "root").context.budget;
    assert_eq!((budget.spent, budget.estimated, budget.held), (cents(5), cents(5), cents(0)));
    world.rest();
}

#[test]
fn b20_an_outcome_waits_for_the_holds_beneath_it_and_comes_after_theirs() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    for child in ["a", "b"] {
        let spawn = json!({"goal": child, "child_id": child, "max_cost_usd": 0.1, "funding": "granted"});
        world.spawn(&root, spawn).unwrap();
    }
    let (a, b) = (world.claim("a"), world.claim("b"));
    world.hold(&a, "1-1", cents(5)).unwrap();
    world.hold(&b, "1-1", cents(5)).unwrap();
    let events = world.complete(&root, "done").unwrap();
    assert_eq!(["root", "a", "b"].map(|c| world.status(c)), ["completed", "cancelled", "cancelled"]);
    assert_eq!(published(&world, &events), Vec::<String>::new());
    let events = world.settle(&a, "1-1", cents(1)).unwrap();
    assert_eq!(published(&world, &events), ["a"], "the root has a hold of `b` on it");
    let events = world.release(&b, "1-1").unwrap();
    assert_eq!(published(&world, &events), ["b", "root"]);
    assert_eq!(outcome(&world, "root").context.budget.spent, cents(1));
    world.rest();
}

#[test]
fn b20_after_the_outcome_only_estimates_are_corrected() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.hold(&root, "1-1", cents(5)).unwrap();
    world.hold(&root, "1-2", cents(7)).unwrap();
    world.complete(&root, "done").unwrap();
    world.pass(world.settings.hold_grace_ms);
    assert_eq!(world.spent_cents("root"), 12);

    let events = world.settle(&root, "1-1", cents(3)).unwrap();
    assert!(
        matches!(events.as_slice(), [Event::Corrected { amount, .. }] if *amount == cents(3)),
        "{events:?}"
    );
    let events = world.release(&root, "1-2").unwrap();
    assert!(matches!(events.as_slice(), [Event::Released { .. }]), "the call was not released: {events:?}");
    assert_eq!(published(&world, &events), Vec::<String>::new(), "the outcome is published once");
    assert_eq!(world.spent_cents("root"), 3);
    assert!(world.release(&root, "1-2").unwrap().is_empty(), "the second delivery changes nothing");
    world.rest();
}

#[test]
fn b20_a_context_that_never_ran_has_its_outcome_at_once() {
    let mut world = World::with_root(json!({}));
    let events = world.cancel(None).unwrap();
    assert_eq!(published(&world, &events), ["root"]);
}
