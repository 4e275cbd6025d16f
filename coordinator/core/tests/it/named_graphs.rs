//! Graphs that are used by name (G18): the stored graph replaces the name before anything is
//! decided, and the run keeps it.

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    GraphName,
    decode::Format,
    graph::{self, FoundGraph, NotFound, Purpose, Reference, ResolveError, ResolvedGraph},
    schedule,
    wire::GraphVerdict,
};
use serde_json::{Value, json};
use trace::{Amend, Command, ContextSpec, Event, Refusal, Submit, Trace};
use world::{World, id, with};

use super::graph_flow::{queued, step, verdict};

/// The graphs of a cluster: the versions of each name, from 1 on.
#[derive(Default, Clone)]
struct Shelf(BTreeMap<String, Vec<Value>>);

impl Shelf {
    fn put(&mut self, name: &str, graph: Value) -> &mut Self {
        self.0.entry(name.into()).or_default().push(graph);
        self
    }

    fn find(&self, name: &GraphName, version: Option<u64>) -> Result<Option<FoundGraph>, NotFound> {
        let versions = self.0.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let version = version.unwrap_or(versions.len() as u64);
        let found = usize::try_from(version).ok().and_then(|version| versions.get(version.checked_sub(1)?));
        let graph = found.ok_or_else(|| (format!("there is no `{name}@{version}`"), None))?;
        Ok(Some(FoundGraph { version, graph: Arc::new(graph.clone()) }))
    }

    fn read(&self, graph: &Value, purpose: Purpose) -> Result<ResolvedGraph, ResolveError> {
        graph::read_named(graph, purpose, &|name, version| self.find(name, version))
    }
}

/// Collects facts about a topic.
fn facts(task: &str) -> Value {
    json!({
        "input_schema": {"required": ["topic"], "properties": {"topic": {"type": "string"}}}, "output": "found",
        "steps": [step("find", json!({"task_description": task, "input_from": ["topic"], "output_to": "found"}))],
    })
}

fn shelf() -> Shelf {
    let mut shelf = Shelf::default();
    shelf.put("facts", facts("one")).put("facts", facts("two"));
    shelf
}

fn user(reference: &str) -> Value {
    json!({"inputs": {"subject": "ants"}, "mode": "sequential", "steps": [
        {"id": "first", "use": reference, "with": {"topic": "subject"}, "output_to": "about"},
        step("last", json!({"input_from": ["about"]})),
    ]})
}

/// A submission as the coordinator's inbound makes it.
fn submit(world: &mut World, shelf: &Shelf, graph: &Value) -> Result<Vec<Event>, Refusal> {
    let (definition, plan, problems) = match shelf.read(graph, Purpose::Submission) {
        Ok(ResolvedGraph { definition, plan, .. }) => (definition, plan, None),
        Err(ResolveError::Now { definition, plan, problems }) => (*definition, *plan, Some(problems)),
        Err(ResolveError::Wrong(problems)) => return Err(Refusal::Malformed(problems)),
    };
    let (agents, settings) = (world.agents.clone().into(), world.settings.clone());
    world.handle(Command::Submit(Box::new(Submit {
        spec: ContextSpec::of_graph(&definition, &id("graph")),
        plan: Some(plan.into()),
        agents,
        settings,
        traced: None,
        rerun: None,
        unresolved: problems.map(Refusal::Malformed),
    })))
}

fn with_names(shelf: &Shelf, graph: &Value) -> World {
    let mut world = World::new();
    submit(&mut world, shelf, graph).unwrap_or_else(|refusal| panic!("{refusal}"));
    world
}

/// An amend as the coordinator's inbound makes it.
fn amend(
    world: &mut World,
    shelf: &Shelf,
    key: &str,
    revision: u32,
    graph: &Value,
) -> Result<Vec<Event>, Refusal> {
    let (plan, problems, unverified) = match shelf.read(graph, Purpose::Amend) {
        Ok(ResolvedGraph { plan, unverified, .. }) => (plan, None, unverified),
        Err(ResolveError::Now { plan, problems, .. }) => (*plan, Some(problems), Vec::new()),
        Err(ResolveError::Wrong(problems)) => return Err(Refusal::Malformed(problems)),
    };
    let agents = world.agents.clone().into();
    world.handle(Command::Amend(Box::new(Amend {
        child_id: None,
        id: key.parse().unwrap(),
        revision,
        plan: plan.into(),
        by: None,
        agents,
        unresolved: problems.map(Refusal::Malformed),
        unverified,
    })))
}

