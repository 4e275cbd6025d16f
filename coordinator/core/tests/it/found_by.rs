//! Finding runs (G17): the labels of a run, and its entries in the index.

use std::collections::HashMap;

use domain::{
    decode,
    graph::TaskGraph,
    wire::{Query, RunsQuery, Spawn},
};
use serde_json::json;
use trace::{Refusal, Trace, terms_of};
use world::{World, cents};

fn labels(count: usize) -> serde_json::Value {
    (0..count).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into()
}

/// proves: labels are checked at submission and in queries, each mistake with its place.
#[test]
fn g17_all_mistakes_of_bad_labels_and_queries_are_reported() {
    let mut told = String::new();
    for bad in [
        json!({"goal": "x", "labels": {"": "v", "a b": "v", "k": "", "k2": "a b", "k3": 7, "k4": null}}),
        json!({"goal": "x", "labels": {"k".repeat(65): "v", "k": "v".repeat(129), "ünï": "v"}}),
        json!({"goal": "x", "labels": labels(17)}),
        json!({"goal": "x", "labels": ["env=prod"]}),
    ] {
        let problems = decode::value::<Spawn>(&bad).unwrap_err();
        told.push_str(&format!("{}\n{problems}\n\n", bad.to_string().chars().take(120).collect::<String>()));
    }
    let graph = json!({"labels": {"a b": "v"}, "steps": [{"agent_id": "a", "labels": {"k": "v"}}]});
    told.push_str(&format!("{graph}\n{}\n\n", decode::value::<TaskGraph>(&graph).unwrap_err()));
    for bad in [
        json!({"runs": {"labels": {"a b": "v"}, "status": ["done", "failed"], "limit": -1}}),
        json!({"runs": {"after": "yesterday", "prefix": "0AF", "min_cost_usd": -1, "agents": "a"}}),
        json!({"pending": {"after": "1-2", "status": "open"}}),
    ] {
        told.push_str(&format!("{bad}\n{}\n\n", decode::value::<Query>(&bad).unwrap_err()));
    }
    insta::assert_snapshot!(told);
    decode::value::<Spawn>(&json!({"goal": "x", "labels": labels(16)})).unwrap();
}

/// proves: only a root has labels. A child with labels would be listed as a run.
#[test]
fn g17_a_run_has_labels_and_a_child_has_none() {
    let mut world = World::with_root(json!({"labels": {"env": "prod", "pr": "repo/7"}, "thread_id": "t1"}));
    let root = world.trace.snapshot(world.node("root"));
    assert_eq!(serde_json::to_value(&root.labels).unwrap(), json!({"env": "prod", "pr": "repo/7"}));
    let lease = world.claim("root");
    let refused = world.spawn(&lease, json!({"goal": "g", "child_id": "a", "labels": {"env": "prod"}}));
    let Err(Refusal::Malformed(problems)) = refused else { panic!("{refused:?}") };
    assert!(problems.to_string().contains("labels: only a run has labels"), "{problems}");
    world.spawn(&lease, json!({"goal": "g", "child_id": "a"})).unwrap();
    let child = world.trace.snapshot(world.node("a"));
    assert!(
        child.labels.is_empty() && child.thread_id.is_some(),
        "a child has the thread of its parent, but not its labels"
    );
    // A second delivery is the same submission only if its labels are equal.
    let again = |world: &mut World, labels| {
        let spawn =
            json!({"goal": "the root's goal", "child_id": "root", "thread_id": "t1", "labels": labels});
        world.submit(spawn)
    };
    assert_eq!(again(&mut world, json!({"env": "prod", "pr": "repo/7"})).unwrap(), []);
    again(&mut world, json!({"env": "test"})).unwrap_err();
    world.check_replay();
}

/// Writes the changes of the trace to `stored`. Returns the written index entry, if any.
fn store(world: &mut World, stored: &mut HashMap<String, String>) -> Option<String> {
    let changes = world.trace.take_changes();
    for (name, text) in changes.fields {
        match text {
            Some(text) => drop(stored.insert(name, text)),
            None => drop(stored.remove(&name)),
        }
    }
    stored.extend(changes.index.clone().map(|index| ("index".to_owned(), index)));
    changes.index
}

/// proves: a commit writes the index only if a term changed, however much money moves.
#[test]
fn g17_the_index_is_written_when_a_term_changes_and_at_the_end() {
    let mut world =
        World::with_root(json!({"labels": {"env": "prod"}, "thread_id": "t1", "max_cost_usd": 9}));
    let mut stored = HashMap::new();
    let began = world.node("root").identity.started_at.millis();
    let text = |rest: &str| Some(format!("{began} {rest} agent:default thread:t1 label:env=prod"));
    assert_eq!(store(&mut world, &mut stored), text("- status:submitted"));
    assert_eq!(store(&mut world, &mut stored), None);
    let lease = world.claim("root");
    assert_eq!(store(&mut world, &mut stored), text("- status:working"));
    for call in 0..100 {
        world.pay(&lease, &format!("c{call}"), cents(1)).unwrap();
        assert_eq!(store(&mut world, &mut stored), None, "a live run's cost is not in the index");
    }
    // A loaded trace knows the entry that is stored.
    world.trace =
        Trace::from_stored(world.trace.id(), world.trace.version(), &stored, &HashMap::new()).unwrap();
    world.pay(&lease, "later", cents(1)).unwrap();
    assert_eq!(store(&mut world, &mut stored), None);
    world.ask_human(&lease, "Which?").unwrap();
    assert_eq!(store(&mut world, &mut stored), text("- status:input_required human"));
    world.answer("root", 1, "This.").unwrap();
    assert_eq!(store(&mut world, &mut stored), text("- status:working"));
    world.cancel(None).unwrap();
    assert_eq!(store(&mut world, &mut stored), text("1010000000 status:cancelled"));
    let summary = Trace::summary(world.trace.id(), &stored).unwrap().unwrap();
    assert_eq!(summary.labels.len(), 1);
    assert_eq!(summary.thread_id.unwrap().as_str(), "t1");
}

/// proves: the terms of a query are the terms under which its runs are listed.
#[test]
fn g17_the_terms_of_a_query_are_those_of_its_runs() {
    let query: RunsQuery =
        serde_json::from_value(json!({"status": ["failed", "working", "failed"], "agent_id": "a",
        "thread_id": "t", "labels": {"x": "1", "y": "2"}, "waiting_for_human": true}))
        .unwrap();
    let terms = terms_of(&query);
    let groups: Vec<&[String]> = terms.iter().map(Vec::as_slice).collect();
    assert_eq!(
        groups,
        [
            &["status:failed".to_owned(), "status:working".to_owned()][..],
            &["human".to_owned()],
            &["agent:a".to_owned()],
            &["thread:t".to_owned()],
            &["label:x=1".to_owned()],
            &["label:y=2".to_owned()],
        ]
    );
    assert!(terms_of(&RunsQuery { waiting_for_human: Some(false), ..RunsQuery::default() }).is_empty());
    assert!(!RunsQuery { limit: 7, ..RunsQuery::default() }.is_filter() && query.is_filter());
}
