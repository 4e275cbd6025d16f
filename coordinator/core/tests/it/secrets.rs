//! Secrets by name (S8): the core decides which context has which. Only a worker has their values.

use domain::{
    decode,
    graph::{Plan, TaskGraph},
    wire::Spawn,
};
use serde_json::{Value, json};
use trace::{Refusal, Trace};
use world::{World, id};

use super::graph_flow::{queued, step};

fn has(world: &World, child: &str) -> Vec<String> {
    let work = world.work(&id(child)).unwrap_or_else(|| panic!("`{child}` runs no agent"));
    work.secrets.iter().map(ToString::to_string).collect()
}

fn text<T: std::fmt::Debug>(refused: Result<T, Refusal>) -> String {
    refused.unwrap_err().to_wire().to_text()
}

fn definition(world: &World) -> Value {
    let root = world.trace.root().unwrap().id.clone();
    serde_json::to_value(world.trace.definition_of(&root).unwrap().2).unwrap()
}

/// proves: a child without named secrets has none, and can't be given a secret that its caller
/// lacks.
#[test]
fn s8_a_child_has_only_secrets_that_its_caller_has_and_names() {
    let mut world = World::with_root(json!({"secrets": ["B_KEY", "A_KEY"]}));
    assert_eq!(has(&world, "root"), ["A_KEY", "B_KEY"]);
    let root = world.claim("root");
    let child = |name: &str, secrets: Value| json!({"goal": name, "child_id": name, "secrets": secrets});
    let refused = text(world.spawn(&root, child("bad", json!(["X_KEY", "A_KEY", "W_KEY"]))));
    assert!(
        refused.contains("`root` does not have `W_KEY`, `X_KEY`"),
        "not all missing secrets are named: {refused}"
    );
    assert!(!refused.contains("A_KEY") && refused.contains("hint: "), "{refused}");
    assert!(world.trace.context(&id("bad")).is_none());

    world.spawn(&root, child("some", json!(["A_KEY"]))).unwrap();
    world.spawn(&root, child("none", json!([]))).unwrap();
    world.spawn(&root, json!({"goal": "silent", "child_id": "silent"})).unwrap();
    assert_eq!(has(&world, "some"), ["A_KEY"]);
    assert!(
        has(&world, "none").is_empty() && has(&world, "silent").is_empty(),
        "children get no secrets by default"
    );

    // A second delivery is the same spawn only if its names are equal.
    assert!(world.spawn(&root, child("some", json!(["A_KEY"]))).unwrap().is_empty());
    let other = world.spawn(&root, child("some", json!(["B_KEY"])));
    assert!(matches!(other, Err(Refusal::Conflict { .. })), "{other:?}");

    // A caller can't pass on a secret that only its own caller has.
    let some = world.claim("some");
    let refused = text(world.spawn(&some, child("deep", json!(["B_KEY"]))));
    assert!(refused.contains("`some` does not have `B_KEY`"), "{refused}");
    world.spawn(&some, child("deep", json!(["A_KEY"]))).unwrap();
    assert_eq!(has(&world, "deep"), ["A_KEY"]);
}

#[test]
fn s8_a_graph_of_an_agent_and_its_steps_have_at_most_the_agents_secrets() {
    let mut world = World::with_root(json!({"secrets": ["A_KEY"]}));
    let root = world.claim("root");
    let graph =
        |secrets: Value| json!({"child_id": "run", "secrets": secrets, "steps": [step("one", json!({}))]});
    let refused = text(world.spawn_graph(&root, graph(json!(["A_KEY", "B_KEY"]))));
    assert!(refused.contains("`root` does not have `B_KEY`"), "{refused}");
    world.spawn_graph(&root, graph(json!(["A_KEY"]))).unwrap();
    assert_eq!(has(&world, "one"), ["A_KEY"]);
    let silent = json!({"child_id": "silent", "steps": [step("two", json!({}))]});
    world.spawn_graph(&root, silent).unwrap();
    assert!(has(&world, "two").is_empty(), "a graph that names no secrets has none");
}

