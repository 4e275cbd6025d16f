//! Pausing on an exhausted budget, and continuing after a raise: graphs, rounds, fallbacks, grants,
//! reserves.

use domain::{Usd, wire::Verdict};
use serde_json::json;
use trace::Refusal;
use world::{World, cents};

use super::{pausing, step};

#[test]
fn b8_a_step_that_uses_up_a_pausing_graph_pauses_and_follows_the_raise() {
    for paid in [9, 10] {
        let mut world = pausing(json!([step("a", json!({})), step("b", json!({}))]), json!({}));
        let a = world.claim("a");
        world.pay(&a, "c1", cents(paid)).unwrap();
        let no = world.hold(&a, "c2", cents(5)).unwrap_err();
        assert!(matches!(no, Refusal::Denied(_) | Refusal::Halted { pause: true, .. }), "{no}");
        world.report(&a, Verdict::OutOfBudget).unwrap();
        assert_eq!(["a", "graph"].map(|c| world.status(c)), ["paused", "working"]);
        world.raise("graph", 100).unwrap();
        assert_eq!(
            world.node("a").budget.ceilings.limit.cost_usd,
            Usd::from_cents(100),
            "the step has the ceiling of the graph"
        );
        let again = world.claim("a");
        world.pay(&again, "c2", cents(5)).unwrap();
        world.complete(&again, "ok").unwrap();
        world.run("b", "ok");
        assert_eq!(world.status("graph"), "completed");
        world.rest();
    }
}

#[test]
fn b8_a_ceiling_of_its_own_does_not_follow_a_raise() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "own", "max_cost_usd": 0.5})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "left"})).unwrap();
    world.raise("root", 300).unwrap();
    let limit = |c: &str| world.node(c).budget.ceilings.limit.cost_usd;
    assert_eq!(["own", "left"].map(limit), [50, 300].map(Usd::from_cents));
}

#[test]
fn b8_another_round_or_a_fallback_waits_for_the_raise_like_any_step() {
    for (name, extra) in [("a-r1", json!({"loop": {"max_rounds": 2}})), ("a", json!({"fallback": "writer"}))]
    {
        let mut world = pausing(json!([step("a", extra)]), json!({}));
        let lease = world.claim(name);
        world.charge("graph", "k", cents(10)).unwrap();
        if name == "a" { world.fail(&lease, false) } else { world.complete(&lease, "x") }.unwrap();
        assert_eq!(world.status("graph"), "paused", "{name}");
        world.raise("graph", 100).unwrap();
        let next = world.queued()[0].clone();
        world.run(next.as_str(), "ok");
        assert_eq!(world.status("graph"), "completed");
        world.rest();
    }
}

#[test]
fn b8_a_graph_down_to_its_reserve_pauses_too() {
    let steps = json!([step("a", json!({"max_cost_usd": 0.06})), step("b", json!({}))]);
    let mut world = pausing(steps, json!({"closing_reserve_usd": 0.05}));
    let a = world.claim("a");
    world.pay(&a, "c", cents(5)).unwrap();
    world.complete(&a, "x").unwrap();
    assert_eq!(world.status("graph"), "paused");
    world.raise("graph", 100).unwrap();
    world.run("b", "ok");
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn b8_b10_a_correction_resumes_a_paused_context() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let zombie = world.claim("root");
    world.hold(&zombie, "c", cents(10)).unwrap();
    world.pass(10_000);
    let lease = world.claim("root");
    world.resume(&lease, &[]).unwrap();
    world.report(&lease, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("root"), "paused");
    world.settle(&zombie, "c", cents(1)).unwrap();
    assert_eq!((world.status("root").as_str(), world.spent_cents("root")), ("working", 1));
}

#[test]
fn b8_raising_an_overspent_grant_takes_the_growth_of_its_hold() {
    let mut world = World::with_root(json!({"max_cost_usd": 2}));
    let root = world.claim("root");
    let grant = json!({"goal": "a", "child_id": "a", "max_cost_usd": 1, "funding": "granted", "on_exhausted": "pause"});
    world.spawn(&root, grant).unwrap();
    let a = world.claim("a");
    world.hold(&a, "c", cents(100)).unwrap();
    world.settle(&a, "c", cents(150)).unwrap();
    world.raise("a", 200).unwrap();
    assert_eq!(world.node("root").budget.held, cents(50));
}

