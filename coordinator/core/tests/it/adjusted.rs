//! Lowered limits are reported (B17) in every dimension: a root above the deployment's maximum or
//! its profile, a child above its parent, a step above its graph.

use domain::{
    Tokens, Usd,
    limits::{LimitOverrides, Maximum},
};
use serde_json::{Value, json};
use world::World;

/// Each limit, with a value below its default and one above.
const LIMITS: [(&str, u64, u64); 9] = [
    ("max_steps", 5, 500),
    ("max_retries_total", 2, 50),
    ("max_tokens_per_step", 100, 50_000),
    ("max_output_files", 3, 300),
    ("max_output_size_bytes", 1_000, 9_000_000),
    ("max_queue_ms", 4_000, 0),
    ("max_depth", 2, 30),
    ("max_children", 7, 700),
    ("max_result_bytes", 1_000, 900_000),
];

/// A dimension, the requested value, and the value that applies instead.
struct Case {
    what: &'static str,
    asked: Value,
    got: Value,
}

/// Every dimension that can be bounded for a root.
fn dimensions() -> Vec<Case> {
    let mut all = vec![
        Case { what: "max_cost_usd", asked: json!(9.0), got: json!(0.5) },
        Case { what: "max_tokens", asked: json!(9000), got: json!(500) },
        Case { what: "timeout_ms", asked: json!(90_000), got: json!(40_000) },
    ];
    all.extend(LIMITS.map(|(what, less, more)| Case { what, asked: json!(more), got: json!(less) }));
    all
}

/// A message that asks for a value in one dimension.
fn ask(base: Value, what: &str, value: &Value) -> Value {
    let mut asked = base;
    if LIMITS.iter().any(|(limit, _, _)| *limit == what) {
        asked["limits"] = json!({what: value});
    } else {
        asked[what] = value.clone();
    }
    asked
}

fn adjusted(world: &World, child: &str) -> Value {
    world.check_replay();
    json!(world.trace.snapshot(world.node(child)).adjusted)
}

fn told(what: &str, asked: &Value, got: &Value, by: &str) -> Value {
    json!([{"what": what, "asked": asked, "got": got, "by": by}])
}

/// A deployment that bounds one dimension.
fn bounded(what: &str, most: &Value) -> World {
    let mut world = World::new();
    let maximum = &mut world.settings.maximum;
    match what {
        "max_cost_usd" => maximum.max_cost_usd = Some(serde_json::from_value::<Usd>(most.clone()).unwrap()),
        "max_tokens" => maximum.max_tokens = Some(serde_json::from_value::<Tokens>(most.clone()).unwrap()),
        "timeout_ms" => maximum.timeout_ms = most.as_u64(),
        limit => {
            maximum.limits = serde_json::from_value::<LimitOverrides>(json!({limit: most})).unwrap();
        }
    }
    world
}

#[test]
fn b17_a_root_above_the_deployments_maximum_is_adjusted_in_every_dimension() {
    for Case { what, asked, got } in dimensions() {
        let root = json!({"goal": "g", "child_id": "root"});
        let mut world = bounded(what, &got);
        world.submit(ask(root.clone(), what, &asked)).unwrap();
        assert_eq!(adjusted(&world, "root"), told(what, &asked, &got, "deployment"), "a submission");
        let mut world = bounded(what, &got);
        world.agent(ask(json!({"agent_id": "large"}), what, &asked));
        let mut spawn = root.clone();
        spawn["agent_id"] = json!("large");
        world.submit(spawn).unwrap();
        assert_eq!(adjusted(&world, "root"), told(what, &asked, &got, "deployment"), "a profile");
        let mut world = bounded(what, &got);
        world.submit(root).unwrap();
        assert_eq!(adjusted(&world, "root"), json!([]), "{what}: no adjustment for an absent field");
    }
    let mut world = World::new();
    world.settings.maximum = Maximum { max_cost_usd: Some(Usd::from_cents(30)), ..Maximum::default() };
    world.agent(json!({"agent_id": "closing", "closing_reserve_usd": 0.5}));
    world.submit(json!({"goal": "g", "child_id": "root", "agent_id": "closing"})).unwrap();
    let reserve = told("closing_reserve_usd", &json!(0.5), &json!(0.3), "deployment");
    assert_eq!(adjusted(&world, "root"), reserve, "the reserve of a profile");
}

