//! A list of runs shows its spenders: which agents, with which models.

use domain::wire::{Resume, SettledCall};
use serde_json::json;
use trace::Command;
use world::{World, cents};

/// The spenders of a run, from its stored form.
fn spenders(world: &World) -> Vec<String> {
    let told = |one: domain::wire::Spender| {
        let nobody = if one.others { "others" } else { "nobody" };
        let agent = one.agent_id.map_or_else(|| nobody.to_owned(), |agent| agent.to_string());
        let model = one.model.map_or_else(String::new, |model| format!(" {model}"));
        format!("{agent}{model} {}", one.cost_usd)
    };
    world.summary().spent_by.into_iter().map(told).collect()
}

#[test]
fn the_spending_of_a_run_is_listed_by_agent_and_model() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.hold(&root, "call-1", cents(5)).unwrap();
    assert_eq!(spenders(&world), Vec::<String>::new(), "held money is not spent");
    world.settle_with(&root, "call-1", cents(2), "large").unwrap();
    world.settle_with(&root, "call-1", cents(2), "large").unwrap();
    world.agent(json!({"agent_id": "reader"}));
    world.spawn(&root, json!({"child_id": "a", "agent_id": "reader", "goal": "read"})).unwrap();
    let child = world.claim("a");
    for (call, model) in [("call-1", "small"), ("call-2", "large"), ("call-3", "small")] {
        world.hold(&child, call, cents(1)).unwrap();
        world.settle_with(&child, call, cents(1), model).unwrap();
    }
    world.charge("a", "invoice", cents(3)).unwrap();
    let known = ["default large $0.02", "reader small $0.02", "reader large $0.01", "reader $0.03"];
    assert_eq!(spenders(&world), known);
    world.check_replay();
}

#[test]
fn an_estimate_is_of_no_model_until_its_cost_is_known() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.hold(&root, "call-1", cents(5)).unwrap();
    world.forfeit(&root, "call-1").unwrap();
    assert_eq!(spenders(&world), ["default $0.05"]);
    world.settle_with(&root, "call-1", cents(2), "large").unwrap();
    assert_eq!(spenders(&world), ["default large $0.02"]);
    world.check_replay();
}

#[test]
fn a_charge_on_a_graph_has_no_agent_and_others_are_last() {
    let steps: Vec<_> = (0..13)
        .map(|number| json!({"id": format!("s{number}"), "agent_id": format!("agent-{number}"), "task_description": "t"}))
        .collect();
    let mut world = World::new();
    for number in 0..13 {
        world.agent(json!({"agent_id": format!("agent-{number}")}));
    }
    world.submit_graph(json!({"mode": "parallel", "max_cost_usd": 10, "steps": steps})).unwrap();
    world.charge("graph", "invoice", cents(30)).unwrap();
    for number in 0..13 {
        let lease = world.claim(&format!("s{number}"));
        world.pay(&lease, "call-1", cents(number + 1)).unwrap();
    }
    let told = spenders(&world);
    assert_eq!((told.len(), told[0].as_str()), (12, "nobody $0.30"));
    assert_eq!(told.iter().filter(|one| one.contains("agent-")).count(), 10, "{told:?}");
    assert_eq!(told[11], "others $0.06", "the three smallest spenders are merged");
    world.check_replay();
}

#[test]
fn a_call_that_the_next_attempt_reports_is_listed_with_its_model() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.hold(&root, "call-1", cents(5)).unwrap();
    world.pass(1_000_000);
    let root = world.claim("root");
    let (call_id, model) = ("call-1".parse().unwrap(), Some("large".parse().unwrap()));
    let settled = vec![SettledCall { call_id, amount: cents(2), model }];
    world.handle(Command::Resume(Resume { lease: root, settled })).unwrap();
    assert_eq!(spenders(&world), ["default large $0.02"]);
}