fn definition(world: &World) -> Value {
    let root = world.trace.root().unwrap().id.clone();
    serde_json::to_value(world.trace.definition_of(&root).unwrap().2).unwrap()
}

fn task(world: &World, child: &str) -> String {
    world.work(&id(child)).unwrap().goal.to_string()
}

fn uses(world: &World) -> Vec<Option<String>> {
    let outcome = world.trace.graph_outcome(world.trace.root().unwrap()).unwrap();
    outcome.steps.iter().map(|step| step.uses.as_ref().map(ToString::to_string)).collect()
}

/// The stored trace and the replayed log both equal the trace.
fn check(world: &World) {
    world.check_replay();
    let changes = {
        let mut copy = world.trace.clone();
        copy.mark_all_changed();
        copy.take_changes()
    };
    let some = |(name, text): (String, Option<String>)| Some((name, text?));
    let fields = changes.fields.into_iter().filter_map(some).collect();
    let values = changes.values.into_iter().filter_map(some).collect();
    let stored = Trace::from_stored(world.trace.id(), world.trace.version(), &fields, &values).unwrap();
    assert!(stored == world.trace, "the stored trace differs");
}

fn code<T>(refused: Result<T, Refusal>) -> &'static str {
    refused.err().expect("the submission is refused").code().0
}

#[test]
fn g18_a_use_is_a_file_or_a_name_with_or_without_a_version() {
    let kept = |name: &str, version| Reference::Kept(name.parse().unwrap(), version);
    for (text, expected) in [
        ("facts", kept("facts", None)),
        ("facts@2", kept("facts", Some(2))),
        ("a-b_C9@18446744073709551615", kept("a-b_C9", Some(u64::MAX))),
        ("facts.yaml", Reference::File),
        ("facts.yml", Reference::File),
        ("facts.json", Reference::File),
        ("facts.toml", Reference::File),
        ("./facts", Reference::File),
        ("facts/2", Reference::File),
        ("facts@2/x", Reference::File),
        ("facts@", Reference::Neither),
        ("facts@0", Reference::Neither),
        ("facts@02", Reference::Neither),
        ("facts@+2", Reference::Neither),
        ("facts@-1", Reference::Neither),
        ("facts@2@3", Reference::Neither),
        ("facts@latest", Reference::Neither),
        ("facts@18446744073709551616", Reference::Neither),
        ("@2", Reference::Neither),
        ("", Reference::Neither),
        ("-facts", Reference::Neither),
        ("facts.txt", Reference::Neither),
        ("two words", Reference::Neither),
    ] {
        assert_eq!(Reference::new(text), expected, "{text:?}");
    }
}

#[test]
fn g18_a_run_has_the_version_that_it_names_or_the_latest_and_shows_it() {
    for (reference, goal, named, latest) in [
        ("facts", "two", "facts@2", true),
        ("facts@2", "two", "facts@2", false),
        ("facts@1", "one", "facts@1", false),
    ] {
        let mut world = with_names(&shelf(), &user(reference));
        assert_eq!(queued(&world), ["first-find"]);
        assert_eq!(task(&world, "first-find"), goal);
        assert_eq!(uses(&world), [Some(named.to_owned()), None]);
        let shown = definition(&world);
        assert_eq!(shown["steps"][0]["use"], json!(named));
        assert_eq!(shown["steps"][0].get("latest"), latest.then_some(&json!(true)));
        check(&world);
        world.run("first-find", "six legs");
        world.run("last", "done");
        assert_eq!(verdict(&world), GraphVerdict::Succeeded);
        check(&world);
    }
}