/// Steps, items, rounds, fallbacks, groups and a graph's own agent: each has the names of its
/// nearest definition.
#[test]
fn s8_the_steps_of_a_graph_have_its_secrets_or_the_part_they_name() {
    let graph = json!({
        "mode": "parallel", "secrets": ["A_KEY", "B_KEY"], "inputs": {"list": [1, 2]},
        "aggregate": {}, "agent_id": "editor", "task_description": "sum up",
        "steps": [
            step("all", json!({"fallback": "critic"})),
            step("part", json!({"secrets": ["B_KEY"], "fallback": "critic"})),
            step("none", json!({"secrets": []})),
            step("item", json!({"for_each": "list", "secrets": ["A_KEY"]})),
            step("round", json!({"loop": {"max_rounds": 2}, "secrets": ["A_KEY"]})),
            {"id": "group", "secrets": ["A_KEY"], "aggregate": {}, "agent_id": "editor", "task_description": "t",
             "steps": [step("within", json!({}))]},
            {"id": "items", "for_each": "list", "secrets": ["B_KEY"], "steps": [
                step("inner", json!({})), step("bare", json!({"secrets": []}))]},
        ],
    });
    let mut world = World::with_graph(graph);
    let all: &[&str] = &["A_KEY", "B_KEY"];
    for (child, secrets) in [
        ("all", all),
        ("part", &["B_KEY"]),
        ("none", &[]),
        ("item-1", &["A_KEY"]),
        ("item-2", &["A_KEY"]),
        ("round-r1", &["A_KEY"]),
        ("within", &["A_KEY"]),
        ("inner-1", &["B_KEY"]),
    ] {
        assert_eq!(has(&world, child), secrets, "{child}");
    }
    for (child, fallback, secrets) in [("all", "all-fallback", all), ("part", "part-fallback", &["B_KEY"])] {
        world.break_it(child);
        assert_eq!(has(&world, fallback), secrets, "{:?}", queued(&world));
        world.run(fallback, "done");
    }
    for child in ["none", "item-1", "item-2", "round-r1", "within", "inner-1", "inner-2"] {
        world.run(child, "done");
    }
    assert_eq!(has(&world, "round-r2"), ["A_KEY"]);
    assert_eq!(has(&world, "group"), ["A_KEY"], "the group's own agent");
    world.run("round-r2", "done");
    world.run("group", "done");
    for bare in ["bare-1", "bare-2"] {
        assert!(has(&world, bare).is_empty());
        world.run(bare, "done");
    }
    let root = world.trace.root().unwrap().id.to_string();
    assert_eq!(has(&world, &root), all, "the graph's own agent");
    world.run(&root, "sum");
    world.check_replay();
}

#[test]
fn s8_a_step_that_names_a_secret_its_graph_lacks_is_refused_with_its_place() {
    let graph = json!({"secrets": ["A_KEY"], "steps": [
        step("one", json!({"secrets": ["B_KEY", "A_KEY", "C_KEY"]})),
        {"id": "group", "secrets": [], "steps": [step("two", json!({"secrets": ["A_KEY"]}))]},
        {"id": "ask", "approve": {"who": "me"}, "secrets": ["A_KEY"]},
    ]});
    let graph: TaskGraph = decode::value(&graph).unwrap();
    let told = Plan::compile(&graph).unwrap_err().to_string();
    for says in [
        "steps[0].secrets: the graph or group around this step does not have `B_KEY`, `C_KEY`\n  hint: name them in `secrets` of the graph",
        "steps[1].steps[0].secrets: the graph or group around this step does not have `A_KEY`",
        "steps[2].secrets: a step with `approve` can't have `secrets`",
    ] {
        assert!(told.contains(says), "{says}\nis not in\n{told}");
    }
}