#[test]
fn b17_a_request_above_its_profile_is_adjusted_in_every_dimension() {
    let window = Case { what: "window_tokens", asked: json!(9000), got: json!(800) };
    for Case { what, asked, got } in dimensions().into_iter().chain([window]) {
        let mut world = World::new();
        world.agent(ask(json!({"agent_id": "small"}), what, &got));
        let root = json!({"goal": "g", "child_id": "root", "agent_id": "small"});
        world.submit(ask(root, what, &asked)).unwrap();
        assert_eq!(
            adjusted(&world, "root"),
            told(what, &asked, &got, "profile"),
            "the limit of a root is adjusted"
        );
    }
}

#[test]
fn b17_a_child_above_its_parent_is_adjusted_in_every_dimension() {
    let window = Case { what: "window_tokens", asked: json!(9000), got: json!(800) };
    let reserve = Case { what: "closing_reserve_usd", asked: json!(0.4), got: json!(0.1) };
    for Case { what, asked, got } in dimensions().into_iter().chain([window, reserve]) {
        let mut world = World::new();
        let root = json!({"goal": "g", "child_id": "root"});
        let bound = if what == "closing_reserve_usd" { "max_cost_usd" } else { what };
        world.submit(ask(root, bound, &got)).unwrap();
        let lease = world.claim("root");
        let child = json!({"goal": "c", "child_id": "child"});
        world.spawn(&lease, ask(child.clone(), what, &asked)).unwrap();
        assert_eq!(adjusted(&world, "child"), told(what, &asked, &got, "parent"));
        let plain = json!({"goal": "d", "child_id": "plain"});
        world.spawn(&lease, plain).unwrap();
        assert_eq!(adjusted(&world, "plain"), json!([]), "{what}: no adjustment for an absent field");
    }
}

#[test]
fn b17_a_step_above_its_graph_is_adjusted_in_every_dimension() {
    for (what, asked, got) in [
        ("max_cost_usd", json!(9.0), json!(0.5)),
        ("max_tokens", json!(9000), json!(500)),
        ("timeout_ms", json!(90_000), json!(40_000)),
    ] {
        let step = ask(json!({"id": "one", "task_description": "t", "agent_id": "default"}), what, &asked);
        let graph = ask(json!({"name": "g", "child_id": "graph", "steps": [step]}), what, &got);
        let mut world = World::new();
        world.submit_graph(graph).unwrap();
        let step = world.trace.contexts().iter().find(|node| node.id.as_str() != "graph").unwrap().id.clone();
        assert_eq!(adjusted(&world, step.as_str()), told(what, &asked, &got, "parent"));
    }
}

/// The list in a profile is narrowed to the ancestors' list. A spawn that lists more than its
/// ancestors allow is refused.
#[test]
fn b17_a_narrowed_list_is_reported_as_adjusted() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "parent", "kind": "llm", "model": "a", "allowed_models": ["a", "b"],
        "tools": ["fs.read", "fs.list"]}));
    world.agent(json!({"agent_id": "child", "kind": "llm", "model": "a", "allowed_models": ["a", "c"],
        "tools": ["fs.read", "fs.write"], "fallback_model": "c"}));
    world.submit(json!({"goal": "g", "child_id": "root", "agent_id": "parent"})).unwrap();
    assert_eq!(adjusted(&world, "root"), json!([]));
    let lease = world.claim("root");
    world.spawn(&lease, json!({"goal": "c", "child_id": "child", "agent_id": "child"})).unwrap();
    assert_eq!(
        adjusted(&world, "child"),
        json!([
            {"what": "tools", "asked": ["fs.read", "fs.write"], "got": ["fs.read"], "by": "parent"},
            {"what": "allowed_models", "asked": ["a", "c"], "got": ["a"], "by": "parent"},
            {"what": "fallback_model", "asked": "c", "got": null, "by": "parent"},
        ])
    );
    let fits = json!({"goal": "d", "child_id": "same", "agent_id": "child", "tools": ["fs.read"]});
    world.spawn(&lease, fits).unwrap();
    let what: Vec<String> =
        world.node("same").terms.adjusted.iter().map(|adjusted| adjusted.what.clone()).collect();
    assert_eq!(what, ["allowed_models", "fallback_model"], "the tools of the spawn are not adjusted");
}