#[test]
fn g18_a_second_delivery_is_the_same_run_even_if_its_names_have_changed() {
    let mut shelf = shelf();
    let mut world = with_names(&shelf, &user("facts"));
    let before = world.trace.clone();
    // Later versions: a valid one, one with other inputs, an unreadable one; then none.
    shelf.put("facts", facts("three"));
    assert_eq!(submit(&mut world, &shelf, &user("facts")), Ok(Vec::new()));
    shelf.put("facts", with(facts("four"), json!({"input_schema": {"properties": {"other": {}}}})));
    assert_eq!(submit(&mut world, &shelf, &user("facts")), Ok(Vec::new()));
    shelf.put("facts", json!({"steps": []}));
    assert_eq!(submit(&mut world, &shelf, &user("facts")), Ok(Vec::new()));
    assert_eq!(submit(&mut world, &Shelf::default(), &user("facts")), Ok(Vec::new()));
    assert!(world.trace == before);
    // The exact version is a different submission; so is another step, or another name.
    for other in ["facts@2", "facts@1", "other"] {
        assert_eq!(code(submit(&mut world, &shelf, &user(other))), "conflict", "{other}");
    }
    let mut changed = user("facts");
    changed["steps"][1]["task_description"] = json!("do it otherwise");
    assert_eq!(code(submit(&mut world, &shelf, &changed)), "conflict");

    // A submission that was never admitted is refused, and leaves nothing.
    for gone in [&Shelf::default(), &shelf] {
        let mut world = World::new();
        assert_eq!(code(submit(&mut world, gone, &user("facts"))), "malformed");
        assert!(world.trace.root().is_none());
    }
}

#[test]
fn g18_a_later_meaning_of_a_name_changes_no_run_and_no_rerun() {
    let mut shelf = shelf();
    let mut world = with_names(&shelf, &user("facts"));
    shelf.put("facts", facts("three"));
    world.run("first-find", "six legs");
    let lease = world.claim("last");
    world.fail(&lease, false).unwrap();
    assert_eq!(verdict(&world), GraphVerdict::Failed);
    let again = world.rerun(json!({})).unwrap();
    assert_eq!(queued(&again), ["last"], "succeeded steps are taken");
    assert_eq!(uses(&again), [Some("facts@2".to_owned()), None]);
    let again = world.rerun(json!({"rerun": {"from": ["first"]}})).unwrap();
    assert_eq!(task(&again, "first-find"), "two");
    check(&again);
}

#[test]
fn g18_an_amend_has_names_too_and_its_second_delivery_is_the_same_amend() {
    let mut shelf = shelf();
    let mut world = with_names(&shelf, &user("facts@1"));
    let mut wanted = definition(&world);
    wanted["steps"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "more", "use": "facts", "with": {"topic": "subject"}, "output_to": "rest"}));
    amend(&mut world, &shelf, "am-1", 0, &wanted).unwrap();
    shelf.put("facts", facts("three"));
    assert_eq!(amend(&mut world, &shelf, "am-1", 0, &wanted), Ok(Vec::new()));
    // The version of the run was removed from the cluster: begun steps are compared with the run
    // itself.
    let gone = Shelf::default();
    assert_eq!(amend(&mut world, &gone, "am-1", 0, &wanted), Ok(Vec::new()));
    let mut other = wanted.clone();
    other["steps"][2]["use"] = json!("facts@3");
    assert_eq!(code(amend(&mut world, &shelf, "am-1", 0, &other)), "amend_conflict");
    assert_eq!(uses(&world), [Some("facts@1".to_owned()), None, Some("facts@2".to_owned())]);

    // A printed definition can be sent back, even if the cluster has removed every graph in it.
    let mut shown = definition(&world);
    shown["steps"].as_array_mut().unwrap().push(step("end", json!({})));
    amend(&mut world, &gone, "am-2", 1, &shown).unwrap();
    check(&world);
    for name in ["first-find", "last", "more-find", "end"] {
        world.run(name, "done");
    }
    assert_eq!(verdict(&world), GraphVerdict::Succeeded);
    check(&world);
}

