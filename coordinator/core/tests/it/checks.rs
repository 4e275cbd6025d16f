//! Checks in the core (B16): the checks that a context runs, the counters of their decisions, and
//! invalid checks.

use domain::{
    AgentProfile,
    check::{CheckDecision, Moment},
    decode,
    wire::{CheckCounts, CheckReport, Lease},
};
use serde_json::{Value, json};
use trace::{Command, Event, Refusal};
use world::{World, id};

fn told(lease: &Lease, number: u32, decision: CheckDecision) -> Command {
    Command::Checked(CheckReport {
        lease: lease.clone(),
        number,
        check: "c".parse().unwrap(),
        moment: Moment::BeforeTool,
        decision,
        reason: Some("r".repeat(5000)),
    })
}

#[test]
fn b16_a_repeated_report_of_a_decision_is_one_event() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let events = world.handle(told(&root, 1, CheckDecision::Deny)).unwrap();
    let [Event::Checked { number: 1, decision: CheckDecision::Deny, reason: Some(reason), .. }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(reason.len() < 1100, "a long reason is cut");
    assert!(
        world.handle(told(&root, 1, CheckDecision::Deny)).unwrap().is_empty(),
        "a second report changes nothing"
    );
    assert!(world.handle(told(&root, 2, CheckDecision::Pass)).unwrap().is_empty(), "a pass is not an event");
    world.handle(told(&root, 4, CheckDecision::Change)).unwrap();
    assert!(
        world.handle(told(&root, 3, CheckDecision::Deny)).unwrap().is_empty(),
        "a report older than the last one changes nothing"
    );
    world.handle(told(&root, 5, CheckDecision::Halt)).unwrap();
    let counts = CheckCounts { changed: 1, denied: 1, halted: 1 };
    assert_eq!(world.trace.snapshot(world.node("root")).checks, counts);
    world.check_replay();
    // A later attempt reports the decision again from its journal; an older attempt can't report
    // any more.
    world.pass(60_000);
    let again = world.claim("root");
    assert!(world.handle(told(&again, 5, CheckDecision::Halt)).unwrap().is_empty());
    assert!(matches!(world.handle(told(&root, 6, CheckDecision::Deny)), Err(Refusal::Stale { .. })));
    assert_eq!(world.node("root").lifecycle.checks, counts);
}

/// The names of the checks that a context runs.
fn checks(world: &World, child: &str) -> Vec<String> {
    let work = world.work(&id(child)).unwrap();
    work.agent.checks.iter().map(|check| check.name.to_string()).collect()
}

fn agent(name: &str, checks: Value) -> Value {
    json!({"agent_id": name, "kind": "llm", "model": "m", "checks": checks})
}

#[test]
fn b16_i5_a_child_runs_the_checks_of_its_ancestors_too_outermost_first() {
    let short = |max: u32| json!({"name": "short", "size": {"max_bytes": max}});
    let rate = json!({"name": "slow", "rate": {"per_minute": 10}});
    let mut world = World::new();
    world.agent(agent("outer", json!([short(10), rate])));
    world.agent(agent("middle", json!([])));
    world.agent(agent(
        "inner",
        json!([{"name": "cheap", "cost": {"max_usd_per_call": 1}}, short(10), short(5)]),
    ));
    world.submit(json!({"goal": "g", "agent_id": "outer", "max_cost_usd": 1})).unwrap();
    assert_eq!(checks(&world, "root"), ["short", "slow"]);
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "m", "child_id": "m", "agent_id": "middle"})).unwrap();
    assert_eq!(checks(&world, "m"), ["short", "slow"], "the checks also apply to an agent without its own");
    let middle = world.claim("m");
    world.spawn(&middle, json!({"goal": "i", "child_id": "i", "agent_id": "inner"})).unwrap();
    // An equal check runs once. A different check with the same name is renamed.
    assert_eq!(checks(&world, "i"), ["short", "slow", "cheap", "short-2"]);
    let inner = world.claim("i");
    world.spawn(&inner, json!({"goal": "j", "child_id": "j", "agent_id": "inner"})).unwrap();
    assert_eq!(checks(&world, "j"), ["short", "slow", "cheap", "short-2"]);
    // The steps of a graph run the checks of the caller, not those of the graph's own agent.
    let steps = json!([{"id": "s", "agent_id": "middle", "task_description": "t"}]);
    let graph = json!({"child_id": "graph", "agent_id": "inner", "aggregate": {}, "steps": steps});
    world.spawn_graph(&root, graph).unwrap();
    let step = world.queued().into_iter().find(|child| child.as_str().contains('s')).unwrap();
    assert_eq!(checks(&world, step.as_str()), ["short", "slow"]);
    // A context that the synthesis spawns runs the checks of the graph's own agent too.
    let lease = world.claim(step.as_str());
    world.complete(&lease, "done").unwrap();
    let synthesis = world.claim("graph");
    world.spawn(&synthesis, json!({"goal": "k", "child_id": "k", "agent_id": "middle"})).unwrap();
    assert_eq!(checks(&world, "k"), ["short", "slow", "cheap", "short-2"]);
}

