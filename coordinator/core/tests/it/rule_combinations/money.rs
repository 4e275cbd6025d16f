//! Aborts, resumes and grants combined with other rules.

use domain::{Usd, wire::Verdict};
use serde_json::json;
use trace::Refusal;
use world::{World, cents};

use super::step;

#[test]
fn b12_an_abort_reaches_paused_descendants() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    let child = json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.1, "on_exhausted": "pause"});
    world.spawn(&root, child).unwrap();
    world.wait(&root, &["a"]).unwrap();
    let a = world.claim("a");
    world.pay(&a, "c", cents(10)).unwrap();
    world.report(&a, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("a"), "paused");
    world.charge("root", "k", cents(90)).unwrap();
    assert_eq!(["a", "root"].map(|c| world.status(c)), ["aborted", "aborted"]);
    world.rest();
}

#[test]
fn b12_an_aborted_context_does_not_park_for_a_human() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
    let root = world.claim("root");
    world.pay(&root, "c", cents(10)).unwrap();
    world.ask_human(&root, "more?").unwrap();
    assert_eq!(world.status("root"), "aborted");
}

#[test]
fn b9_a_resume_that_names_a_call_twice_is_refused() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.hold(&root, "c", cents(10)).unwrap();
    let twice = world.resume(&root, &[("c", cents(5)), ("c", cents(7))]).unwrap_err();
    assert!(matches!(twice, Refusal::CallConflict(_)));
}

#[test]
fn b2_a_resume_whose_costs_fit_one_by_one_but_not_together_is_refused() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let names: Vec<String> = (0..9).map(|n| format!("c{n}")).collect();
    let million = domain::Amount::cost(Usd::MAX);
    let costs: Vec<_> = names.iter().map(|name| (name.as_str(), million)).collect();
    for name in &names {
        world.hold(&root, name, cents(1)).unwrap();
        world.release(&root, name).unwrap();
    }
    assert_eq!(world.resume(&root, &costs).unwrap_err(), Refusal::BooksFull);
    // Also refused if the sum with the earlier cost is too large.
    for n in 0..4 {
        world.charge("root", &format!("k{n}"), million).unwrap();
    }
    assert_eq!(world.resume(&root, &costs[..5]).unwrap_err(), Refusal::BooksFull);
    world.resume(&root, &costs[..4]).unwrap();
}

#[test]
fn b6_a_grant_of_everything_can_be_spent() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world
        .spawn(&root, json!({"goal": "a", "child_id": "a", "max_cost_usd": 1, "funding": "granted"}))
        .unwrap();
    let a = world.claim("a");
    world.spawn(&a, json!({"goal": "b", "child_id": "b"})).unwrap();
    let b = world.claim("b");
    world.pay(&b, "c", cents(99)).unwrap();
    assert!(matches!(world.spawn(&root, json!({"goal": "c"})).unwrap_err(), Refusal::NothingLeft { .. }));

    let group = json!({"id": "g", "max_cost_usd": 1, "funding": "granted", "steps": [step("s", json!({}))]});
    let mut world = World::with_graph(json!({"max_cost_usd": 1, "on_exhausted": "pause", "steps": [group]}));
    world.run("s", "ok");
    assert_eq!(world.status("graph"), "completed");
}