#[test]
fn g18_a_graph_that_is_changed_is_not_the_one_that_is_kept() {
    let shelf = shelf();
    let world = with_names(&shelf, &user("facts"));
    let mut shown = definition(&world);
    shown["steps"][0]["graph"]["steps"]
        .as_array_mut()
        .unwrap()
        .push(step("check", json!({"input_from": ["found"]})));
    for shelf in [&shelf, &Shelf::default()] {
        let mut world = world.clone();
        let refused = amend(&mut world, shelf, "am-1", 0, &shown).unwrap_err();
        assert!(refused.to_string().contains("leave `use` out"), "{refused}");
        assert_eq!(refused.code().0, "malformed");
    }
    let mut own = shown.clone();
    own["steps"][0].as_object_mut().unwrap().retain(|field, _| field != "use" && field != "latest");
    let mut world = world.clone();
    amend(&mut world, &shelf, "am-1", 0, &own).unwrap();
    assert_eq!(uses(&world), [None, None]);
    check(&world);
    // A submission also can't claim that another graph is `facts@2`.
    let refused = submit(&mut World::new(), &shelf, &shown).unwrap_err();
    assert!(refused.to_string().contains("the graph differs from that of `facts@2`"), "{refused}");
    // An equal graph may name its version.
    let shown = definition(&with_names(&shelf, &user("facts")));
    let world = with_names(&shelf, &shown);
    assert_eq!(definition(&world)["steps"][0].get("latest"), None, "the definition names the version");
}

#[test]
fn g18_names_in_groups_items_loops_races_and_in_graphs_that_are_given() {
    let shelf = shelf();
    let used = |more: Value| with(json!({"use": "facts", "with": {"topic": {"value": "x"}}}), more);
    let graph = json!({"mode": "parallel", "inputs": {"list": ["a", "b"]}, "steps": [
        {"id": "group", "steps": [used(json!({"id": "in-group"}))]},
        {"id": "given", "graph": {"steps": [used(json!({"id": "in-given"}))]}},
        used(json!({"id": "each", "for_each": "list", "with": {"topic": "item"}})),
        used(json!({"id": "again", "loop": {"max_rounds": 2, "until": "false"}})),
        {"id": "race", "race": true, "steps": [used(json!({"id": "fast"})), used(json!({"id": "slow"}))]},
        used(json!({"id": "or", "fallback": {"agent_id": "writer", "task_description": "instead"}})),
    ]});
    let mut world = with_names(&shelf, &graph);
    while let Some(child) = queued(&world).first() {
        assert!(task(&world, child) == "two" || child.contains("fallback"), "{child}");
        let lease = world.claim(child);
        if child.starts_with("or-find") {
            world.fail(&lease, false).unwrap();
        } else {
            world.complete(&lease, "done").unwrap();
        }
    }
    assert_eq!(verdict(&world), GraphVerdict::Succeeded);
    let named = Some("facts@2".to_owned());
    assert_eq!(uses(&world), [None, None, named.clone(), named.clone(), None, named]);
    check(&world);
}