#[test]
fn b16_l_more_checks_than_fit_into_a_message_are_refused() {
    let large = |name: &str| {
        let patterns: Vec<String> = (0..60).map(|n| format!("{name}{n}{}", "x".repeat(1900))).collect();
        json!({"name": name, "pattern": {"deny": patterns}})
    };
    let mut world = World::new();
    world.agent(agent("outer", json!([large("a")])));
    world.agent(agent("inner", json!([large("b"), large("c")])));
    world.submit(json!({"goal": "g", "agent_id": "outer", "max_cost_usd": 1})).unwrap();
    let root = world.claim("root");
    let refused = world.spawn(&root, json!({"goal": "i", "child_id": "i", "agent_id": "inner"}));
    let Err(Refusal::TooLarge { limit, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(limit.to_string(), "the largest checks = 262144 (built in)");
}

#[test]
fn b16_twenty_bad_checks_and_everything_that_is_wrong_with_them() {
    let deny = |pattern: &str| json!({"deny": [pattern]});
    let large = format!("({})", "a|".repeat(990));
    let checks = json!([
        {"name": "no-kind"},
        {"name": "two-kinds", "size": {"max_bytes": 1}, "rate": {"per_minute": 1}},
        {"name": "unclosed", "pattern": deny("(")},
        {"name": "everything", "pattern": deny("a*")},
        {"name": "empty-pattern", "pattern": deny("")},
        {"name": "no-patterns", "pattern": {"deny": []}},
        {"name": "huge", "pattern": deny(r"\w{1000}{1000}")},
        {"name": "long", "pattern": deny(&large.repeat(2))},
        {"name": "zero-bytes", "size": {"max_bytes": 0}},
        {"name": "zero-rate", "rate": {"per_minute": 0}},
        {"name": "redacts-size", "size": {"max_bytes": 1}, "then": "redact"},
        {"name": "redacts-allowed", "pattern": {"allow": ["a"]}, "then": "redact"},
        {"name": "rate-after", "rate": {"per_minute": 1}, "on": ["after_call"]},
        {"name": "never", "size": {"max_bytes": 1}, "on": []},
        {"name": "cost-of-tools", "cost": {"max_usd_per_call": 1}, "tools": ["fs.read"]},
        {"name": "no-schema", "schema": {"type": "strange"}},
        {"name": "no-program", "program": {"command": []}},
        {"name": "no-server", "mcp": {"tool": "fs.read"}},
        {"name": "too-slow", "program": {"command": ["true"]}, "timeout_ms": 70_000, "then": "halt"},
        {"name": "no-kind", "approval": {"above_usd": 1}, "on": ["before_tool"], "timeout_ms": 5},
    ]);
    let profile: AgentProfile = decode::value(&agent("bad", checks)).unwrap();
    insta::assert_snapshot!(profile.check().unwrap_err().to_string());
    // Mistakes that the types exclude are reported in the same form.
    let checks = json!([
        {"name": "no name!", "size": {}},
        {"name": "typo", "patern": {"deny": ["a"]}},
        {"name": "both", "pattern": {"deny": ["a"], "allow": ["b"]}},
        {"name": "moment", "size": {"max_bytes": 1}, "on": ["before"]},
        {"name": "then", "size": {"max_bytes": -1}, "then": "drop"},
        "no-secrets",
    ]);
    insta::assert_snapshot!(decode::value::<AgentProfile>(&agent("bad", checks)).unwrap_err().to_string());
    let builtin = json!({"agent_id": "e", "kind": "builtin", "builtin": "echo", "checks": [{"name": "a", "size": {"max_bytes": 1}}]});
    let profile: AgentProfile = decode::value(&builtin).unwrap();
    assert_eq!(
        profile.check().unwrap_err().to_string(),
        "checks: a built-in agent makes no calls that a check could see\n  hint: name them in the profile of an llm or command agent"
    );
}