/// proves: an error never repeats a refused name, since it may be the secret's value.
#[test]
fn s8_all_mistakes_of_bad_names_are_reported_without_the_names() {
    let many: Vec<String> = (0..17).map(|n| format!("KEY_{n}")).collect();
    for (secrets, says) in [
        (json!(["sk-live-1234"]), &["secrets[0]: ", "'s'", "never its value"][..]),
        (json!(["lower", "GOOD", "A-B", ""]), &["secrets[0]: ", "secrets[2]: ", "secrets[3]: "]),
        (json!(["A_KEY", "A_KEY"]), &["secrets: "]),
        (json!(many), &["secrets: "]),
        (json!("A_KEY"), &["secrets: it should be an array"]),
        (json!({"A_KEY": "v"}), &["secrets: it should be an array"]),
        (json!([7, null]), &["secrets[0]: ", "secrets[1]: "]),
        (json!(["K".repeat(65)]), &["secrets[0]: "]),
    ] {
        let told = decode::value::<Spawn>(&json!({"goal": "x", "secrets": secrets})).unwrap_err().to_string();
        let step = json!({"agent_id": "a", "task_description": "t", "secrets": secrets});
        let of_graph = decode::value::<TaskGraph>(&json!({"steps": [step]})).unwrap_err().to_string();
        for says in says {
            assert!(told.contains(says), "{says}\nis not in\n{told}");
            assert!(of_graph.contains(says), "{says}\nis not in\n{of_graph}");
        }
        assert!(!told.contains("sk-live") && !of_graph.contains("sk-live"), "{told}\n{of_graph}");
    }
    let most: Vec<String> = (0..16).map(|n| format!("KEY_{n}")).collect();
    decode::value::<Spawn>(&json!({"goal": "x", "secrets": most})).unwrap();
}

#[test]
fn s8_a_rerun_an_amend_and_a_second_attempt_keep_the_secrets() {
    let graph = json!({"secrets": ["A_KEY", "B_KEY"], "steps": [
        step("a", json!({})), step("b", json!({"secrets": ["A_KEY"], "retries": 1})), step("c", json!({})),
    ]});
    let mut world = World::with_graph(graph);
    world.run("a", "done");
    let lease = world.claim("b");
    world.fail(&lease, true).unwrap();
    world.pass(10_000);
    assert_eq!(has(&world, "b"), ["A_KEY"], "a second attempt");

    // An amend may use the graph's secrets, and can't add others.
    let mut more = definition(&world);
    more["secrets"] = json!(["A_KEY", "B_KEY", "C_KEY"]);
    let told = text(world.amend(None, "am-1", 0, more));
    assert!(told.contains("secrets: an amend changes steps, not the graph itself"), "{told}");
    let mut amended = definition(&world);
    amended["steps"][2] = step("d", json!({"secrets": ["B_KEY"]}));
    world.amend(None, "am-1", 0, amended).unwrap();
    world.break_it("b");
    world.rest();

    let rerun = world.rerun(json!({})).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!((queued(&rerun), has(&rerun, "b")), (vec!["b".to_owned()], vec!["A_KEY".to_owned()]));
    let mut rerun = rerun;
    rerun.run("b", "done");
    assert_eq!(has(&rerun, "d"), ["B_KEY"]);
    rerun.run("d", "done");
}

/// proves: contexts without their own list of secrets store no names, however many steps a graph
/// with secrets has.
#[test]
fn s8_a_step_stores_no_names_that_its_graph_has() {
    let stored = |secrets: Value| {
        let list: Vec<u32> = (0..50).collect();
        let items = step("item", json!({"for_each": "list"}));
        let mut graph = json!({"inputs": {"list": list}, "steps": [items]});
        if secrets != json!([]) {
            graph["secrets"] = secrets;
        }
        let mut world = World::with_graph(graph);
        let bytes = |world: &mut World| -> usize {
            let changes = world.trace.take_changes().fields;
            changes.iter().map(|(name, text)| name.len() + text.as_ref().map_or(0, String::len)).sum()
        };
        let bytes = bytes(&mut world);
        assert!(Trace::new(world.trace.id()) != world.trace);
        bytes
    };
    let names: Vec<String> = (0..16).map(|n| format!("A_LONG_NAME_OF_A_SECRET_{n}")).collect();
    let size = json!(names).to_string().len();
    let more = stored(json!(names)) - stored(json!([]));
    assert!(
        more < 3 * size,
        "{more} bytes more for names of {size} bytes: once in the plan, once in the order"
    );
}
