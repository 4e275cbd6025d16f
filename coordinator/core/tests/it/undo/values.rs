//! The values that steps read are kept, so that their undos receive them.

use domain::wire::UndoStatus;
use serde_json::{Value, json};
use world::{World, cents, id};

use super::{
    super::graph_flow::{queued, step},
    undo_status, undoable,
};

/// All stored fields and values of the world.
fn stored(world: &World) -> Vec<(String, String)> {
    let mut trace = world.trace.clone();
    trace.mark_all_changed();
    let changes = trace.take_changes();
    changes.fields.into_iter().chain(changes.values).filter_map(|(name, text)| Some((name, text?))).collect()
}

fn bytes(world: &World) -> usize {
    stored(world).iter().map(|(name, text)| name.len() + text.len()).sum()
}

/// The number of long values that are kept for undos.
fn kept(world: &World) -> usize {
    stored(world).iter().filter(|(name, _)| name.starts_with("h.")).count()
}

fn long(name: &str) -> String {
    name.repeat(400)
}

fn items(count: u32, text: &str, undo: bool) -> World {
    let list: Vec<u32> = (0..count).collect();
    let each = json!({"for_each": "list", "input_from": ["text"]});
    let each = if undo { undoable("a", each) } else { step("a", each) };
    let mut world = World::new();
    let graph = json!({"max_cost_usd": 1000, "inputs": {"list": list, "text": text}, "steps": [each, step("b", json!({}))]});
    world.submit_graph(graph).unwrap();
    world.measured();
    (1..=count).for_each(|number| world.run(&format!("a-{number}"), "ok"));
    world
}

#[test]
fn g14_a_value_is_kept_once_however_many_runs_read_it() {
    let text = "x".repeat(100_000);
    let more = |count| {
        let undoable = items(count, &text, true);
        assert_eq!(kept(&undoable), 1);
        bytes(&undoable) - bytes(&items(count, &text, false))
    };
    let (one, hundred) = (more(1), more(100));
    assert!(one < 102_000, "{one} bytes more with one item that can be undone");
    assert!(hundred < 140_000, "{hundred} bytes more with a hundred");
}

#[test]
fn g14_a_kept_value_goes_when_the_graph_has_ended_well_or_its_undos_have_begun() {
    let graph = || {
        json!({"inputs": {"list": [1, 2], "text": long("t")}, "steps": [
            undoable("a", json!({"for_each": "list", "input_from": ["text"]})), step("b", json!({})),
        ]})
    };
    let begun = || {
        let mut world = World::with_graph(graph());
        ["a-1", "a-2"].into_iter().for_each(|name| world.run(name, "ok"));
        world.check_replay();
        assert_eq!(kept(&world), 1);
        world
    };
    let mut world = begun();
    world.run("b", "ok");
    assert_eq!((world.status("graph").as_str(), kept(&world)), ("completed", 0));
    world.rest();

    let mut world = begun();
    world.cancel_without_undo(None).unwrap();
    assert_eq!(kept(&world), 0);
    world.rest();

    let mut world = begun();
    world.delete(Some("a-2"), true).unwrap();
    assert_eq!(kept(&world), 1);
    world.delete(Some("a-1"), true).unwrap();
    assert_eq!(kept(&world), 0);
    world.run("b", "ok");
    world.rest();

    let mut world = begun();
    world.break_it("b");
    for name in ["a-2-undo", "a-1-undo"] {
        assert_eq!(kept(&world), usize::from(name == "a-2-undo"), "only the last undo has its own value");
        world.check_replay();
        let inputs = serde_json::to_value(world.work(&id(name)).unwrap().inputs).unwrap();
        assert_eq!(inputs["text"], json!(long("t")));
        world.run(name, "ok");
    }
    assert_eq!(undo_status(&world, "a"), Some(UndoStatus::Undone));
    world.rest();

    // A pipeline that ended well keeps nothing, though its caller continues.
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let inner = json!({"id": "g", "steps": [undoable("a", json!({"input_from": ["text"]}))]});
    let steps: Vec<Value> = vec![inner, step("b", json!({}))];
    world
        .spawn_graph(&root, json!({"child_id": "p", "inputs": {"text": long("t")}, "steps": steps}))
        .unwrap();
    world.run("a", "ok");
    assert_eq!((world.status("g").as_str(), kept(&world)), ("completed", 1));
    world.check_replay();
    world.run("b", "ok");
    assert_eq!((world.status("p").as_str(), kept(&world)), ("completed", 0));
    world.check_replay();
    world.complete(&root, "done").unwrap();
    world.rest();
}

#[test]
fn g14_the_stored_size_of_many_rounds_is_bounded() {
    let mut world = World::new();
    world.settings.limits.max_context_store_bytes = 5_000;
    world
        .submit_graph(json!({"max_cost_usd": 100, "steps": [
            {"id": "rounds", "loop": {"max_rounds": 20}, "steps": [
                step("draft", json!({"output_to": "text"})),
                undoable("print", json!({"input_from": ["text"]})),
            ]},
        ]}))
        .unwrap();
    let mut rounds = 0;
    while let Some(draft) = queued(&world).first().cloned().filter(|name| name.starts_with("draft")) {
        let lease = world.claim(&draft);
        world.pay(&lease, &format!("call-{rounds}"), cents(1)).unwrap();
        world.complete(&lease, format!("{rounds}{}", "x".repeat(1_000))).unwrap();
        let Some(print) = queued(&world).first().cloned().filter(|name| !name.ends_with("undo")) else {
            break;
        };
        world.run(&print, "ok");
        rounds += 1;
    }
    assert_eq!(rounds, 4, "the fifth text does not fit");
    assert_eq!(queued(&world).len(), 1, "the graph runs an undo");
    while let [next] = queued(&world).as_slice() {
        world.run(next, "ok");
    }
    assert_eq!(world.status("graph"), "failed");
    world.rest();
}
