//! Ceilings bind (B17): in every dimension the smallest of submission, profile, ancestors and the
//! deployment's maximum applies, and every lowered value is reported.

use domain::{
    Amount, Tokens, Usd,
    limits::{LimitOverrides, Maximum},
};
use serde_json::{Value, json};
use trace::Refusal;
use world::{World, cents};

/// The values that were lowered for a context, as its snapshot reports them.
fn adjusted(world: &World, child: &str) -> Value {
    json!(world.trace.snapshot(world.node(child)).adjusted)
}

fn limit(world: &World, child: &str) -> Usd {
    world.node(child).budget.ceilings.limit.cost_usd
}

/// A deployment in which no run may cost more than two dollars.
fn deployment(terms: Value) -> World {
    let mut world = World::new();
    world.settings.maximum = Maximum { max_cost_usd: Some(Usd::from_cents(200)), ..Maximum::default() };
    world.agent(json!({"agent_id": "writer", "max_cost_usd": 0.01, "max_tokens": 500}));
    world.agent(json!({"agent_id": "editor", "max_cost_usd": 50}));
    let mut spawn = json!({"goal": "g", "child_id": "root"});
    spawn.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
    world.submit(spawn).unwrap();
    world
}

#[test]
fn b17_the_smallest_of_request_profile_and_deployment_is_the_ceiling_of_a_root() {
    let lowered = |asked: f64, got: f64, by: &str| json!([{"what": "max_cost_usd", "asked": asked, "got": got, "by": by}]);
    for (terms, cents, told) in [
        (json!({}), 100, json!([])),
        (json!({"max_cost_usd": 1000}), 200, lowered(1000.0, 2.0, "deployment")),
        (json!({"max_cost_usd": 1.5}), 150, json!([])),
        (json!({"agent_id": "writer"}), 1, json!([])),
        (json!({"agent_id": "writer", "max_cost_usd": 1000}), 1, lowered(1000.0, 0.01, "profile")),
        (json!({"agent_id": "writer", "max_cost_usd": 0.005}), 0, json!([])),
        (json!({"agent_id": "editor"}), 200, lowered(50.0, 2.0, "deployment")),
        (json!({"agent_id": "editor", "max_cost_usd": 0.5}), 50, json!([])),
    ] {
        let world = deployment(terms.clone());
        let expected = if cents == 0 { Usd::from_nanos(5_000_000) } else { Usd::from_cents(cents) };
        assert_eq!(limit(&world, "root"), expected, "{terms}");
        assert_eq!(adjusted(&world, "root"), told, "{terms}");
        world.check_replay();
    }
}

#[test]
fn b17_a_budget_without_a_ceiling_stays_within_the_maximum() {
    let mut world = World::new();
    world.settings.maximum.max_cost_usd = Some(Usd::from_cents(30));
    world.submit(json!({"goal": "g", "child_id": "root"})).unwrap();
    assert_eq!(limit(&world, "root"), Usd::from_cents(30));
    assert_eq!(adjusted(&world, "root"), json!([]), "no adjustment for an absent ceiling");
}

#[test]
fn b17_a_profile_and_the_parent_bind_a_child() {
    let mut world = deployment(json!({"max_cost_usd": 1, "max_tokens": 1000}));
    let root = world.claim("root");
    let mut child = |name: &str, terms: Value| {
        let mut spawn = json!({"goal": name, "child_id": name});
        spawn.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
        world.spawn(&root, spawn).unwrap();
        (world.node(name).budget.ceilings.limit, adjusted(&world, name))
    };
    let told = |what: &str, asked: Value, got: Value, by: &str| json!([{"what": what, "asked": asked, "got": got, "by": by}]);
    let tokens = |cost: u64, tokens: u64| Amount::new(Usd::from_cents(cost), Tokens::new(tokens));
    let by_parent = told("max_cost_usd", json!(5.0), json!(1.0), "parent");
    assert_eq!(child("a", json!({"max_cost_usd": 5})), (tokens(100, 1000), by_parent));
    let by_profile = told("max_cost_usd", json!(0.5), json!(0.01), "profile");
    assert_eq!(child("b", json!({"agent_id": "writer", "max_cost_usd": 0.5})), (tokens(1, 500), by_profile));
    let granted = json!({"agent_id": "writer", "max_cost_usd": 0.5, "funding": "granted", "max_tokens": 600});
    assert_eq!(child("c", granted).0, tokens(1, 500), "a grant is at most what its profile allows");
    assert_eq!(
        child("d", json!({"agent_id": "editor"})),
        (tokens(100, 500), json!([])),
        "no adjustment for an absent ceiling"
    );
}