/// A graph used by name stores as much as the same graph written inline, plus the few bytes of its
/// name.
#[test]
fn g18_a_name_costs_no_more_than_the_graph_in_its_place() {
    let shelf = shelf();
    let written = |graph: &Value| {
        let mut world = World::new();
        world.measured();
        submit(&mut world, &shelf, graph).unwrap();
        let begun = world.written();
        world.run("first-find", "six legs");
        (begun, world.written())
    };
    let inline = {
        let mut graph = user("facts");
        let step = graph["steps"][0].as_object_mut().unwrap();
        step.remove("use");
        step.insert("graph".into(), facts("two"));
        graph
    };
    let (inline, named) = (written(&inline), written(&user("facts")));
    assert!(named.0 <= inline.0 + 3 * r#""use":"facts@2","latest":true,"#.len(), "{named:?} {inline:?}");
    assert_eq!(named.1, inline.1);
}

#[test]
fn g18_s8_a_kept_graph_has_no_secret_that_its_user_does_not_have() {
    let mut shelf = Shelf::default();
    shelf.put("secretive", with(facts("one"), json!({"secrets": ["TOKEN"]})));
    let refused = submit(&mut World::new(), &shelf, &user("secretive")).unwrap_err();
    assert!(refused.to_string().contains("steps[0].graph.secrets"), "{refused}");
    let given = with(user("secretive"), json!({"secrets": ["TOKEN"]}));
    submit(&mut World::new(), &shelf, &given).unwrap();
}

#[test]
fn g18_the_graph_of_an_agent_uses_no_names() {
    for (graph, said) in [
        (user("facts"), "is stored in a cluster"),
        (definition(&with_names(&shelf(), &user("facts"))), "can't use graphs by name"),
    ] {
        let text = with(graph, json!({"inputs": {"subject": "x"}})).to_string();
        let refused = graph::read_within(text.as_bytes(), Format::Json, |_| false).unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
}

#[test]
fn g18_g16_a_schedule_may_name_graphs_and_no_files() {
    let of = |reference: &str| json!({"name": "n", "cron": "@daily", "task": user(reference)});
    for fine in ["facts", "facts@7"] {
        let readable = schedule::read(&of(fine)).unwrap();
        assert_eq!(
            readable.schedule.task.value()["steps"][0]["use"],
            json!(fine),
            "the name is looked up at each tick"
        );
    }
    for (wrong, said) in
        [("facts.yaml", "a file is not read here"), ("facts@x", "neither a file nor the name")]
    {
        let refused = schedule::read(&of(wrong)).unwrap_err().to_string();
        assert!(refused.contains("task.steps[0].use") && refused.contains(said), "{refused}");
    }
}

#[test]
fn g18_a_circle_is_named_with_the_place_where_it_begins() {
    let name: GraphName = "a".parse().unwrap();
    let b = json!({"steps": [{"use": "a@1", "graph": facts("one")}]});
    let a = json!({"steps": [step("s", json!({})), {"id": "g", "steps": [{"use": "b@3", "graph": b}]}]});
    let circle = vec!["b@3".to_owned(), "a@1".to_owned()];
    assert_eq!(graph::circle(&a, &name), Some(("steps[1].steps[0].use".into(), circle)));
    let itself = json!({"steps": [{"graph": {"steps": [{"use": "a"}]}}]});
    assert_eq!(graph::circle(&itself, &name), Some(("steps[0].graph.steps[0].use".into(), vec!["a".into()])));
    assert_eq!(graph::circle(&a, &"c".parse().unwrap()), None);
}

#[test]
fn g18_all_problems_with_names_are_reported_at_once() {
    let mut shelf = shelf();
    let long = "x".repeat(50_000);
    let long = |number: usize| step(&format!("s{number}"), json!({"task_description": long}));
    let large = json!({"steps": (0..8).map(long).collect::<Vec<_>>()});
    shelf.put("large", large);
    let graph = json!({"inputs": {"subject": 7}, "secrets": ["A"], "steps": [
        {"id": "unknown", "use": "fatcs"},
        {"id": "version", "use": "facts@9"},
        {"id": "file", "use": "facts.yaml"},
        {"id": "neither", "use": "facts@latest"},
        {"id": "both", "use": "facts", "graph": facts("one")},
        {"id": "forged", "use": "facts@1", "graph": facts("two"), "with": {"topic": {"value": "x"}}},
        {"id": "input", "use": "facts", "with": {"topik": "subject"}},
        {"id": "value", "use": "facts@1", "with": {"topic": {"value": 7}}},
        {"id": "agent", "use": "facts", "with": {"topic": "subject"}, "agent_id": "writer", "retries": 2},
        {"id": "latest", "agent_id": "writer", "task_description": "t", "latest": true},
        {"id": "with", "agent_id": "writer", "task_description": "t", "with": {"a": "subject"}},
        {"id": "number", "use": 7},
        {"id": "l1", "use": "large"}, {"id": "l2", "use": "large"}, {"id": "l3", "use": "large"},
    ]});
    let problems = match shelf.read(&graph, Purpose::Submission) {
        Err(ResolveError::Wrong(problems) | ResolveError::Now { problems, .. }) => problems,
        Ok(_) => panic!("the schedule was accepted"),
    };
    insta::assert_snapshot!(problems.to_string());
}

/// proves: a graph that is composed of sufficiently shallow graphs can be stored and read again, or
/// is refused.
#[test]
fn g18_graphs_within_graphs_nest_no_deeper_than_can_be_read_again() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |value, _| json!([value]));
    let mut shelf = Shelf::default();
    let kept = |levels: usize| json!({"inputs": {"deep": deep(levels)}, "steps": [step("s", json!({}))]});
    graph::read_to_keep(kept(60)).unwrap();
    let refused = graph::read_to_keep(kept(70)).unwrap_err().to_string();
    assert!(refused.contains("nests deeper than the 64 levels allowed"), "{refused}");
    shelf.put("a", kept(60));
    let user = |name: &str| json!({"steps": [{"id": "in", "use": name}]});
    assert_eq!(code(submit(&mut World::new(), &shelf, &user("a"))), "malformed");
    shelf.put("a", kept(40));
    check(&with_names(&shelf, &user("a")));
}
