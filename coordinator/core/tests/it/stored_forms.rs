//! The form that a stored trace has (t9): a coordinator of an earlier version must not read what it would lose.

use std::collections::HashMap;

use domain::{
    check::{CheckDecision, Moment},
    decode,
    graph::{Plan, TaskGraph},
    wire::{Checked, Lease, Restore, Verdict},
};
use serde_json::{Value, json};
use trace::{Command, Trace};
use world::{World, cents, id};

/// What a store has of a trace.
#[derive(Default)]
struct Stored(HashMap<String, String>);

impl Stored {
    /// Stores what changed; tells whether that was the head too.
    fn commit(&mut self, world: &mut World) -> bool {
        let changes = world.trace.take_changes().fields;
        let has_head = changes.iter().any(|(name, _)| name == "head");
        for (name, text) in changes {
            match text {
                Some(text) => drop(self.0.insert(name, text)),
                None => drop(self.0.remove(&name)),
            }
        }
        has_head
    }

    fn form(&self) -> Value {
        serde_json::from_str::<Value>(&self.0["head"]).unwrap()["form"].take()
    }
}

fn checked(lease: &Lease) -> Command {
    Command::Checked(Checked {
        lease: lease.clone(),
        number: 1,
        check: "c".parse().unwrap(),
        moment: Moment::BeforeTool,
        decision: CheckDecision::Deny,
        reason: None,
    })
}

#[test]
fn t9_what_earlier_programs_would_lose_has_a_form_of_its_own() {
    type Change = fn(&mut World, &Lease);
    let changes: [(&str, Change); 4] = [
        ("a message", |world, _| world.tell("root", "hello").map(drop).unwrap()),
        ("a rung", |world, lease| {
            world.pay(lease, "1", cents(60)).unwrap();
            world.ask_with(lease, "2", cents(1), 0, 0);
        }),
        ("a check", |world, lease| world.handle(checked(lease)).map(drop).unwrap()),
        ("a restore of a call in flight", |world, lease| {
            world.hold(lease, "1", cents(1)).unwrap();
            world.handle(Command::Restore(Restore { child_id: id("root"), number: 1, to: 0 })).unwrap();
        }),
    ];
    for (what, change) in changes {
        let mut world = World::new();
        world.agent(json!({"agent_id": "default", "on_budget": [{"at": 0.5, "tell": true}]}));
        world.submit(json!({"goal": "g", "child_id": "root", "max_cost_usd": 1})).unwrap();
        let lease = world.claim("root");
        let mut stored = Stored::default();
        assert!(stored.commit(&mut world));
        assert_eq!(stored.form(), 2, "before {what}");
        change(&mut world, &lease);
        assert!(stored.commit(&mut world), "{what}");
        assert_eq!(stored.form(), 4, "{what}");

        // Once is enough, for whoever made it and for whoever loads it.
        let read = |stored: &Stored| {
            Trace::from_stored(world.trace.id(), world.trace.version(), &stored.0, &HashMap::new())
        };
        let loaded = read(&stored).unwrap();
        assert!(loaded == world.trace.without_renewals(), "{what}: it reads back as another trace");
        for trace in [world.trace.clone(), loaded] {
            world.trace = trace;
            world.tell("root", "more").unwrap();
            assert!(!stored.commit(&mut world), "{what}: the head is written again");
        }
        // A rebuilt trace is stored whole, in the same form.
        world.trace.mark_all_changed();
        assert!(stored.commit(&mut world) && stored.form() == 4, "{what}");
        stored.0.insert("head".into(), stored.0["head"].replace(r#""form":4"#, r#""form":8"#));
        let refused = Trace::from_stored(world.trace.id(), 1, &stored.0, &HashMap::new()).unwrap_err();
        assert!(refused.to_string().contains("form 8"), "{refused}");
        world.report(&lease, Verdict::HandedBack).unwrap();
    }
}

/// A graph that an earlier program would refuse is of a form that it does not read.
#[test]
fn t9_graphs_of_new_shapes_have_a_form_of_their_own() {
    let step = json!({"id": "s", "agent_id": "writer", "task_description": "t"});
    let group = json!({"id": "g", "for_each": "list", "steps": [step]});
    for (graph, form) in [
        (json!({"steps": [step]}), 2),
        (json!({"inputs": {"list": [1]}, "steps": [group]}), 5),
        (json!({"input_schema": {}, "steps": [step]}), 5),
        (json!({"output_schema": {}, "steps": [step]}), 5),
        (json!({"inputs": {"x": 1}, "output": "x", "steps": [step]}), 5),
        (json!({"race": true, "aggregate": {}, "agent_id": "editor", "steps": [step]}), 5),
    ] {
        let mut world = World::with_graph(graph);
        let mut stored = Stored::default();
        assert!(stored.commit(&mut world));
        assert_eq!(stored.form(), form);
    }
}

/// proves: a run that was accepted with a schema which is refused now is read, goes on, and ends saying so.
#[test]
fn t9_a_run_with_a_schema_that_is_refused_now_stays_readable() {
    let known = json!({"type": "string", "pattern": "^known$"});
    let refused = r#"{"type":"string","pattern":"(?=known)"}"#;
    let step = json!({"id": "s", "agent_id": "writer", "task_description": "t", "output_schema": known});
    let used = json!({"id": "u", "graph": {"input_schema": known, "output_schema": known, "steps": [
        {"id": "v", "agent_id": "writer", "task_description": "t"}]}});
    let graph =
        json!({"input_schema": {"properties": {"a": known}}, "output_schema": known, "steps": [step]});
    for graph in [graph, json!({"steps": [step, used]})] {
        let read = serde_json::to_string(&graph).unwrap().replace(&known.to_string(), refused);
        let new = decode::json::<TaskGraph>(read.as_bytes()).unwrap();
        let refusals = Plan::compile(&new).unwrap_err();
        assert!(refusals.iter().count() >= 2, "{refusals}");
    }
    let mut world = World::with_graph(json!({"output_schema": known, "steps": [step]}));
    let mut stored = Stored::default();
    stored.commit(&mut world);
    let swapped = stored.0.values_mut().filter(|text| text.contains("^known$"));
    let swapped = swapped.map(|text| *text = text.replace("^known$", "(?=known)")).count();
    assert!(swapped > 0, "{:?}", stored.0);
    let (id, version) = (world.trace.id(), world.trace.version());
    world.trace = Trace::from_stored(id, version, &stored.0, &HashMap::new()).unwrap();
    let lease = world.claim("s");
    let said = format!("{:?}", world.complete(&lease, "known").unwrap());
    assert!(said.contains("can't be used any more"), "{said}");
}

/// proves: a program that does not know labels would drop them when it stores the order again.
#[test]
fn t9_g17_a_run_with_labels_has_a_form_of_its_own() {
    for (labels, form) in [(json!({}), 2), (json!({"env": "prod"}), 5)] {
        let mut world = World::with_root(json!({"labels": labels}));
        let mut stored = Stored::default();
        stored.commit(&mut world);
        assert_eq!(stored.form(), form);
    }
}