#[test]
fn b17_limits_timeouts_and_windows_bind_too() {
    let mut world = World::new();
    world.settings.maximum = Maximum {
        timeout_ms: Some(60_000),
        limits: LimitOverrides { max_steps: Some(40), ..LimitOverrides::default() },
        ..Maximum::default()
    };
    world.agent(json!({"agent_id": "writer", "timeout_ms": 9000, "window_tokens": 800,
        "limits": {"max_steps": 50, "max_output_files": 3, "max_queue_ms": 70_000}}));
    let asked = json!({"max_steps": 45, "max_output_files": 9, "max_queue_ms": 0, "max_children": 200, "max_depth": 1});
    let spawn = json!({"goal": "g", "child_id": "root", "agent_id": "writer", "timeout_ms": 90_000,
        "window_tokens": 1000, "limits": asked});
    world.submit(spawn).unwrap();
    let node = world.node("root");
    let limits = &node.limits;
    assert_eq!((limits.max_steps, limits.max_output_files, limits.max_depth), (40, 3, 1));
    assert_eq!((limits.max_queue_ms, limits.max_children), (70_000, 100));
    assert_eq!(
        (node.terms.timeout_ms, node.lifecycle.deadline),
        (Some(9000), Some(world.now.plus_millis(60_000)))
    );
    let told = |what: &str, asked: u64, got: u64, by: &str| json!({"what": what, "asked": asked, "got": got, "by": by});
    assert_eq!(
        adjusted(&world, "root"),
        json!([
            told("max_steps", 45, 40, "deployment"),
            told("max_output_files", 9, 3, "profile"),
            told("max_queue_ms", 0, 70_000, "profile"),
            told("max_children", 200, 100, "deployment"),
            told("window_tokens", 1000, 800, "profile"),
            told("timeout_ms", 90_000, 9000, "profile"),
        ])
    );
    // The earlier of the submission's deadline and the context's own timeout applies.
    world.pass(55_000);
    let lease = world.claim("root");
    world.pass(5_000);
    assert_eq!(world.status("root"), "timed_out");
    assert!(world.complete(&lease, "late").is_err());
}

#[test]
fn b17_a_child_can_neither_lift_its_profiles_timeout_nor_its_own_default() {
    let mut world = World::with_root(json!({}));
    world.agent(json!({"agent_id": "writer", "timeout_ms": 9000}));
    let root = world.claim("root");
    let mut timeout = |name: &str, terms: Value| {
        let mut spawn = json!({"goal": name, "child_id": name});
        spawn.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
        world.spawn(&root, spawn).unwrap();
        world.node(name).terms.timeout_ms
    };
    assert_eq!(timeout("a", json!({})), Some(60_000));
    assert_eq!(timeout("b", json!({"timeout_ms": 0})), None);
    assert_eq!(timeout("c", json!({"timeout_ms": 120_000})), Some(120_000), "the default is not a maximum");
    assert_eq!(timeout("d", json!({"timeout_ms": 0, "agent_id": "writer"})), Some(9000));
    assert_eq!(timeout("e", json!({"timeout_ms": 10_000, "agent_id": "writer"})), Some(9000));
    assert_eq!(timeout("f", json!({"timeout_ms": 8000, "agent_id": "writer"})), Some(8000));
}

#[test]
fn b17_a_raise_stays_within_the_maximum() {
    let mut world = deployment(json!({"max_cost_usd": 1}));
    let refused = world.raise("root", 201).unwrap_err();
    assert!(matches!(refused, Refusal::AboveMaximum { .. }), "{refused}");
    world.raise("root", 200).unwrap();
    assert_eq!(world.node("root").budget.ceilings.limit.cost_usd, cents(200).cost_usd);
}

#[test]
fn b17_a_reserve_that_no_longer_fits_and_a_profiles_timeout_are_adjusted_too() {
    let mut world = World::new();
    world.settings.maximum =
        Maximum { max_cost_usd: Some(Usd::from_cents(30)), timeout_ms: Some(60_000), ..Maximum::default() };
    world.agent(json!({"agent_id": "slow", "timeout_ms": 90_000}));
    let terms = json!({"goal": "g", "child_id": "root", "agent_id": "slow", "max_cost_usd": 1, "closing_reserve_usd": 0.5});
    world.submit(terms).unwrap();
    let told = |what: &str, asked: Value, got: Value| json!({"what": what, "asked": asked, "got": got, "by": "deployment"});
    assert_eq!(
        adjusted(&world, "root"),
        json!([
            told("max_cost_usd", json!(1.0), json!(0.3)),
            told("closing_reserve_usd", json!(0.5), json!(0.3)),
            told("timeout_ms", json!(90_000), json!(60_000)),
        ])
    );
}