#[test]
fn b8_a_graph_that_paused_because_of_a_grant_continues_when_the_grant_returns() {
    let mut world =
        World::with_graph(json!({"mode": "parallel", "max_cost_usd": 1, "on_exhausted": "pause", "steps": [
            {"id": "g", "steps": [step("x1", json!({})), step("x2", json!({}))]},
            step("c", json!({"max_cost_usd": 1, "funding": "granted"})),
        ]}));
    world.run("x1", "ok");
    assert_eq!(world.status("g"), "paused", "the whole budget is carved out for `c`");
    world.run("c", "ok");
    world.run("x2", "ok");
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

#[test]
fn b8_a_graph_down_to_its_reserve_continues_after_a_correction() {
    let steps = json!([step("a", json!({"max_cost_usd": 0.06})), step("b", json!({}))]);
    let mut world = pausing(steps, json!({"closing_reserve_usd": 0.05}));
    let zombie = world.claim("a");
    world.hold(&zombie, "c", cents(5)).unwrap();
    world.pass(10_000);
    let a = world.claim("a");
    world.resume(&a, &[]).unwrap();
    world.complete(&a, "x").unwrap();
    assert_eq!(world.status("graph"), "paused");
    world.settle(&zombie, "c", cents(1)).unwrap();
    world.run("b", "ok");
    assert_eq!(world.status("graph"), "completed");
}

#[test]
fn b5_after_a_raise_of_one_dimension_the_other_is_named() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "max_tokens": 10, "on_exhausted": "pause"}));
    let root = world.claim("root");
    world.pay(&root, "c", domain::Amount::new(Usd::from_cents(10), domain::Tokens::new(10))).unwrap();
    world.raise("root", 100).unwrap();
    let halted = world.hold(&root, "d", cents(1)).unwrap_err();
    assert!(matches!(halted, Refusal::Halted { dimension: domain::Dimension::Tokens, .. }), "{halted}");
}

/// The worker was denied a hold, a raise came, and only then the worker reported that its budget is
/// too small.
#[test]
fn b8_a_raise_between_the_denial_and_its_report_is_not_missed() {
    for on_exhausted in ["pause", "abort"] {
        let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": on_exhausted}));
        let first = world.claim("root");
        world.pay(&first, "c", cents(6)).unwrap();
        assert!(matches!(world.hold(&first, "d", cents(7)).unwrap_err(), Refusal::Denied(_)));
        world.raise("root", 20).unwrap();
        world.report(&first, Verdict::OutOfBudget).unwrap();
        let second = world.claim("root");
        world.pay(&second, "d", cents(7)).unwrap();
        assert!(matches!(world.hold(&second, "e", cents(9)).unwrap_err(), Refusal::Denied(_)));
        world.report(&second, Verdict::OutOfBudget).unwrap();
        let ends = if on_exhausted == "pause" { "paused" } else { "aborted" };
        assert_eq!(world.status("root"), ends, "nothing has grown since the second attempt began");
    }
}

/// The same race, with a returned grant or a corrected estimate instead of the raise.
#[test]
fn b8_money_that_returns_between_a_denial_and_its_report_is_not_missed() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let root = world.claim("root");
    let granted = json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.08, "funding": "granted"});
    world.spawn(&root, granted).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b", "max_cost_usd": 0.1})).unwrap();
    let (a, b) = (world.claim("a"), world.claim("b"));
    assert!(matches!(world.hold(&b, "c", cents(5)).unwrap_err(), Refusal::Denied(_)));
    world.complete(&a, "done").unwrap();
    world.report(&b, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("b"), "working", "the context is queued again");
    let b = world.claim("b");
    world.pay(&b, "c", cents(5)).unwrap();
}

/// The money of a grant was never available to others. Spending it frees nothing, so a context that
/// is out of budget is not queued again while others spend their grants.
#[test]
fn b8_the_spending_of_a_grant_leaves_no_more_to_others() {
    for (on_exhausted, ends) in [("pause", "paused"), ("abort", "aborted")] {
        let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": on_exhausted}));
        let root = world.claim("root");
        let granted = json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.08, "funding": "granted"});
        world.spawn(&root, granted).unwrap();
        world.spawn(&root, json!({"goal": "b", "child_id": "b", "max_cost_usd": 0.1})).unwrap();
        let (a, b) = (world.claim("a"), world.claim("b"));
        assert!(matches!(world.hold(&b, "c", cents(5)).unwrap_err(), Refusal::Denied(_)));
        world.pay(&a, "own", cents(1)).unwrap();
        world.report(&b, Verdict::OutOfBudget).unwrap();
        assert_eq!(world.status("b"), ends);
    }
}
